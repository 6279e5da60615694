//! Buffers: [`CbufMut`] is exclusive and writable, [`Cbuf`] is frozen and may be shared. A `Cbuf` is sent to be shared, a `CbufMut` to
//! change its owner, and only a `CbufMut` can be written: the types make the wrong order impossible.

mod frozen;
mod tag;
mod writable;

pub use frozen::Cbuf;
pub(crate) use frozen::{Handle, Home};
pub(crate) use tag::Tag;
pub use writable::CbufMut;
