//! Readers that hold the writer back.

use super::desks::Desks;
use tranship_ring::broadcast::{UNBEGUN, Win, ahead};

/// The reliable readers of one ring. No line is overwritten that one of them has not passed.
///
/// Their windows are cached: as long as the oldest cached one leaves room, a publish reads none of them. A round
/// refreshes the cache ([`Outcome::seen`](super::Outcome::seen)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reliable {
    /// For each desk whose reader is reliable, where its window began when it was last read.
    lows: Vec<Option<u64>>,
    count: usize,
    /// At most the oldest cached window.
    known: u64,
    lines: u64,
    /// Which desk was behind when last looked at, and since when the writer waits for it, ns.
    behind: usize,
    since: Option<u64>,
}

impl Reliable {
    /// Makes an empty set for a ring of `lines` lines.
    pub fn new(lines: u32) -> Reliable {
        Reliable {
            lows: Vec::new(),
            count: 0,
            known: 0,
            lines: lines.into(),
            behind: 0,
            since: None,
        }
    }

    /// Adds a reader that begins at the position. It counts as there until its desk shows a window.
    pub fn join(&mut self, desk: usize, low: u64) {
        if desk >= self.lows.len() {
            self.lows.resize(desk + 1, None);
        }
        self.count += usize::from(self.lows[desk].replace(low).is_none());
        self.known = low.min(self.known);
    }

    /// Removes a reader: it has left, or becomes one that may miss lines.
    pub fn leave(&mut self, desk: usize) {
        let place = self.lows.get_mut(desk);
        self.count -= usize::from(place.and_then(Option::take).is_some());
        self.behind = 0;
        self.since = None;
    }

    /// Notes what a round saw.
    pub fn seen(&mut self, desk: usize, low: u64, tail: u64) {
        if let Some(Some(known)) = self.lows.get_mut(desk) {
            *known = passed(tail, low);
        }
    }

    /// Returns the first line that a reader may have still to take, as cached: at most `tail`.
    pub fn floor(&self, tail: u64) -> u64 {
        self.lows.iter().flatten().copied().min().unwrap_or(tail)
    }

    /// Looks for room for the line at `tail`. Returns the desk of a reader that is behind, or None if there is room.
    #[inline(always)]
    pub fn room<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        tail: u64,
    ) -> Result<Option<usize>, D::Stop> {
        if self.count == 0 || tail.wrapping_sub(self.known) < self.lines {
            return Ok(None);
        }
        self.look(desks, tail)
    }

    /// Reads the windows again of those whose cached window leaves little room.
    #[cold]
    fn look<D: Desks + ?Sized>(&mut self, desks: &D, tail: u64) -> Result<Option<usize>, D::Stop> {
        let (lines, count) = (self.lines, self.lows.len());
        let mut known = tail;
        for i in 0..count {
            // The one that was behind first: as long as it is, no other one matters.
            let desk = (self.behind + i) % count;
            let Some(low) = &mut self.lows[desk] else {
                continue;
            };
            if tail.wrapping_sub(*low) >= lines - lines / 4 {
                let word = desks.win(desk)?;
                if word != UNBEGUN {
                    *low = passed(tail, Win::unpack(word).low);
                }
            }
            if tail.wrapping_sub(*low) >= lines {
                self.behind = desk;
                return Ok(Some(desk));
            }
            known = known.min(*low);
        }
        self.known = known;
        self.since = None;
        Ok(None)
    }

    /// Says whether the writer has waited long enough for the reader that is behind, at the time `now_ns`. Then that
    /// reader is to become one that may miss lines ([`Reliable::leave`]).
    pub fn is_overdue(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        let since = *self.since.get_or_insert(now_ns);
        now_ns.saturating_sub(since) > limit_ns
    }
}

/// The position of which a window shows 48 bits. One beyond the tail is a liar's, and holds nobody back.
fn passed(tail: u64, low: u64) -> u64 {
    let behind = ahead(low, tail);
    tail.wrapping_sub(behind.max(0).unsigned_abs())
}
