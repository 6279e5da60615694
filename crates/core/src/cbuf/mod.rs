//! Buffers: [`CbufMut`] is writable and unique, [`Cbuf`] is frozen and may be shared. Only a frozen buffer can be
//! sent, and only a `CbufMut` can be written: the types make the wrong order impossible.

mod frozen;
mod tag;
mod writable;

pub use frozen::Cbuf;
pub(crate) use frozen::Home;
pub(crate) use tag::Tag;
pub use writable::CbufMut;
