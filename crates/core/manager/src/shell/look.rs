//! Reading facts that only a channel's ends or a reader know: a channel's cursors, and the buffers that a reader holds.
//! As in `counters`, they are copied out of the page cache.

use crate::state::Cursors;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const ASLEEP_AT: u64 = 128;
const HEAD_AT: usize = 256 - 128;
const STALLS_AT: u64 = 320;
const LINES_AT: u64 = 4096;
const LINE: u64 = 64;
const REFS_AT: u64 = 128;
const SLOTS_AT: u64 = 4096;
const SLOT: usize = 32;
/// Slots that are read one by one; more are read at once.
const FEW: usize = 32;

fn word(raw: &[u8], at: usize) -> u64 {
    let bytes = raw.get(at..at + 8).and_then(|b| b.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// Reads the cursors of a channel with `lines` lines, as far as its halves (source, sink) are known.
pub(super) fn cursors([source, sink]: [Option<&File>; 2], lines: u32, now_ns: u64) -> Cursors {
    let mut found = Cursors::default();
    let mut raw = [0u8; 136];
    if sink.is_some_and(|f| f.read_exact_at(&mut raw, ASLEEP_AT).is_ok()) {
        let flag = u32::try_from(word(&raw, 0) & 0xffff_ffff);
        found.sink_asleep = flag.is_ok_and(tranship_ring::is_asleep);
        found.taken = word(&raw, HEAD_AT);
    }
    let Some(source) = source else { return found };
    let mut raw = [0u8; 24];
    if source.read_exact_at(&mut raw, STALLS_AT).is_ok() {
        found.stalls = word(&raw, 0);
        found.stalled_ns = word(&raw, 8);
        found.waiting_ns = match word(&raw, 16) {
            0 => 0,
            // Never 0: the source waits.
            since => now_ns.saturating_sub(since).max(1),
        };
    }
    found.depth = depth(source, found.taken, lines);
    found
}

/// Counts the published lines from the head on: they are written in order, so they end where the sequence ends.
fn depth(source: &File, head: u64, lines: u32) -> u64 {
    let lines = u64::from(lines);
    let is_sent = |i: u64| {
        let at = head.wrapping_add(i);
        let mut raw = [0u8; 4];
        let place = LINES_AT + at.checked_rem(lines).unwrap_or(0) * LINE;
        let expected = at.wrapping_add(1) & 0xffff_ffff;
        let read = source.read_exact_at(&mut raw, place);
        read.is_ok() && u64::from(u32::from_le_bytes(raw)) == expected
    };
    // The most frequent cases are nothing and everything.
    if lines == 0 || !is_sent(0) {
        return 0;
    }
    if is_sent(lines - 1) {
        return lines;
    }
    let (mut sent, mut not) = (0, lines - 1);
    while not - sent > 1 {
        let middle = sent.midpoint(not);
        match is_sent(middle) {
            true => sent = middle,
            false => not = middle,
        }
    }
    sent + 1
}

/// A buffer that a reader holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Had {
    pub slot: u32,
    pub generation: u32,
    pub bytes: u64,
}

/// Finds the buffers among some slots to which a reader has references.
pub(super) fn held(table: &File, refs: &File, slots: &Range<u32>) -> io::Result<Vec<Had>> {
    let mut raw = vec![0u8; slots.len() * 4];
    refs.read_exact_at(&mut raw, REFS_AT + 4 * u64::from(slots.start))?;
    let words = raw.as_chunks::<4>().0.iter();
    let held: Vec<u32> = slots
        .clone()
        .zip(words)
        .filter_map(|(slot, word)| (*word != [0; 4]).then_some(slot))
        .collect();
    let (Some(first), Some(last)) = (held.first(), held.last()) else {
        return Ok(Vec::new());
    };
    let had = |slot: u32, raw: &[u8]| Had {
        slot,
        generation: u32::try_from(word(raw, 0) & 0xffff_ffff).unwrap_or(0),
        bytes: word(raw, 16),
    };
    let at = |slot: u32| SLOTS_AT + SLOT as u64 * u64::from(slot);
    if held.len() <= FEW {
        let mut raw = [0u8; SLOT];
        let read = held.iter().map(|slot| {
            table.read_exact_at(&mut raw, at(*slot))?;
            Ok(had(*slot, &raw))
        });
        return read.collect();
    }
    let mut raw = vec![0u8; (last - first + 1) as usize * SLOT];
    table.read_exact_at(&mut raw, at(*first))?;
    let of = |slot: u32| {
        let from = (slot - first) as usize * SLOT;
        had(slot, raw.get(from..).unwrap_or(&[]))
    };
    Ok(held.iter().map(|slot| of(*slot)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_ring::{HalfRo, HalfRw, Producer, Publish, Push, Ring, Side};

    /// For every head and depth, also where the sequence wraps around the ring.
    #[test]
    fn cursors_are_where_the_ends_are() {
        const LINES: u32 = 16;
        let source = HalfRw::create(Side::Source, LINES).expect("a half");
        let sink = HalfRw::create(Side::Sink, LINES).expect("a half");
        let files = [&source.0, &sink.0].map(|fd| File::from(fd.try_clone().expect("another")));
        let theirs = |fd, side| HalfRo::open(fd, side, LINES).expect("a half");
        let sees = theirs(&sink.0, Side::Sink);
        let seen = theirs(&source.0, Side::Source);
        let (from, to) = (Ring::new(source.1, sees), Ring::new(sink.1, seen));
        let mut producer = Producer::new();
        let mut taken = 0;
        let look = || cursors([Some(&files[0]), Some(&files[1])], LINES, 12);
        for round in 0..200u64 {
            let want = 1 + round % u64::from(LINES);
            while producer.tail() - taken < want {
                let head = || from.their_head();
                let pushed = producer.try_push(from.own_lines(), Publish::SeqCst, [0; 8], head);
                assert_eq!(pushed, Ok(Push::Done));
            }
            let found = look();
            assert_eq!((found.taken, found.depth), (taken, producer.tail() - taken));
            taken += round % (want + 1);
            to.give_back(taken);
        }
        from.stall();
        from.wait(5);
        assert_eq!((look().stalls, look().waiting_ns), (1, 7));
        from.stall(); // it waits already
        from.wait_no_more(12);
        let found = look();
        assert_eq!(
            (found.stalls, found.stalled_ns, found.waiting_ns),
            (1, 7, 0)
        );
        assert!(!found.sink_asleep);
        to.spin();
        assert!(!look().sink_asleep, "it looks again and again");
        to.arm();
        assert!(look().sink_asleep);
    }

    #[test]
    fn what_is_held_is_found_few_or_many() {
        use tranship_region::layout::{RefsRw, TableRw};
        let (table_fd, table) = TableRw::create(1000, 1 << 30, 1 << 20).expect("a table");
        let (refs_fd, refs) = RefsRw::create(1000).expect("counters");
        let files = [table_fd, refs_fd].map(File::from);
        for (i, slot) in (0..).zip(table.slots()) {
            slot.generation
                .store(2 * i, std::sync::atomic::Ordering::Relaxed);
            slot.length
                .store(u64::from(i) + 7, std::sync::atomic::Ordering::Relaxed);
        }
        for step in [500, 3] {
            for (i, word) in refs.refs().iter().enumerate() {
                word.store(
                    u32::from(i % step == 1),
                    std::sync::atomic::Ordering::Relaxed,
                );
            }
            let found = held(&files[0], &files[1], &(100..900)).expect("read");
            let expected = (100..900).filter(|i| i % step == 1).map(|i| {
                let slot = u32::try_from(i).expect("small");
                let (generation, bytes) = (2 * slot, u64::from(slot) + 7);
                Had {
                    slot,
                    generation,
                    bytes,
                }
            });
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
