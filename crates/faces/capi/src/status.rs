//! Results of calls.

use crate::given::there;
use crate::open::{closed_at, opened};
use facade::ErrorKind;
use std::any::Any;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// 0, or the number of a kind of error.
pub type Status = i32;

/// An error: its kind and its text.
#[derive(Debug)]
pub struct Error {
    error: facade::Error,
    text: OnceLock<CString>,
}

impl Drop for Error {
    fn drop(&mut self) {
        closed_at(self, "tranship_error_free");
    }
}

fn c_string(text: String) -> CString {
    // Text of a peer's may have a 0 in it.
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// Runs the work of a function of the C surface. A panic becomes an error, and never reaches C.
#[inline(always)]
pub(crate) fn border(
    error: Option<&mut Option<Box<Error>>>,
    work: impl FnOnce() -> Result<(), facade::Error>,
) -> Status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => {
            if let Some(error @ Some(_)) = error {
                *error = None;
            }
            0
        }
        Ok(Err(failed)) => tell(error, failed),
        Err(panic) => tell(error, panicked(&*panic)),
    }
}

/// Runs a call that makes a handle, which the caller keeps: NULL on failure.
pub(crate) fn making<T>(
    out: Option<&mut MaybeUninit<Option<Box<T>>>>,
    error: Option<&mut Option<Box<Error>>>,
    make: impl FnOnce() -> Result<T, facade::Error>,
) -> Status {
    border(error, || {
        let out = there(out, "out")?.write(None);
        *out = Some(opened(Box::new(make()?)));
        Ok(())
    })
}

/// Runs a call that cannot fail.
#[inline(always)]
pub(crate) fn quietly<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

#[cold]
fn tell(to: Option<&mut Option<Box<Error>>>, error: facade::Error) -> Status {
    let status = Status::from(error.kind().number());
    if let Some(to) = to {
        let text = OnceLock::new();
        *to = Some(opened(Box::new(Error { error, text })));
    }
    status
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> facade::Error {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it said nothing");
    facade::Error::new(ErrorKind::Internal, format!("the library panicked: {said}"))
}

/// Returns the kind of an error; of NULL, `TRANSHIP_OK`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_error_status(error: Option<&Error>) -> Status {
    error.map_or(0, |e| Status::from(e.error.kind().number()))
}

/// Returns the text of an error: what is wrong, with figures, and what would be right. It is one line in English,
/// without a line end, valid as long as the error. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_error_message(error: Option<&Error>) -> *const c_char {
    let Some(error) = error else {
        return c"no error".as_ptr();
    };
    let text = || c_string(error.error.to_string());
    quietly(c"".as_ptr(), || error.text.get_or_init(text).as_ptr())
}

/// Returns a number of errno(3): the kernel's own if that is the cause, else the nearest to the kind (`EAGAIN`,
/// `EPIPE`, ...). Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_error_errno(error: Option<&Error>) -> i32 {
    error.map_or(0, |e| e.error.errno())
}

/// Frees an error. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_error_free(error: Option<Box<Error>>) {
    quietly((), || drop(error));
}

struct Words {
    status: Status,
    meaning: CString,
    advice: CString,
}

fn words(status: Status) -> Option<&'static Words> {
    static ALL: OnceLock<Vec<Words>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let words = |kind: &ErrorKind| Words {
            status: kind.number().into(),
            meaning: c_string(kind.meaning().into()),
            advice: c_string(kind.advice().into()),
        };
        ErrorKind::ALL.iter().map(words).collect()
    });
    let at = all.binary_search_by_key(&status, |words| words.status);
    at.ok().and_then(|at| all.get(at))
}

fn said(status: Status, of: impl Fn(&'static Words) -> &'static CStr) -> *const c_char {
    let otherwise = c"no status of this version";
    let text = match status {
        0 => c"success",
        _ => quietly(None, || words(status).map(of)).unwrap_or(otherwise),
    };
    text.as_ptr()
}

/// Returns the meaning of a status, as a fixed text. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_strerror(status: Status) -> *const c_char {
    said(status, |words| &words.meaning)
}

/// Returns advice for a status, as a fixed text. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_advice(status: Status) -> *const c_char {
    said(status, |words| &words.advice)
}

/// Returns the library's version, as "0.1.0". Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
