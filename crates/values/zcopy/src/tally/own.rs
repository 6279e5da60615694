//! Page of this process.

use super::layout::{
    ALL, HEAD_MAGIC, HEAD_NAME, HEAD_PID, HEAD_STARTED, HEAD_VERSION, MAGIC, VERSION,
};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tranship_sys::{ForkGuard, map, memfd, process};

/// Name of the memfd.
pub(crate) const NAME: &str = "tranship-zcopy-tally";
/// A folder in which each process keeps its page as a file, `PROGRAM.PID.zcopy`.
const FOLDER: &str = "TRANSHIP_ZCOPY_EXPLAIN";

#[derive(Debug)]
pub(super) struct Page {
    pub(super) words: &'static [AtomicU64],
    pub(super) guard: ForkGuard,
    /// The page's memfd, by which other processes find it.
    pub(super) file: OwnedFd,
}

/// A forked child makes one of its own; that of its parent it does not have.
static OWN: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the page. None if the kernel refuses memory or a descriptor.
pub(super) fn page() -> Option<&'static Page> {
    // Ordering: acquire, partner of the release below.
    let known = OWN.load(Ordering::Acquire);
    // SAFETY: pages here are never freed.
    if let Some(page) = unsafe { known.as_ref() }
        && !page.guard.is_child()
    {
        return Some(page);
    }
    let made = Box::into_raw(Box::new(Page::make().ok()?));
    // Ordering: release, partner of the acquire above and here.
    match OWN.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed from here on.
        Ok(_) => unsafe { made.as_ref() },
        Err(theirs) => {
            // SAFETY: nobody else knows ours.
            let ours = unsafe { Box::from_raw(made) };
            let at = std::ptr::NonNull::from(ours.words).cast();
            // SAFETY: the mapping that was just made.
            let _ = unsafe { map::unmap(at, ALL * 8) };
            // SAFETY: as above.
            unsafe { theirs.as_ref() }
        }
    }
}

impl Page {
    fn make() -> io::Result<Page> {
        let guard = ForkGuard::new()?;
        let file = match process::trusted_env(FOLDER) {
            Some(folder) => in_folder(folder.as_ref()).or_else(|_| in_memory())?,
            None => in_memory()?,
        };
        let at = map::map_shared_rw(&file, ALL * 8, 0)?;
        // SAFETY: zeros, as long as that, aligned as a page, and mapped for ever (or nobody knows of it, see `page`).
        let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>().as_ptr(), ALL) };
        let page = Page { words, guard, file };
        page.begin();
        Ok(page)
    }

    fn begin(&self) {
        let set = |at: usize, to: u64| self.words[at].store(to, Ordering::Relaxed);
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(process::command_name().bytes()) {
            *to = from;
        }
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| name[at + byte]));
        set(HEAD_NAME, half(0));
        set(HEAD_NAME + 1, half(8));
        set(HEAD_PID, u64::from(process::getpid()));
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        set(HEAD_STARTED, since.map_or(0, |since| since.as_secs()));
        set(HEAD_VERSION, VERSION);
        // Ordering: release: a reader that sees it sees the stores before it.
        self.words[HEAD_MAGIC].store(MAGIC, Ordering::Release);
    }
}

fn in_memory() -> io::Result<OwnedFd> {
    let file = memfd::create(NAME)?;
    memfd::set_len(&file, ALL as u64 * 8)?;
    memfd::add_seals(&file, memfd::Seals::SHRINK | memfd::Seals::GROW)?;
    // Its user may read it, and nobody writes except through the mapping.
    rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR)?;
    Ok(file)
}

fn in_folder(folder: &Path) -> io::Result<OwnedFd> {
    let program = process::command_name().replace('/', "_");
    let path = folder.join(format!("{program}.{}.zcopy", process::getpid()));
    let mut options = File::options();
    // Never a file that another program put there.
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(&path)?;
            options.open(&path)
        }
        _ => Err(error),
    })?;
    // All of it now: a disk that is full later must not end the program.
    memfd::fallocate(&file, ALL as u64 * 8).inspect_err(|_| {
        let _ = std::fs::remove_file(&path);
    })?;
    Ok(file.into())
}
