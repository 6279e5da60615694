//! The common error of all crates.
//!
//! * [`ErrorKind`]: the kinds of errors, under stable numbers, each with advice (`kind.rs` is the table).
//! * [`Error`]: a kind, a text with numbers that says what is wrong, and a cause.
//! * [`Cause`]: an error of one module, with its figures in fields; it knows its kind and becomes an [`Error`] by `?`.
//! * [`SendError`]: an error together with the value that was not sent.
//!
//! NOT here: the causes. Each crate has its own, beside what fails with them.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod error;
mod kind;
mod unsent;

pub use error::{Cause, Error, of_kind, system};
pub use kind::ErrorKind;
pub use unsent::SendError;
