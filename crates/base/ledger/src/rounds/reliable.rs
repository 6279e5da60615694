//! Readers that hold the writer back.

use super::desks::Desks;
use tranship_ring::broadcast::{Win, ahead};

/// A reliable reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Follower {
    desk: usize,
    /// Where its window began when it was last read.
    low: u64,
}

/// The reliable readers of one ring. No line is overwritten that one of them has not passed.
///
/// Their windows are cached: as long as the oldest cached one leaves room, a publish reads none of them. A round
/// refreshes the cache ([`Outcome::seen`](super::Outcome::seen)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reliable {
    followers: Vec<Follower>,
    /// At most the oldest cached window.
    known: u64,
    lines: u64,
    /// Which follower was behind when last looked at, and since when the writer waits for it, ns.
    behind: usize,
    since: Option<u64>,
}

impl Reliable {
    /// Makes an empty set for a ring of so many lines.
    pub fn new(lines: u32) -> Reliable {
        Reliable {
            followers: Vec::new(),
            known: 0,
            lines: lines.into(),
            behind: 0,
            since: None,
        }
    }

    /// Adds a reader whose window begins at the position.
    pub fn join(&mut self, desk: usize, low: u64) {
        self.followers.push(Follower { desk, low });
        self.known = low.min(self.known);
    }

    /// Removes a reader: it has left, or becomes one that may miss lines.
    pub fn leave(&mut self, desk: usize) {
        self.followers.retain(|follower| follower.desk != desk);
        self.behind = 0;
        self.since = None;
    }

    /// Notes what a round saw.
    pub fn seen(&mut self, desk: usize, low: u64, tail: u64) {
        let mut followers = self.followers.iter_mut();
        if let Some(follower) = followers.find(|follower| follower.desk == desk) {
            follower.low = passed(tail, low);
        }
    }

    /// Returns the first line that a reader may have still to take, as cached: at most `tail`.
    pub fn floor(&self, tail: u64) -> u64 {
        let lows = self.followers.iter().map(|follower| follower.low);
        lows.min().unwrap_or(tail)
    }

    /// Looks for room for the line at `tail`. Returns the desk of a reader that is behind, or None if there is room.
    #[inline(always)]
    pub fn room<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        tail: u64,
    ) -> Result<Option<usize>, D::Stop> {
        if self.followers.is_empty() || tail.wrapping_sub(self.known) < self.lines {
            return Ok(None);
        }
        self.look(desks, tail)
    }

    /// Reads the windows again of those whose cached window leaves little room.
    #[cold]
    fn look<D: Desks + ?Sized>(&mut self, desks: &D, tail: u64) -> Result<Option<usize>, D::Stop> {
        let (lines, count) = (self.lines, self.followers.len());
        let mut known = tail;
        for i in 0..count {
            // The one that was behind first: as long as it is, no other one matters.
            let at = (self.behind + i) % count;
            let follower = &mut self.followers[at];
            if tail.wrapping_sub(follower.low) >= lines - lines / 4 {
                follower.low = passed(tail, Win::unpack(desks.win(follower.desk)?).low);
            }
            if tail.wrapping_sub(follower.low) >= lines {
                self.behind = at;
                return Ok(Some(follower.desk));
            }
            known = known.min(follower.low);
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
