//! The pace of sends of large buffers: a look after each send is cheap only at a slow pace.

/// Nanoseconds for a large buffer from which on a look at the receiver's counters is cheap beside the bytes.
const LEISURE_NS: u64 = 4096;

/// Buffers between two looks at the clock.
pub(super) const MANY: u32 = 16;

/// Number of slow spans in a row that count as a slow pace: fewer may have been a pause, or memory in its first use.
const SLOW: u32 = 2;

/// Pace of sends of large buffers.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Time of the last look at the clock, nanoseconds; 0 if that buffer was not large.
    at: u64,
    /// Number of slow spans in a row.
    slow: u32,
}

impl Pace {
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.at > 0
    }

    /// Notes that [`MANY`] buffers were sent; `now` is 0 if the last one was small. Returns whether the pace is slow.
    pub(super) fn is_slow(&mut self, now: u64) -> bool {
        let before = std::mem::replace(&mut self.at, now);
        let is_slow = before > 0 && now.saturating_sub(before) > u64::from(MANY) * LEISURE_NS;
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
        let long = u64::from(MANY) * LEISURE_NS + 1;
        let mut pace = Pace::default();
        let mut now = 1000;
        let mut after = |pace: &mut Pace, ns: u64| {
            now += ns;
            pace.is_slow(now)
        };
        assert!(!after(&mut pace, long), "nothing was sent before");
        assert!(!after(&mut pace, long), "it may be a pause");
        assert!(after(&mut pace, long) && after(&mut pace, long));
        // After a fast span it counts anew.
        assert!(!after(&mut pace, long - 1));
        assert!(!after(&mut pace, long));
        assert!(after(&mut pace, long));
        // Small buffers.
        assert!(pace.is_large() && !pace.is_slow(0) && !pace.is_large());
        assert!(!pace.is_slow(1 << 40), "no large ones before");
    }
}
