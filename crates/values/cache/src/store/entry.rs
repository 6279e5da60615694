//! Record of a key.

use smallvec::SmallVec;
use tranship_zcopy::Value;

/// Bytes that an item takes beside key and value, about.
pub(super) const OVERHEAD: u64 = 112;

/// Most keys lie beside their record: a key in another place is another cache miss.
pub(super) type Key = SmallVec<[u8; 40]>;

/// Record of a key: two cache lines that are fetched together.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) hash: u64,
    pub(super) value: Value,
    pub(super) cas: u64,
    pub(super) flags: u32,
    /// Time when it expires; 0: never.
    pub(super) expires: u32,
    /// Time when it was last read, or stored.
    pub(super) read: u32,
    pub(super) fetched: bool,
    pub(super) stale: bool,
    pub(super) won: bool,
    pub(super) links: Links,
}

impl Entry {
    pub(super) fn new(
        key: &[u8],
        hash: u64,
        value: Value,
        flags: u32,
        expires: u32,
        cas: u64,
        now: u32,
    ) -> Entry {
        Entry {
            key: key.into(),
            hash,
            value,
            cas,
            flags,
            expires,
            read: now,
            fetched: false,
            stale: false,
            won: false,
            links: Links::default(),
        }
    }

    /// Returns the bytes that it counts for.
    pub(super) fn cost(&self) -> u64 {
        (self.key.len() + self.value.len()) as u64 + OVERHEAD
    }

    pub(super) fn is_over(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }
}

pub(super) const NONE: u32 = u32::MAX;

/// An entry's place in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) newer: u32,
    pub(super) older: u32,
    pub(super) protected: bool,
    /// Time when it came there, seconds of the store's clock.
    pub(super) since: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links {
            newer: NONE,
            older: NONE,
            protected: false,
            since: 0,
        }
    }
}
