//! The end of a program that gives back what it does not have.

use crate::inside::Inside;
use std::fmt;
use std::io::Write as _;
use std::ptr::NonNull;

/// Says what is wrong with an address, on standard error, and aborts. It allocates nothing of the heap's and does not unwind: the heap
/// may be the one that whoever unwinds allocates from.
#[cold]
#[inline(never)]
pub(crate) fn abort(address: NonNull<u8>, what: fmt::Arguments<'_>) -> ! {
    let _inside = Inside::enter();
    let mut line = [0; 200];
    let mut rest = &mut line[..];
    // What does not fit is cut off.
    let _ = writeln!(rest, "tranship: {address:p} {what}");
    let left = rest.len();
    let said = &line[..line.len() - left];
    // There is nobody else to tell.
    let _ = std::io::stderr().write_all(said);
    std::process::abort()
}
