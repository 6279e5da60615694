//! Buffers: [`BufferMut`] is exclusive and writable, [`Buffer`] is frozen and may be shared. A `Buffer` is sent to be shared, a `BufferMut` to
//! change its owner, and only a `BufferMut` can be written: the types make the wrong order impossible.

mod alloc;
mod frozen;
mod handle;
mod reference;
mod thaw;
mod writable;

pub(crate) use crate::pool::Tag;
pub use frozen::Buffer;
pub(crate) use handle::{Handle, Home};
pub use reference::Reference;
pub use writable::BufferMut;
