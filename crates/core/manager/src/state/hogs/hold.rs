//! A domain's held buffers of a pool, and for how long: noted from one look at its counters to the next.
//!
//! The manager is not told when a buffer is taken or dropped. A slot whose counter is not 0 at two looks, with the same
//! generation at both, counts as held in between. The reason is that the writer cannot reuse a slot while it is held.

use crate::state::types::HeldSlot;
use std::time::Duration;

/// Notes of one domain about one pool. Further held buffers count from the time at which there were too many to note.
const MAX_NOTES: usize = 1 << 16;
/// Notes that cost as much as one record of the manager's tables.
const NOTES_PER_RECORD: usize = 16;

/// The time at which a slot was first seen, in hundredths of a second since the manager's start. Only the lower part is
/// kept, so it wraps around after 497 days. A note that old is set to half its age at each look, so that it never looks
/// young.
type Seen = u32;

const OLD: u32 = 1 << 31;

fn seen(now: Duration) -> Seen {
    // Masked to the bits that fit.
    u32::try_from((now.as_millis() / 10) & u128::from(u32::MAX)).unwrap_or(0)
}

fn hundredths(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / 10).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, Debug)]
struct Note {
    slot: u32,
    generation: u32,
    since: Seen,
}

/// The buffers of one pool that one domain holds.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// The last complete look, by rising slots.
    notes: Vec<Note>,
    /// Since when there have been more holds than could be noted.
    rest_since: Option<Seen>,
    /// Bytes that are charged to the holder.
    pub lingering_bytes: u64,
    /// Buffers that the last complete look found.
    pub buffers: u32,
    pub bytes: u64,
    /// Since when the oldest buffer is held, and its length.
    oldest: Option<(Seen, u64)>,
    /// The present look.
    look: HeldLook,
}

#[derive(Debug, Default)]
struct HeldLook {
    notes: Vec<Note>,
    most: usize,
    /// The position of the look in the notes of the last one.
    cursor: usize,
    charged: u64,
    rest: u64,
    buffers: u32,
    bytes: u64,
    /// The highest age, and that buffer's length.
    oldest: Option<(u32, u64)>,
}

impl Hold {
    /// Begins a look, which may use `records` more than now.
    pub fn begin(&mut self, records: u64) {
        let more = usize::try_from(records).unwrap_or(usize::MAX);
        let most = more.saturating_mul(NOTES_PER_RECORD);
        self.look = HeldLook {
            most: most.saturating_add(self.noted()).min(MAX_NOTES),
            ..HeldLook::default()
        };
    }

    fn noted(&self) -> usize {
        self.notes.len().div_ceil(NOTES_PER_RECORD) * NOTES_PER_RECORD
    }

    /// Adds some of the held slots, by rising slots.
    pub fn add(&mut self, held: &[HeldSlot], now: Duration, linger: Duration) {
        let (now, linger) = (seen(now), hundredths(linger).min(OLD));
        let look = &mut self.look;
        for h in held {
            let rest = self.notes.get(look.cursor..).unwrap_or_default();
            look.cursor += rest.partition_point(|n| n.slot < h.slot);
            let known = self.notes.get(look.cursor);
            let same = known.filter(|n| n.slot == h.slot && n.generation == h.generation);
            let age = same.map_or(0, |n| now.wrapping_sub(n.since).min(OLD));
            let since = now.wrapping_sub(age);
            look.oldest = look.oldest.max(Some((age, h.bytes)));
            look.buffers = look.buffers.saturating_add(1);
            look.bytes = look.bytes.saturating_add(h.bytes);
            if h.moved || age >= linger {
                look.charged = look.charged.saturating_add(h.bytes);
            } else if look.notes.len() >= look.most {
                look.rest = look.rest.saturating_add(h.bytes);
            }
            if look.notes.len() < look.most {
                let (slot, generation) = (h.slot, h.generation);
                look.notes.push(Note {
                    slot,
                    generation,
                    since,
                });
            }
        }
    }

    /// Ends a look; returns the bytes that are charged from now on, at most `most_bytes`.
    pub fn end(&mut self, now: Duration, linger: Duration, most_bytes: u64) -> u64 {
        let look = std::mem::take(&mut self.look);
        let (now, linger) = (seen(now), hundredths(linger).min(OLD));
        let since = self.rest_since.unwrap_or(now);
        let age = now.wrapping_sub(since).min(OLD);
        self.rest_since = (look.rest > 0).then(|| now.wrapping_sub(age));
        let stays = self.rest_since.is_some() && age >= linger;
        let rest = if stays { look.rest } else { 0 };
        self.notes = look.notes;
        (self.buffers, self.bytes) = (look.buffers, look.bytes);
        self.oldest = look
            .oldest
            .map(|(age, bytes)| (now.wrapping_sub(age), bytes));
        look.charged.saturating_add(rest).min(most_bytes)
    }

    /// Returns for how long the oldest buffer was seen.
    pub fn oldest(&self, now: Duration) -> Option<Duration> {
        let age = seen(now).wrapping_sub(self.oldest?.0);
        Some(Duration::from_millis(10 * u64::from(age)))
    }

    /// Returns the length of the oldest buffer.
    pub fn oldest_bytes(&self) -> u64 {
        self.oldest.map_or(0, |(_, bytes)| bytes)
    }

    /// Returns the cost of the notes, in records of the manager's tables.
    pub fn records(&self) -> u64 {
        self.notes.len().div_ceil(NOTES_PER_RECORD) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_secs(1);
    const ALL: u64 = u64::MAX;

    fn held(slot: u32, generation: u32) -> HeldSlot {
        HeldSlot {
            slot,
            generation,
            bytes: 100,
            moved: false,
        }
    }

    fn look(hold: &mut Hold, at_ms: u64, slots: &[HeldSlot]) -> u64 {
        let now = Duration::from_millis(at_ms);
        hold.begin(1 << 10);
        // In pieces, as it is read.
        for piece in slots.chunks(2) {
            hold.add(piece, now, LINGER);
        }
        hold.end(now, LINGER, ALL)
    }

    #[test]
    fn what_is_held_for_long_is_charged_and_what_comes_and_goes_is_not() {
        let mut hold = Hold::default();
        for n in 0..8u32 {
            // Slot 3 stays; 5 is another buffer each time; 7 is held now and then.
            let mut slots = vec![held(3, 2), held(5, 2 * n + 2)];
            slots.extend((n % 2 == 0).then(|| held(7, 2)));
            let charged = look(&mut hold, 250 * u64::from(n), &slots);
            assert_eq!(charged, if n >= 4 { 100 } else { 0 }, "look {n}");
        }
        let now = Duration::from_millis(1750);
        assert_eq!(hold.oldest(now), Some(Duration::from_millis(1750)));
        assert_eq!(look(&mut hold, 2000, &[]), 0, "it was dropped");
        assert_eq!(hold.oldest(now), None);
    }

    #[test]
    fn what_was_moved_is_charged_at_once() {
        let moved = HeldSlot {
            moved: true,
            ..held(1, 2)
        };
        assert_eq!(look(&mut Hold::default(), 0, &[moved, held(2, 2)]), 100);
    }

    #[test]
    fn what_cannot_be_noted_is_charged_once_there_was_too_much_for_so_long() {
        let mut hold = Hold::default();
        let all: Vec<HeldSlot> = (0..40).map(|slot| held(slot, 2)).collect();
        let mut few = |at_ms, slots: &[HeldSlot]| {
            let now = Duration::from_millis(at_ms);
            // One record: 16 notes.
            hold.begin(1 - hold.records());
            hold.add(slots, now, LINGER);
            let charged = hold.end(now, LINGER, ALL);
            assert!(hold.records() <= 1);
            charged
        };
        assert_eq!(few(0, &all), 0);
        assert_eq!(few(990, &all), 0);
        assert_eq!(few(1000, &all), 4000);
        assert_eq!(few(1250, &all[..10]), 1000);
        assert_eq!(few(1500, &all), 1000, "too much again, from now on");
    }

    /// The number of hundredths of a second begins anew after 497 days.
    #[test]
    fn what_lingers_does_so_after_years_too() {
        const ROUND_MS: u64 = 10 << 32;
        for begun in [ROUND_MS - 500, ROUND_MS + 500, 7 * ROUND_MS - 500] {
            let mut hold = Hold::default();
            for (after, charged) in [(0, 0), (250, 0), (990, 0), (1000, 100), (2000, 100)] {
                let found = look(&mut hold, begun + after, &[held(3, 2)]);
                assert_eq!(found, charged, "{after} ms after {begun}");
                let age = hold.oldest(Duration::from_millis(begun + after));
                assert_eq!(age, Some(Duration::from_millis(after)));
            }
            // Held for as long as that, seen now and then.
            for quarter in 1..12 {
                let at = begun + quarter * ROUND_MS / 4;
                assert_eq!(look(&mut hold, at, &[held(3, 2)]), 100, "{quarter}");
            }
        }
    }

    #[test]
    fn no_more_is_charged_than_there_is_of_the_pool() {
        let mut hold = Hold::default();
        let lie = HeldSlot {
            bytes: u64::MAX,
            moved: true,
            ..held(1, 2)
        };
        hold.begin(1);
        hold.add(&[lie, lie], Duration::ZERO, LINGER);
        assert_eq!(hold.end(Duration::ZERO, LINGER, 5000), 5000);
    }
}
