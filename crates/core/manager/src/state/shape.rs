//! The numbers of a pool.

use super::refuse::refusal;
use super::types::Done;
use tranship_proto::{RefusalCode, SLOT_LIMIT, Trust};

const MAX_POOL_BYTES: u64 = 1 << 46;
const MAX_CHUNKS: u64 = 1 << 20;

/// The numbers that a pool is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub max_bytes: u64,
    pub slots: u32,
    pub chunk_bytes: u64,
    pub trust: Trust,
}

impl Shape {
    pub fn new(max_bytes: u64, slots: u32, chunk_bytes: u64, trust: Trust) -> Shape {
        Shape {
            max_bytes,
            slots,
            chunk_bytes,
            trust,
        }
    }

    pub fn check(self) -> Done {
        let bad = |asked, limit| Err(refusal(RefusalCode::BadArgument, asked, limit).into());
        if self.slots == 0 || self.slots > SLOT_LIMIT {
            return bad(u64::from(self.slots), u64::from(SLOT_LIMIT));
        }
        if !self.chunk_bytes.is_power_of_two() || !(4096..=1 << 40).contains(&self.chunk_bytes) {
            return bad(self.chunk_bytes, 1 << 40);
        }
        if self.max_bytes == 0
            || self.max_bytes > MAX_POOL_BYTES
            || self.max_bytes / self.chunk_bytes > MAX_CHUNKS
            || !self.max_bytes.is_multiple_of(self.chunk_bytes)
        {
            return bad(
                self.max_bytes,
                MAX_POOL_BYTES.min(self.chunk_bytes * MAX_CHUNKS),
            );
        }
        Ok(())
    }
}
