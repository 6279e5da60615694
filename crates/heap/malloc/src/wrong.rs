//! The end of a program that gives back memory which it does not have.

use crate::inside::Inside;
use std::fmt;
use std::io::Write as _;
use std::ptr::NonNull;

/// Writes an address's error to standard error, and aborts. It allocates nothing from the heap and does not unwind,
/// because unwinding may allocate from this very heap.
#[cold]
#[inline(never)]
pub(crate) fn abort(address: NonNull<u8>, what: fmt::Arguments<'_>) -> ! {
    let _inside = Inside::enter();
    let mut line = [0; 200];
    let mut rest = &mut line[..];
    // Text beyond the buffer is cut off.
    let _ = writeln!(rest, "tranship: {address:p} {what}");
    let left = rest.len();
    let said = &line[..line.len() - left];
    // There is no other place for a report.
    let _ = std::io::stderr().write_all(said);
    std::process::abort()
}
