//! The paper's second predictor: a share of time is to be spent waiting, no more and no less.
//!
//! Three averages of quotas are kept: those at which the share was above its target (too small), below it (too large),
//! and near it. If a share is off its target, the search asks for the middle between the quota and the average of the
//! other side, as in a binary search. One case is an addition to the paper. If the other side is not known, or the
//! quota has passed it, the demand has changed. The first guess then comes from a model instead of from outdated
//! averages: `need * (1 - target)`, because in a loop of callers each missing buffer is a waiting caller.

/// The search for one target.
#[derive(Clone, Debug, Default)]
pub struct Search {
    small: Option<f64>,
    large: Option<f64>,
    near: Option<f64>,
}

/// A bracket that is this narrow, as a share of the quota, and does not hold the target, is wrong.
const NARROW: f64 = 0.02;
/// The largest step, as a share of the quota, when neither model nor averages help. The step is as large a share as the
/// share of time is off its target.
const MOST: f64 = 0.125;

impl Search {
    /// Returns the next quota, bytes. `share` was measured at `quota`. With `need` no caller would wait, and `band` is
    /// near enough.
    pub fn next(&mut self, quota: f64, share: f64, target: f64, need: f64, band: f64) -> f64 {
        let average = |old: Option<f64>| Some(old.map_or(quota, |old| (old + quota) / 2.0));
        let model = need * (1.0 - target);
        let off = share - target;
        if off.abs() <= band {
            self.near = average(self.near);
            return quota;
        }
        let (own, other) = match off > 0.0 {
            true => (&mut self.small, &mut self.large),
            false => (&mut self.large, &mut self.small),
        };
        *own = average(*own);
        // The other average must be on the other side, at some distance.
        let toward = |o: f64| if off > 0.0 { o - quota } else { quota - o };
        if other.is_some_and(|o| toward(o) <= NARROW * quota) {
            *other = None;
            *own = Some(quota);
        }
        match *other {
            Some(other) => {
                let middle = (quota + other) / 2.0;
                // The model is used if it is nearer than the middle, lies between the two, and differs from both.
                let apart = NARROW * quota;
                let inside = model > quota.min(other) + apart && model < quota.max(other) - apart;
                if inside { model } else { middle }
            }
            None if off > 0.0 => model.max(quota * (1.0 + off.min(MOST))),
            None => model.min(quota * (1.0 + off.max(-MOST))),
        }
    }

    /// Returns the average of quotas at which the share was near its target.
    pub fn near(&self) -> Option<f64> {
        self.near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a pool in which `need` callers wait for a buffer each.
    fn share(quota: f64, need: f64) -> f64 {
        (1.0 - quota / need).max(0.0)
    }

    #[test]
    fn the_target_is_found_with_a_model_and_without_one() {
        for model_is in [1.0, 0.7, 1.4] {
            for target in [0.01, 0.1, 0.25] {
                let (mut search, mut quota) = (Search::default(), 20.0);
                for _ in 0..16 {
                    let need = 100.0 * model_is;
                    quota = search.next(quota, share(quota, 100.0), target, need, 0.01);
                }
                let off = share(quota, 100.0) - target;
                assert!(off.abs() <= 0.02, "{target}, model {model_is}: {quota}");
            }
        }
    }

    #[test]
    fn with_both_sides_known_it_asks_for_their_middle() {
        let mut search = Search::default();
        search.next(50.0, 0.5, 0.1, 0.0, 0.01);
        search.next(150.0, 0.0, 0.1, 1000.0, 0.01);
        assert_eq!(search.next(60.0, 0.4, 0.1, 0.0, 0.01), 105.0);
    }

    #[test]
    fn a_side_that_was_overtaken_is_forgotten() {
        let mut search = Search::default();
        search.next(100.0, 0.0, 0.1, 100.0, 0.01); // too large
        // The demand has doubled: a quota that was too large is too small now.
        assert_eq!(search.next(110.0, 0.45, 0.1, 200.0, 0.01), 180.0);
        assert_eq!(search.next(180.0, 0.1, 0.1, 200.0, 0.01), 180.0);
        assert_eq!(search.near(), Some(180.0));
    }
}
