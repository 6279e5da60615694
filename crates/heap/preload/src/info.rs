//! Programs' questions about the heap, and requests to it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write as _;
use tranship_sys::errno;

/// malloc_trim(3): gives back all free memory, whatever the caller asks to keep. Returns 1 if it did so.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_keep_bytes: usize) -> c_int {
    heap::trim();
    1
}

/// mallopt(3): there is nothing to set. Returns 0: it was not set.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(_option: c_int, _value: c_int) -> c_int {
    0
}

/// `struct mallinfo2`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Mallinfo2 {
    /// Bytes of pages for small and middle blocks.
    pub arena: usize,
    /// Free chunks: not counted.
    pub ordblks: usize,
    /// Unused.
    pub smblks: usize,
    /// Mappings of large blocks.
    pub hblks: usize,
    /// Their bytes.
    pub hblkhd: usize,
    /// Unused.
    pub usmblks: usize,
    /// Unused.
    pub fsmblks: usize,
    /// Bytes in use, caches included.
    pub uordblks: usize,
    /// Bytes of free pages with memory.
    pub fordblks: usize,
    /// The least number of bytes that malloc_trim would give back.
    pub keepcost: usize,
}

/// `struct mallinfo`, whose numbers wrap around.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Mallinfo([c_int; 10]);

/// mallinfo2(3).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    let stats = heap::stats();
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Mallinfo2 {
        arena: size(stats.used_bytes + stats.spare_bytes),
        hblks: stats.mappings,
        hblkhd: size(stats.mapped_bytes),
        uordblks: size(stats.used_bytes),
        fordblks: size(stats.spare_bytes),
        keepcost: size(stats.spare_bytes),
        ..Mallinfo2::default()
    }
}

/// mallinfo(3).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let m = mallinfo2();
    let all = [
        m.arena, m.ordblks, m.smblks, m.hblks, m.hblkhd, m.usmblks, m.fsmblks, m.uordblks,
        m.fordblks, m.keepcost,
    ];
    #[allow(clippy::cast_possible_truncation, reason = "as the manual page says")]
    Mallinfo(all.map(|value| value as c_int))
}

/// malloc_stats(3): a line on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let m = mallinfo2();
    // An error is not reported, as in the manual page.
    let _ = writeln!(
        std::io::stderr(),
        "tranship heap: {} bytes in use, {} bytes free with memory, {} bytes in {} mappings",
        m.uordblks,
        m.fordblks,
        m.hblkhd,
        m.hblks
    );
}

/// malloc_info(3): as XML.
///
/// # Safety
/// `stream` is a stream of the C library's that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    unsafe extern "C" {
        fn fputs(text: *const c_char, stream: *mut c_void) -> c_int;
    }
    if options != 0 {
        errno::set(errno::INVALID);
        return -1;
    }
    let m = mallinfo2();
    let text = format!(
        "<malloc version=\"tranship\">\n<total type=\"rest\" size=\"{}\"/>\n<total type=\"mmap\" count=\"{}\" size=\"{}\"/>\n\
         <system type=\"current\" size=\"{}\"/>\n</malloc>\n",
        m.fordblks,
        m.hblks,
        m.hblkhd,
        m.arena + m.hblkhd
    );
    let Ok(text) = CString::new(text) else {
        return -1;
    };
    // SAFETY: a string that ends in 0; the caller's promise about the stream.
    unsafe { fputs(text.as_ptr(), stream) }.min(0)
}
