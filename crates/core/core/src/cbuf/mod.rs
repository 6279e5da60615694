//! Buffers: [`CbufMut`] is exclusive and writable, [`Cbuf`] is frozen and may be shared. A `Cbuf` is sent to be shared, a `CbufMut` to
//! change its owner, and only a `CbufMut` can be written: the types make the wrong order impossible.

mod alloc;
mod frozen;
mod handle;
mod reference;
mod thaw;
mod writable;

pub(crate) use crate::pool::Tag;
pub use frozen::Cbuf;
pub(crate) use handle::{Handle, Home};
pub(crate) use reference::Reference;
pub use writable::CbufMut;
