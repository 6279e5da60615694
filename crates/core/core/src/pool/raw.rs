//! Slots that a pool hands out, before they are buffers.

use super::tag::Tag;
use std::ptr::NonNull;
use tranship_zone::CachePlace;

/// A slot of an own pool with one counted reference, and without a handle yet. The words are plain, because the caller
/// makes a handle of them: exactly one, or the slot is never free again.
#[must_use]
pub(crate) struct RawBuf {
    /// The slot's memory, in the pool's own mapping.
    pub(crate) ptr: NonNull<u8>,
    /// Usable bytes.
    pub(crate) len: usize,
    /// Place of the thread's cache of its class, so that freeing needs no look-up. With another place freeing takes
    /// longer.
    pub(crate) place: CachePlace,
    /// Without `Tag::LONG` its class is one of the pool's.
    pub(crate) tag: Tag,
}
