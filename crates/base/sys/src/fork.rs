//! Noticing that this process is a forked child.
//!
//! A page that the kernel clears in a forked child (`MADV_WIPEONFORK`) holds a number for the process. A guard
//! remembers the number of the process that made it. A child that does work of its own gets a number of its own. Its
//! own objects then work, and the inherited ones do not.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static PAGE: OnceLock<&'static AtomicU32> = OnceLock::new();
/// A fork does not clear this counter, so a child's number differs from those of all its ancestors.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Tells whether the process that made the guard has forked and this is the child.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    word: &'static AtomicU32,
    born: u32,
}

impl ForkGuard {
    /// Makes a guard of this process.
    pub fn new() -> io::Result<ForkGuard> {
        let word = match PAGE.get() {
            Some(word) => word,
            None => {
                let fresh = make_page()?;
                // A second thread's page is left alone: 4 KiB, once.
                PAGE.get_or_init(|| fresh)
            }
        };
        let mut born = word.load(Ordering::Relaxed);
        if born == 0 {
            let mine = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
            born = match word.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => mine,
                Err(theirs) => theirs,
            };
        }
        Ok(ForkGuard { word, born })
    }

    /// Says whether this process is a child of the process that made the guard. Cost: one load.
    #[inline]
    pub fn is_child(&self) -> bool {
        // Relaxed: the kernel clears the page before the child runs its first instruction.
        let child = self.word.load(Ordering::Relaxed) != self.born;
        if child {
            std::hint::cold_path();
        }
        child
    }
}

/// Registers functions that run at every `fork` of this process. `before` runs in the thread that forks, the latest
/// registration first. The others run after the fork, in the parent and in the child. The functions may not unwind.
///
/// # Errors
/// `OutOfMemory`.
pub fn at_fork(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: three functions that are always there and take nothing.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn make_page() -> io::Result<&'static AtomicU32> {
    let page = wiped_page()?;
    // SAFETY: zero-filled and mapped for ever, so the word in it is valid; only this module uses it.
    Ok(unsafe { page.cast::<AtomicU32>().as_ref() })
}

/// Maps a page of private memory that a forked child finds full of zeros, whatever its contents here. The page is never
/// unmapped.
///
/// # Errors
/// If the kernel has no memory, or lacks the feature (Linux before 4.14).
pub fn wiped_page() -> io::Result<NonNull<u8>> {
    let page = crate::page_size();
    // SAFETY: a new private mapping at an address the kernel picks.
    unsafe {
        let raw = rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            page,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?;
        if let Err(error) = rustix::mm::madvise(raw, page, Advice::LinuxWipeOnFork) {
            rustix::mm::munmap(raw, page)?;
            return Err(error.into());
        }
        Ok(NonNull::new_unchecked(raw.cast()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_told_from_its_parent_down_to_the_third_generation() {
        let guard = ForkGuard::new().expect("guard");
        assert!(!guard.is_child());
        let status = crate::process::tests::in_child(|| {
            let inherited = guard.is_child();
            let own = ForkGuard::new().expect("guard");
            let status = crate::process::tests::in_child(|| {
                let third = ForkGuard::new().expect("guard");
                i32::from(!(guard.is_child() && own.is_child() && !third.is_child()))
            });
            i32::from(!(inherited && guard.is_child() && !own.is_child() && status == 0))
        });
        assert_eq!(status, 0);
        assert!(!guard.is_child());
    }
}
