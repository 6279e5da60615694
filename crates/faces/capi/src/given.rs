//! Arguments from C: pointers that should not be NULL, strings, arrays, times.

use facade::{Error, ErrorKind, View};
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

/// `struct iovec`.
#[repr(C)]
#[derive(Debug)]
pub struct Iovec {
    pub(crate) iov_base: *mut c_void,
    pub(crate) iov_len: usize,
}

#[cold]
pub(crate) fn wrong(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::BadArgument, text)
}

/// Returns an argument that must not be NULL.
#[inline(always)]
pub(crate) fn there<T>(given: Option<T>, what: &'static str) -> Result<T, Error> {
    #[cold]
    fn null(what: &'static str) -> Error {
        wrong(format!("{what} is NULL"))
    }
    given.ok_or_else(|| null(what))
}

/// A string. NULL: none.
pub(crate) fn text_if_any<'a>(
    given: *const c_char,
    what: &'static str,
) -> Result<Option<&'a str>, Error> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises: it ends with a 0, and stays as it is during the call.
    let text = unsafe { CStr::from_ptr(given) };
    let at =
        |e: std::str::Utf8Error| wrong(format!("{what} is no UTF-8 at byte {}", e.valid_up_to()));
    text.to_str().map(Some).map_err(at)
}

pub(crate) fn text<'a>(given: *const c_char, what: &'static str) -> Result<&'a str, Error> {
    there(text_if_any(given, what)?, what)
}

/// `len` bytes. NULL will do for none.
pub(crate) fn bytes<'a>(
    given: *const c_void,
    len: usize,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    if len == 0 {
        return Ok(&[]);
    }
    if given.is_null() || len > isize::MAX.unsigned_abs() {
        return Err(wrong(format!(
            "{what} is NULL, or {len} bytes are more than there can be"
        )));
    }
    // SAFETY: the caller promises that `len` bytes are there, and that nobody writes them during the call.
    Ok(unsafe { std::slice::from_raw_parts(given.cast(), len) })
}

/// `TRANSHIP_FOREVER`: the one time below 0 that is none which is over.
pub(crate) const FOREVER: i64 = -1;

/// A timeout. Less than 0 and not `FOREVER`: what is left until a moment that has passed, so nothing.
pub(crate) fn patience(timeout_ns: i64) -> Option<Duration> {
    match timeout_ns {
        FOREVER => None,
        ..=0 => Some(Duration::ZERO),
        _ => Some(nanoseconds(timeout_ns)),
    }
}

/// A timeout as a time, for operations of which the longest time is without end.
pub(crate) fn limit(timeout_ns: i64) -> Duration {
    patience(timeout_ns).unwrap_or(Duration::MAX)
}

/// Out of line: to make it of them takes divisions.
#[cold]
pub(crate) fn nanoseconds(timeout_ns: i64) -> Duration {
    Duration::from_nanos(timeout_ns.unsigned_abs())
}

/// As much of a text as there is room for, with a 0 at its end; how long it is, as `snprintf` says it.
pub(crate) fn copy_out(text: &[u8], to: *mut c_char, room: usize) -> usize {
    if !to.is_null() && room > 0 {
        let fits = text.len().min(room - 1);
        // SAFETY: the caller promises: there is that much room; the text is no part of it.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), fits);
            to.add(fits).write(0);
        }
    }
    text.len()
}

/// Copies bytes out of what lies one behind the other.
pub(crate) fn copy_out_bytes(
    views: &[View<'_>],
    at: usize,
    to: *mut c_void,
    len: usize,
) -> Result<(), Error> {
    let all: usize = views.iter().map(View::len).sum();
    if at.checked_add(len).is_none_or(|end| end > all) {
        return Err(wrong(format!("{len} bytes from {at} on, of {all}")));
    }
    if to.is_null() && len > 0 {
        return Err(wrong("to is NULL"));
    }
    let (mut skip, mut done) = (at, 0);
    for view in views {
        let from = skip.min(view.len());
        skip -= from;
        let part = (view.len() - from).min(len - done);
        let part = view.sub(from..from + part)?;
        // SAFETY: the caller promises: there is room for `len` bytes, of which `done` are used.
        unsafe { part.copy_to(to.cast::<u8>().add(done)) };
        done += part.len();
    }
    Ok(())
}
