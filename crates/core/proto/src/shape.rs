//! The numbers of a pool, and their limits. A program, the protocol and the manager use these alone.

use crate::{SLOT_LIMIT, Trust};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use tranship_error::{Cause, ErrorKind};

/// The largest pool, bytes: fewer than 2^32 pages of 4 KiB, also rounded up to the largest chunk.
pub const MAX_POOL_BYTES: u64 = (1 << 44) - MAX_CHUNK_BYTES;
/// The smallest chunk, bytes.
pub const MIN_CHUNK_BYTES: u64 = 64 << 10;
/// The largest chunk, bytes.
pub const MAX_CHUNK_BYTES: u64 = 64 << 20;
/// Most chunks of a pool: each costs the manager a record for each reader.
pub const MAX_CHUNKS: u64 = 1 << 20;

/// A number that is outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}; {min} to {max} are allowed")]
pub struct OutOfRange {
    /// The argument's name.
    pub what: &'static str,
    /// The given value.
    pub value: u64,
    /// Smallest allowed.
    pub min: u64,
    /// Largest allowed.
    pub max: u64,
}

/// Checks that a value is in a range, and good in another way.
pub fn check_range(
    what: &'static str,
    value: u64,
    is_good: bool,
    range: RangeInclusive<u64>,
) -> Result<(), OutOfRange> {
    let (min, max) = (*range.start(), *range.end());
    match is_good && range.contains(&value) {
        true => Ok(()),
        false => Err(OutOfRange {
            what,
            value,
            min,
            max,
        }),
    }
}

impl Cause for OutOfRange {
    fn kind(&self) -> ErrorKind {
        ErrorKind::BadArgument
    }
}

/// The numbers that a pool is made with. They never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct PoolShape {
    /// The pool's largest size, bytes: a multiple of the chunk size.
    pub max_bytes: u64,
    /// Most buffers at a time.
    pub slots: u32,
    /// The unit in which memory is granted and given back, bytes: a power of two.
    pub chunk_bytes: u64,
    /// The processes that can write the pool.
    pub trust: Trust,
}

impl PoolShape {
    /// Checks that such a pool can be.
    pub fn check(self) -> Result<(), OutOfRange> {
        let (max, chunk) = (self.max_bytes, self.chunk_bytes);
        let sizes = MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES;
        let what = "the chunk size in bytes (a power of two)";
        check_range(what, chunk, chunk.is_power_of_two(), sizes)?;
        let most = MAX_POOL_BYTES.min(chunk * MAX_CHUNKS);
        let what = "the pool's maximum in bytes (whole chunks, at most 1048576)";
        check_range(what, max, max.is_multiple_of(chunk), 1..=most)?;
        check_range("slots", self.slots.into(), true, 1..=SLOT_LIMIT.into())
    }

    /// Returns the number of places for chunks. The shape was checked.
    pub fn windows(self) -> u32 {
        u32::try_from(self.max_bytes / self.chunk_bytes).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: PoolShape = PoolShape {
        max_bytes: 4 * MIN_CHUNK_BYTES,
        slots: 1,
        chunk_bytes: MIN_CHUNK_BYTES,
        trust: Trust::Producer,
    };

    fn sized(max_bytes: u64, chunk_bytes: u64) -> PoolShape {
        PoolShape {
            max_bytes,
            chunk_bytes,
            ..GOOD
        }
    }

    #[test]
    fn every_number_has_its_limits() {
        let largest = sized(MAX_POOL_BYTES, MAX_CHUNK_BYTES);
        let most_chunks = sized(MAX_CHUNKS * MIN_CHUNK_BYTES, MIN_CHUNK_BYTES);
        let most_slots = PoolShape {
            slots: SLOT_LIMIT,
            ..GOOD
        };
        for shape in [GOOD, largest, most_chunks, most_slots] {
            assert_eq!(shape.check(), Ok(()), "{shape:?}");
        }
        let no_slots = PoolShape { slots: 0, ..GOOD };
        let many_slots = PoolShape {
            slots: SLOT_LIMIT + 1,
            ..GOOD
        };
        let wrong = [
            no_slots,
            many_slots,
            sized(0, MIN_CHUNK_BYTES),
            sized(MIN_CHUNK_BYTES + 1, MIN_CHUNK_BYTES),
            sized(MAX_POOL_BYTES + MAX_CHUNK_BYTES, MAX_CHUNK_BYTES),
            sized((MAX_CHUNKS + 1) * MIN_CHUNK_BYTES, MIN_CHUNK_BYTES),
            sized(MIN_CHUNK_BYTES, MIN_CHUNK_BYTES / 2),
            sized(4 * MAX_CHUNK_BYTES, 2 * MAX_CHUNK_BYTES),
            sized(3 * MIN_CHUNK_BYTES, 3 * MIN_CHUNK_BYTES),
            sized(0, 0),
        ];
        for shape in wrong {
            assert!(shape.check().is_err(), "{shape:?}");
        }
    }
}
