//! The working-set estimate of a depot, and the items that lie there untouched.
//!
//! The largest fall of the number of items during a row of periods is the number really taken out of the depot, and so
//! the number worth keeping. The estimate loses a quarter in each period in which less was taken (the formula of UMA
//! since FreeBSD 14). Items beyond it that lay untouched through two whole periods are surplus.

/// A counter of items that come and go, with the estimate of the number worth keeping.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WorkingSet {
    /// The most items since the period began, and the fewest after that.
    most: usize,
    least_after: usize,
    /// The fewest items in this period, and in the one before.
    least: usize,
    least_before: usize,
    estimate: usize,
}

impl WorkingSet {
    /// Records that there are now `items`, after some came.
    pub(crate) fn rose(&mut self, items: usize) {
        if items > self.most {
            self.estimate = self.estimate.max(self.most - self.least_after);
            self.most = items;
            self.least_after = items;
        }
    }

    /// Records that there are now `items`, after some were taken because they were needed.
    pub(crate) fn fell(&mut self, items: usize) {
        self.least_after = self.least_after.min(items);
        self.least = self.least.min(items);
    }

    /// Records that there are now `items`, after some were given back. Giving back does not count as a need.
    pub(crate) fn trimmed(&mut self, by: usize, items: usize) {
        self.most = self.most.saturating_sub(by).max(items);
        self.least_after = self.least_after.saturating_sub(by).min(items);
        self.least = self.least.saturating_sub(by);
        self.least_before = self.least_before.saturating_sub(by);
    }

    /// Ends a period; returns how many of the `items` should stay.
    pub(crate) fn period(&mut self, items: usize) -> usize {
        self.estimate =
            (self.estimate / 4 * 3 + self.estimate % 4 * 3 / 4).max(self.most - self.least_after);
        let untouched = self.least.min(self.least_before);
        let surplus = untouched.saturating_sub(self.estimate);
        // Half of the maximum carries over, against the edges of periods.
        self.most -= (self.most - items).div_ceil(2);
        self.least_after = items;
        self.least_before = std::mem::replace(&mut self.least, items);
        items.saturating_sub(surplus)
    }

    /// Returns the number of items worth keeping, as far as known.
    pub(crate) fn estimate(&self) -> usize {
        self.estimate.max(self.most - self.least_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_lies_there_goes_after_two_periods() {
        let mut set = WorkingSet::default();
        set.rose(1000);
        assert_eq!(set.period(1000), 1000, "it came in this one");
        assert_eq!(set.period(1000), 1000);
        assert_eq!(set.period(1000), 0);
    }

    #[test]
    fn what_is_taken_in_bursts_stays_for_a_while() {
        let mut set = WorkingSet::default();
        set.rose(1000);
        for round in 0..10 {
            set.fell(700);
            set.rose(1000);
            let keep = set.period(1000);
            assert_eq!(set.estimate(), 300);
            // 700 were never touched.
            assert_eq!(keep, if round < 2 { 1000 } else { 600 }, "round {round}");
        }
        let mut kept = 1000;
        for _ in 0..40 {
            let next = set.period(1000);
            assert!(next < kept || next == 0);
            kept = next;
        }
        assert_eq!(kept, 0);
    }

    #[test]
    fn giving_back_is_no_need() {
        let mut set = WorkingSet::default();
        set.rose(1000);
        set.fell(900);
        set.trimmed(800, 100);
        assert_eq!(set.period(100), 100);
        assert_eq!(set.estimate(), 100);
    }

    #[test]
    fn several_falls_in_a_period_count_as_their_largest() {
        let mut set = WorkingSet::default();
        set.rose(100);
        set.fell(40);
        set.rose(120);
        set.fell(110);
        assert_eq!(set.estimate(), 60);
        set.period(110);
        assert_eq!(set.estimate(), 45, "an earlier one loses a quarter");
    }
}
