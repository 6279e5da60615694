//! Slots that a pool hands out, before they are buffers.

use super::tag::Tag;
use std::ptr::NonNull;
use tranship_zone::CachePlace;

/// Memory of one of an own pool's slots that no handle has yet, one of whose references it is. The words are plain,
/// because the caller makes a handle of it: exactly one, or the slot is never free again.
#[must_use]
pub(crate) struct RawBuf {
    /// The slot's memory, in the pool's own mapping.
    pub(crate) ptr: NonNull<u8>,
    /// Usable bytes.
    pub(crate) len: usize,
    /// Where the thread's cache of its class is, so that freeing it needs no look-up of that. With another place freeing takes longer.
    pub(crate) place: CachePlace,
    /// Without `Tag::LONG` its class is one of the pool's.
    pub(crate) tag: Tag,
}
