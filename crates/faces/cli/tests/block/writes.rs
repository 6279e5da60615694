//! Writes that show, on the disk that they leave, whether flushed data is there and every block is of one write.

use crate::nbd::{Client, WRITE};
use std::collections::HashMap;
use std::io;
use tranship_testkit::Random;

const BLOCK: usize = 4096;
/// A round of writes: so many at once, each in its own part of the disk.
pub const AT_ONCE: u64 = 8;
const PART_BLOCKS: u64 = 32;
pub const SIZE: u64 = AT_ONCE * PART_BLOCKS * BLOCK as u64;

/// Returns the place of a write: its first block, and the number of blocks. It is the same for every caller.
fn place(write: u64) -> (u64, u64) {
    let mut random = Random::seeded(write.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let blocks = 1 + random.below(12);
    let first = random.below(PART_BLOCKS - blocks + 1);
    ((write % AT_ONCE) * PART_BLOCKS + first, blocks)
}

/// A block as a write leaves it: it says which write it was, and every byte belongs to it.
fn content(write: u64, block: u64) -> Vec<u8> {
    let mut random = Random::seeded(write << 20 | block);
    let mut bytes = (write + 1).to_le_bytes().to_vec();
    bytes.extend((1..BLOCK / 8).flat_map(|_| random.next().to_le_bytes()));
    bytes
}

/// Writes a round, of which this is the first write. Returns whether no write failed.
pub fn write_round(client: &mut Client, first: u64) -> io::Result<bool> {
    for write in first..first + AT_ONCE {
        let (first, blocks) = place(write);
        let bytes: Vec<u8> = (first..first + blocks)
            .flat_map(|b| content(write, b))
            .collect();
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        client.send(WRITE, 0, first * BLOCK as u64, len, &bytes)?;
    }
    let mut whole = true;
    for _ in 0..AT_ONCE {
        whole &= client.reply()?.0 == 0;
    }
    Ok(whole)
}

/// Checks that every block is of one write that was begun, whole, and no older than the last that was flushed.
/// `flushed` has the first write of each round that is flushed.
pub fn check(flushed: impl Iterator<Item = u64>, begun: u64, bytes: &[u8]) -> Result<(), String> {
    let mut last = HashMap::new();
    for write in flushed.flat_map(|first| first..first + AT_ONCE) {
        let (first, blocks) = place(write);
        last.extend((first..first + blocks).map(|block| (block, write)));
    }
    for (block, bytes) in (0..).zip(bytes.chunks(BLOCK)) {
        let oldest = last.get(&block).copied();
        let found = bytes
            .first_chunk()
            .map_or(0, |says| u64::from_le_bytes(*says));
        let Some(write) = found.checked_sub(1) else {
            if oldest.is_some() || bytes.iter().any(|byte| *byte != 0) {
                return Err(format!(
                    "block {block} is empty, write {oldest:?} was flushed"
                ));
            }
            continue;
        };
        let (first, blocks) = place(write);
        let right = write < begun
            && (first..first + blocks).contains(&block)
            && oldest <= Some(write)
            && bytes == content(write, block);
        if !right {
            return Err(format!(
                "block {block} says write {write}, {oldest:?} was flushed"
            ));
        }
    }
    Ok(())
}
