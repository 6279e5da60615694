//! The error type: a kind, and details beyond the kind.

use crate::ErrorKind;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The error of an operation that was not done.
///
/// [`kind`](Error::kind) is for programs. The text is for people: what is wrong, with its numbers. If a program may
/// need the numbers too, a type of their own holds them. [`find`](Error::find) finds that type, a peer's answer, and
/// the kernel's error. Two errors are equal if their kinds are.
///
/// ```
/// # use tranship_error as tranship;
/// use std::io;
/// use tranship::{Error, ErrorKind};
///
/// let refused = std::fs::File::open("/nowhere/at/all").unwrap_err();
/// let error = Error::because(ErrorKind::System, "opening the configuration", refused);
/// assert_eq!((error.kind(), error.errno()), (ErrorKind::System, 2));
/// assert_eq!(error.find::<io::Error>().unwrap().kind(), io::ErrorKind::NotFound);
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    /// `None` if the kind says everything, so that a refusal on a fast path allocates nothing.
    detail: Option<Arc<Detail>>,
}

struct Detail {
    text: Cow<'static, str>,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

const _: () = assert!(size_of::<Error>() == 16 && size_of::<Result<(), Error>>() == 16);

/// An error of one module, with its figures in fields.
pub trait Cause: StdError + Send + Sync + 'static {
    /// Returns the error's kind.
    fn kind(&self) -> ErrorKind;
}

impl Error {
    /// Makes an error from a kind and a text that says what is wrong.
    pub fn new(kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
        let (text, cause) = (text.into(), None);
        Error::with(kind, Detail { text, cause })
    }

    /// Makes an error from a kind, a text that says what is wrong, and a cause.
    pub fn because(
        kind: ErrorKind,
        text: impl Into<Cow<'static, str>>,
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        let (text, cause) = (text.into(), Some(cause.into()));
        Error::with(kind, Detail { text, cause })
    }

    /// Wraps this error in another of the same kind, whose text says what was being done.
    #[must_use]
    pub fn context(self, text: impl Into<Cow<'static, str>>) -> Error {
        Error::because(self.kind, text, self)
    }

    fn with(kind: ErrorKind, detail: Detail) -> Error {
        let detail = Some(Arc::new(detail));
        Error { kind, detail }
    }

    /// Returns the error's kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the errno: the kernel's if the kernel caused the error, otherwise the number nearest to the kind.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let said = self.find::<io::Error>().and_then(io::Error::raw_os_error);
        said.unwrap_or(self.kind.errno())
    }

    /// Returns the first cause of this type, with its figures.
    #[must_use]
    pub fn find<C: StdError + 'static>(&self) -> Option<&C> {
        std::iter::successors(self.source(), |cause| (*cause).source())
            .find_map(|cause| cause.downcast_ref())
    }
}

/// Makes a function for `map_err`: the error of a refused system call.
pub fn system(what: impl Into<Cow<'static, str>>) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::because(ErrorKind::System, what, cause)
}

/// Makes a function for `map_err`: an error of this kind, with another as its cause.
pub fn of_kind<E: Into<Box<dyn StdError + Send + Sync>>>(
    kind: ErrorKind,
) -> impl FnOnce(E) -> Error {
    move |cause| Error::because(kind, kind.meaning(), cause)
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error { kind, detail: None }
    }
}

impl<C: Cause> From<C> for Error {
    fn from(cause: C) -> Error {
        Error::because(cause.kind(), "", cause)
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Error {}

impl PartialEq<ErrorKind> for Error {
    fn eq(&self, kind: &ErrorKind) -> bool {
        self.kind == *kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_deref() {
            None => f.write_str(self.kind.meaning()),
            Some(Detail { text, cause: None }) => f.write_str(text),
            Some(Detail {
                text,
                cause: Some(cause),
            }) if text.is_empty() => cause.fmt(f),
            Some(Detail {
                text,
                cause: Some(cause),
            }) => write!(f, "{text}: {cause}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let cause = self.detail.as_deref()?.cause.as_deref()?;
        Some(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Short {
        bytes: u64,
    }

    impl fmt::Display for Short {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} bytes are missing", self.bytes)
        }
    }

    impl StdError for Short {}

    impl Cause for Short {
        fn kind(&self) -> ErrorKind {
            ErrorKind::OutOfMemory
        }
    }

    #[test]
    fn figures_are_said_once_and_found_below_any_context() {
        let error = Error::from(Short { bytes: 7 })
            .context("making a pool")
            .context("joining");
        assert_eq!(
            error.to_string(),
            "joining: making a pool: 7 bytes are missing"
        );
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.find::<Short>().map(|short| short.bytes), Some(7));
        assert!(error.find::<io::Error>().is_none());
        assert_eq!(error, error.clone());
    }

    #[test]
    fn the_kernels_number_is_its_own_if_it_spoke() {
        let refused = io::Error::from_raw_os_error(libc::EMFILE);
        let error = system("dup")(refused).context("showing a chunk");
        assert_eq!(error.kind(), ErrorKind::System);
        assert_eq!(error.errno(), libc::EMFILE);
        assert!(error.to_string().starts_with("showing a chunk: dup: "));
        let full = Error::from(ErrorKind::Full);
        assert_eq!(full.errno(), libc::EAGAIN);
        assert_eq!(full.to_string(), ErrorKind::Full.meaning());
    }
}
