//! Results of methods: how the service sends them, and how the caller gets them.

use crate::pass::{Packed, Parcel, Pass};
use std::fmt;
use tranship_core::{self as core, Error, ErrorKind};
use tranship_service::{CallError, Request};

/// Runs an expression on a parcel's payload, whichever type the payload has.
macro_rules! with {
    ($packed:expr, |$payload:ident| $then:expr) => {
        match $packed {
            Packed::Inline(bytes) => {
                let $payload = &*bytes;
                $then
            }
            Packed::Buffer($payload) => $then,
            Packed::Aggregate($payload) => $then,
        }
    };
}
pub(crate) use with;

/// Error that the caller of a method gets, where the method returns `Result<_, E>`.
#[derive(Debug)]
pub enum Fault<E> {
    /// The method's own error.
    Own(E),
    /// The call failed, and the method gave no answer. The text is that of a [`CallError`].
    Broken(Error),
}

impl<E: fmt::Debug> fmt::Display for Fault<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Own(own) => write!(f, "the service failed: {own:?}"),
            Fault::Broken(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for Fault<E> {}

impl<E> From<Error> for Fault<E> {
    fn from(error: Error) -> Fault<E> {
        Fault::Broken(error)
    }
}

/// An answer as it arrived: the method's result, or the method's own error.
#[doc(hidden)]
pub type Came = Result<Result<core::Message, core::Message>, Error>;

/// Result of a method: something that can be [passed](Pass), or a `Result` of two.
pub trait Answer: Sized {
    /// The caller's result.
    type Got;

    #[doc(hidden)]
    fn describe(place: &str, text: &mut String);

    #[doc(hidden)]
    fn answer(self, request: Request) -> Result<(), Error>;

    #[doc(hidden)]
    fn got(came: Came) -> Self::Got;
}

impl<R: Pass> Answer for R {
    type Got = Result<R, Error>;

    fn describe(place: &str, text: &mut String) {
        R::describe(place, text);
    }

    fn answer(self, request: Request) -> Result<(), Error> {
        reply(self, request, true)
    }

    fn got(came: Came) -> Result<R, Error> {
        match came? {
            Ok(message) => read(message),
            Err(_) => {
                let text = "the service answered with an error, and the method has none";
                Err(Error::new(ErrorKind::PeerViolation, text))
            }
        }
    }
}

impl<R: Pass, E: Pass> Answer for Result<R, E> {
    type Got = Result<R, Fault<E>>;

    fn describe(place: &str, text: &mut String) {
        R::describe(place, text);
        E::describe(&format!("{place} error"), text);
    }

    fn answer(self, request: Request) -> Result<(), Error> {
        match self {
            Ok(result) => reply(result, request, true),
            Err(error) => reply(error, request, false),
        }
    }

    fn got(came: Came) -> Result<R, Fault<E>> {
        match came? {
            Ok(message) => Ok(read(message)?),
            Err(message) => Err(Fault::Own(read(message)?)),
        }
    }
}

fn reply<P: Pass>(what: P, request: Request, is_result: bool) -> Result<(), Error> {
    let mut parcel = Parcel::new();
    what.put(&mut parcel)?;
    let packed = parcel.pack(|len| request.alloc(len))?;
    with!(packed, |payload| match is_result {
        true => request.reply(payload).map_err(|failed| failed.error),
        false => request.fail(payload).map_err(|failed| failed.error),
    })
}

pub(crate) fn read<P: Pass>(message: core::Message) -> Result<P, Error> {
    let mut parcel = Parcel::unpack(message.body, P::BUFFERS, P::BYTES)?;
    let value = P::take(&mut parcel)?;
    parcel.end()?;
    Ok(value)
}

pub(crate) fn came<T>(answered: Result<core::Message, CallError<T>>) -> Came {
    match answered {
        Ok(message) => Ok(Ok(message)),
        Err(CallError::Failed(message)) => Ok(Err(message)),
        Err(failed) => Err(failed.into()),
    }
}
