//! How fast large buffers are sent: whether a look at each costs nothing beside.

use crate::pool::FEW;

/// Nanoseconds for each large buffer, from which on a look at a receiver's counters is cheap beside the bytes.
const LEISURE_NS: u64 = 4096;

/// So many times eight buffers in a row have to be slow: less may have been a pause, or memory that nobody had used.
const SLOW: u32 = 4;

/// How fast large buffers are sent.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last eight had been sent, nanoseconds; 0 if the last were not large.
    at: u64,
    /// So many times eight in a row took long.
    slow: u32,
}

impl Pace {
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.at > 0
    }

    /// Eight were sent; `now` is 0 if they were small. Whether that took so long, and the ones before too, that looking at each costs nothing beside.
    pub(super) fn is_slow(&mut self, now: u64) -> bool {
        let before = std::mem::replace(&mut self.at, now);
        let is_slow = before > 0 && now.saturating_sub(before) > u64::from(FEW) * LEISURE_NS;
        self.slow = match is_slow {
            true => self.slow.saturating_add(1),
            false => 0,
        };
        self.slow >= SLOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_slow_when_many_were_in_a_row() {
        let long = u64::from(FEW) * LEISURE_NS + 1;
        let mut pace = Pace::default();
        let mut now = 1000;
        let mut after = |pace: &mut Pace, ns: u64| {
            now += ns;
            pace.is_slow(now)
        };
        assert!(!after(&mut pace, long), "nothing was sent before");
        for _ in 0..3 {
            assert!(!after(&mut pace, long), "it may be a pause");
        }
        assert!(after(&mut pace, long) && after(&mut pace, long));
        // One that was fast, and it counts anew.
        assert!(!after(&mut pace, long - 1));
        for _ in 0..3 {
            assert!(!after(&mut pace, long));
        }
        assert!(after(&mut pace, long));
        // Small ones.
        assert!(pace.is_large() && !pace.is_slow(0) && !pace.is_large());
        assert!(!pace.is_slow(1 << 40), "no large ones before");
    }
}
