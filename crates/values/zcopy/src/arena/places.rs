//! Places of pageblocks: taken for values, and given back once they are empty.

use super::block::{Block, Kind, State};
use super::inner::{Inner, Room, Warm, lock};
use crate::error::Error;

/// Number of blocks that are kept with their pages: 4 MiB of them at the default size.
const WARM: u32 = 64;
impl Inner {
    /// Takes places for `blocks` pageblocks of which `bytes` will be touched.
    pub(super) fn take_blocks(
        &self,
        blocks: u32,
        bytes: u64,
        asked: usize,
    ) -> Result<Taken, Error> {
        let mut room = self.room_after_children();
        let used = room.used;
        let full = Error::OutOfMemory {
            asked,
            used,
            max: self.max,
        };
        let refused = Error::NotAdmitted { asked, used };
        if used.saturating_add(bytes) > self.max {
            return Err(full);
        }
        if let Some(at) = room.warm.iter().rposition(|run| run.blocks == blocks) {
            let warm = room.warm[at];
            if !self.charge(bytes.saturating_sub(warm.bytes)) {
                return Err(refused);
            }
            room.warm.swap_remove(at);
            let bytes = bytes.max(warm.bytes);
            room.used += bytes;
            drop(room);
            let first = self.make_shared(warm.first, blocks, bytes)?;
            let used = usize::try_from(warm.bytes).unwrap_or(usize::MAX);
            return Ok(Taken { first, bytes, used });
        }
        if !self.charge(bytes) {
            return Err(refused);
        }
        let Some(first) = room.runs.take(blocks) else {
            self.discharge(bytes);
            return Err(full);
        };
        if let Err(error) = self.open(&mut room, first, blocks) {
            room.runs.give(first, blocks);
            self.discharge(bytes);
            return Err(error.into());
        }
        room.used += bytes;
        drop(room);
        let first = self.make_shared(first, blocks, bytes)?;
        // Free places have no pages: holes were punched.
        let used = 0;
        Ok(Taken { first, bytes, used })
    }

    /// Makes a place shared again: a fork may have parted places that were free.
    fn make_shared(&self, first: u32, blocks: u32, bytes: u64) -> Result<u32, Error> {
        let parted = |block| self.states.get(block) != State::Shared;
        if (first..first + blocks).any(parted) {
            // SAFETY: just taken, and nobody uses it yet.
            let renewed = unsafe { self.renew(first, blocks) };
            renewed.inspect_err(|_| self.give(&mut lock(&self.room), first, blocks, bytes))?;
        }
        Ok(first)
    }

    /// Gives empty pageblocks back: their pages, and then their place.
    ///
    /// # Safety
    /// No value is in them, and their tables say so.
    pub(super) unsafe fn recycle(&self, first: u32, blocks: u32, bytes: u64) {
        self.states.set_kind(first, Kind::Free);
        self.states.unused(first);
        for tail in 1..blocks {
            self.states.unused(first + tail);
            *self.block(first + tail) = Block::Free;
        }
        let mut room = lock(&self.room);
        if room.keep_for_children(first, blocks, bytes) {
            return;
        }
        let has_room = |room: &Room| {
            let kept: u32 = room.warm.iter().map(|run| run.blocks).sum();
            kept + blocks <= WARM
        };
        let wanted = has_room(&room) && !self.is_pressed();
        drop(room);
        // SAFETY: passed on.
        if wanted && unsafe { self.thaw(first, blocks) } {
            room = lock(&self.room);
            if has_room(&room) {
                room.warm.push(Warm {
                    first,
                    blocks,
                    bytes,
                });
                room.used -= bytes;
                return;
            }
            drop(room);
        }
        // If the kernel refuses, the place stays as it is until it is taken again. SAFETY: passed on.
        let _ = unsafe { self.renew(first, blocks) };
        room = lock(&self.room);
        self.give(&mut room, first, blocks, bytes);
    }
}

/// Runs for a value.
pub(super) struct Taken {
    pub(super) first: u32,
    /// Bytes of them that may have memory: where pages were there already, more than asked for.
    pub(super) bytes: u64,
    /// Number of bytes from its start that may have been used before. All others are zeros.
    pub(super) used: usize,
}
