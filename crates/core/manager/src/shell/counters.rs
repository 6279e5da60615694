//! Reading clients' counters: copies out of the page cache, so that the manager has no mapping of a client's memory.
//! The objects are sealed and verified: their length cannot change.

use crate::state::{Figures, HeldSlot};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};
use tranship_ledger::{Queue, Reader, Slots, Source, Words, are_alive};
use zerocopy::IntoBytes;

const TABLE_AT: u64 = 4096;
const REFS_AT: u64 = 128;
const COUNTS_AT: u64 = 64;
const FIGURES_AT: u64 = 128;

fn words(file: &File, at: u64, slots: &Range<u32>) -> io::Result<Vec<u32>> {
    let mut words = vec![0u32; slots.len()];
    file.read_exact_at(words.as_mut_bytes(), at + 4 * u64::from(slots.start))?;
    Ok(words)
}

/// Reads each slot's buffer: its offset and length.
fn slots(table: &File, slots: &Range<u32>) -> io::Result<Vec<(u64, u64)>> {
    let mut entries = vec![[0u64; 4]; slots.len()];
    table.read_exact_at(
        entries.as_mut_bytes(),
        TABLE_AT + 32 * u64::from(slots.start),
    )?;
    let places = entries
        .iter()
        .map(|[_, offset, length, _]| (*offset, *length));
    Ok(places.collect())
}

/// The counters of a pool whose writer is gone.
pub(super) struct Orphan<'a> {
    pub slots: Range<u32>,
    pub chunk_bytes: u64,
    pub windows: u32,
    pub table: Option<&'a File>,
    pub refs: Vec<&'a File>,
    /// (`sent`, `rcvd`).
    pub queues: Vec<(&'a File, &'a File)>,
}

/// Counters of one kind and owner, as the verdict reads them.
struct Column<'a> {
    file: &'a File,
    at: u64,
    /// The reason why some could not be read: then there is no verdict.
    failed: &'a Cell<Option<io::Error>>,
}

impl Words for Column<'_> {
    fn load(&self, slot: u32) -> u32 {
        let mut found = 0;
        self.load_each(&[slot], std::iter::once(()), |(), word| found = word);
        found
    }

    /// Loads all words from the first to the last at once.
    fn load_each<T>(
        &self,
        slots: impl Slots,
        beside: impl Iterator<Item = T>,
        mut take: impl FnMut(T, u32),
    ) {
        let (Some(first), Some(last)) = (slots.each().min(), slots.each().max()) else {
            return;
        };
        let words = words(self.file, self.at, &(first..last.saturating_add(1)));
        // Ordering: partners are the receivers' `ref++` before `rcvd++` (release) and the sources' `sent++`. No later
        // word is read before the earlier ones.
        fence(Ordering::SeqCst);
        match words {
            Ok(words) => {
                for (slot, t) in slots.each().zip(beside) {
                    take(t, words[(slot - first) as usize]);
                }
            }
            Err(error) => self.failed.set(Some(error)),
        }
    }
}

impl Orphan<'_> {
    /// Returns ranges of chunks in which some buffer is alive. The time depends on the number of words to read and of
    /// places for chunks, whatever the table says.
    pub fn live_chunks(&self) -> io::Result<Vec<(u32, u32)>> {
        let failed = Cell::new(None);
        let column = |file, at| Column {
            file,
            at,
            failed: &failed,
        };
        let queue = |(sent, rcvd): &(_, _)| Queue {
            channel: 0,
            source: Source::Other,
            sent: column(*sent, COUNTS_AT),
            rcvd: column(*rcvd, COUNTS_AT),
        };
        let queues: Vec<_> = self.queues.iter().map(queue).collect();
        let reader = |refs: &_| Reader {
            domain: 0,
            refs: column(*refs, REFS_AT),
        };
        let readers: Vec<_> = self.refs.iter().map(reader).collect();
        let all: Vec<u32> = self.slots.clone().collect();
        let alive = are_alive(&queues, &readers, &all);
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let Some(table) = self.table else {
            return Ok(alive
                .contains(&true)
                .then_some((0, 0))
                .into_iter()
                .collect());
        };
        // For each place, the last place that a live buffer beginning there reaches.
        let mut reach: Vec<u32> = Vec::new();
        let slots = slots(table, &self.slots)?;
        for ((offset, length), _) in slots.into_iter().zip(&alive).filter(|(_, a)| **a) {
            // The generation does not matter. A collector that died between its increment and its second look left it
            // odd, although a domain still held the buffer. The place in a dead writer's table is untrusted, and
            // bounded here.
            let first = offset / self.chunk_bytes;
            let last = offset.saturating_add(length.saturating_sub(1)) / self.chunk_bytes;
            let end = u64::from(self.windows.saturating_sub(1));
            let Ok(first) = usize::try_from(first) else {
                continue;
            };
            if first as u64 > end {
                continue;
            }
            if reach.len() <= first {
                reach.resize(first + 1, 0);
            }
            let last = u32::try_from(last.min(end)).unwrap_or(u32::MAX);
            // Plus one, so that 0 means none.
            reach[first] = reach[first].max(last.saturating_add(1));
        }
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for (first, end) in (0..).zip(reach).filter(|(_, end)| *end > 0) {
            match ranges.last_mut() {
                Some((_, last)) if first <= last.saturating_add(1) => *last = (*last).max(end - 1),
                _ => ranges.push((first, end - 1)),
            }
        }
        Ok(ranges)
    }
}

/// The number of slots above which their table entries are read at once.
const APART: usize = 64;

/// Finds the slots to which a reader has references, by rising slots.
pub(super) fn held_slots(
    table: &File,
    refs: &File,
    some: &Range<u32>,
) -> io::Result<Vec<HeldSlot>> {
    let refs = words(refs, REFS_AT, some)?;
    let held = some.clone().zip(&refs).filter(|(_, r)| **r != 0);
    let held: Vec<u32> = held.map(|(slot, _)| slot).collect();
    let read = |slots: Range<u32>| {
        let mut raw = vec![0u8; slots.len() * 32];
        table.read_exact_at(&mut raw, TABLE_AT + 32 * u64::from(slots.start))?;
        Ok::<_, io::Error>(raw)
    };
    let mut all = Vec::with_capacity(held.len());
    if held.len() > APART {
        let raw = read(some.clone())?;
        for slot in held {
            let at = (slot - some.start) as usize * 32;
            all.extend(raw.get(at..at + 32).map(|entry| held_slot(slot, entry)));
        }
    } else {
        for slot in held {
            all.push(held_slot(slot, &read(slot..slot + 1)?));
        }
    }
    Ok(all)
}

fn held_slot(slot: u32, entry: &[u8]) -> HeldSlot {
    let mut words = [0u64; 4];
    for (word, raw) in words.iter_mut().zip(entry.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*raw);
    }
    let [first, _, bytes, last] = words;
    let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
    let generation = low(first);
    HeldSlot {
        slot,
        generation,
        bytes,
        moved: generation != 0 && low(last) == generation,
    }
}

/// Reads a writer's figures about its pool.
// Trust: each word is the writer's claim; its users bound it by the granted size.
pub(super) fn figures(table: &File) -> io::Result<Figures> {
    let mut words = [0u64; 12];
    table.read_exact_at(words.as_mut_bytes(), FIGURES_AT)?;
    let [
        blocked_ns,
        collect_ns,
        allocs,
        live_bytes,
        peak_bytes,
        cached,
        live_buffers,
        waiters,
        garbage_bytes,
        cached_bytes,
        padding_bytes,
        collections,
    ] = words;
    Ok(Figures {
        blocked_ns,
        collect_ns,
        allocs,
        live_bytes,
        peak_bytes,
        cached,
        live_buffers,
        waiters,
        garbage_bytes,
        cached_bytes,
        padding_bytes,
        collections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(front: u64, words: &[u32]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![0; usize::try_from(front).expect("small")])
            .expect("write");
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        file.write_all(&bytes).expect("write");
        file
    }

    /// One slot in each of four chunks. The first is free, and a reader holds the second. A reader holds the third too,
    /// whose writer died between its two looks. The fourth is in a queue.
    #[test]
    fn what_somebody_has_lives_whatever_its_generation() {
        let chunk_bytes = 1u32 << 16;
        let table: Vec<u32> = [(2, 0), (2, 1), (3, 2), (2, 3)]
            .iter()
            .flat_map(|(generation, chunk)| [*generation, 1, chunk * chunk_bytes, 0, 4096, 0, 0, 0])
            .collect();
        let table = file(TABLE_AT, &table);
        let refs = file(REFS_AT, &[0, 1, 1, 0]);
        let sent = file(COUNTS_AT, &[7, 7, 7, 8]);
        let rcvd = file(COUNTS_AT, &[7, 7, 7, 7]);
        let orphan = Orphan {
            slots: 0..4,
            chunk_bytes: chunk_bytes.into(),
            windows: 4,
            table: Some(&table),
            refs: vec![&refs],
            queues: vec![(&sent, &rcvd)],
        };
        assert_eq!(orphan.live_chunks().expect("files"), [(1, 3)]);
    }
}
