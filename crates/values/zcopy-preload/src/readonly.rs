//! Memory that never changes: memory that the program declares so, and the constants of its file.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tranship_sys::errno;

/// Most ranges that a program may name; for more it is told that there is no room.
const MOST: usize = 1024;
/// First address and end of each. An end is written last: a thread that sees it sees the address.
static RANGES: [[AtomicUsize; 2]; MOST] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Says that memory never changes again, and is not freed, as long as the process lives (ZCopy, section 3.2.2): it is
/// sent by reference, wherever it lies. 0, or -1 and `ENOMEM`: more than 1024 times.
///
/// # Safety
/// It is mapped memory, and that is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zc_readonly(at: *const c_void, len: usize) -> c_int {
    let Some(end) = at.addr().checked_add(len).filter(|_| len > 0) else {
        return 0;
    };
    // Relaxed: only the number must be one's own.
    let mine = TAKEN.fetch_add(1, Ordering::Relaxed);
    let Some([first, last]) = RANGES.get(mine) else {
        // Relaxed: as above.
        TAKEN.fetch_sub(1, Ordering::Relaxed);
        errno::set(errno::NO_MEMORY);
        return -1;
    };
    first.store(at.addr(), Ordering::Relaxed);
    // Ordering: release, partner of the acquire in `is_readonly`.
    last.store(end, Ordering::Release);
    0
}

/// Returns whether all of it never changes.
pub(crate) fn is_readonly(at: *const u8, len: usize) -> bool {
    let Some(end) = at.addr().checked_add(len) else {
        return false;
    };
    let within = |first: usize, last: usize| first <= at.addr() && end <= last;
    if constants().iter().any(|&(first, last)| within(first, last)) {
        return true;
    }
    // Relaxed: a range that is being named is not known yet.
    let taken = TAKEN.load(Ordering::Relaxed).min(MOST);
    RANGES[..taken].iter().any(|[first, last]| {
        // Ordering: acquire, see `zc_readonly`.
        let last = last.load(Ordering::Acquire);
        within(first.load(Ordering::Relaxed), last)
    })
}

/// Returns the read-only segments of the program's own file, which stay where they are; those of libraries may go.
fn constants() -> &'static [(usize, usize)] {
    static FOUND: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found = Vec::new();
        // SAFETY: the list lives until the call returns, and `note` is given nothing else.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
        found
    })
}

/// # Safety
/// As dl_iterate_phdr(3) calls it; `found` is a `Vec` of ranges.
unsafe extern "C" fn note(
    about: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises it.
    let (about, found) = unsafe { (&*about, &mut *found.cast::<Vec<(usize, usize)>>()) };
    // SAFETY: the list has this many headers.
    let headers =
        unsafe { std::slice::from_raw_parts(about.dlpi_phdr, usize::from(about.dlpi_phnum)) };
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
            let address = |number: u64| usize::try_from(number).expect("64 bit");
            let first = address(about.dlpi_addr + header.p_vaddr);
            // Bytes of the file: those behind them on the last page belong to no file.
            found.push((first, first + address(header.p_filesz)));
        }
    }
    // The program comes first; the search stops after it.
    1
}
