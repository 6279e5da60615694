//! Two systems' runs in turn, made into a ratio with an interval that does not care how what disturbs them is distributed.

use crate::report::Row;
use crate::stats::{Measured, median};

/// A ratio of runs that stood side by side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub median: f64,
    /// With at least 95 % the median lies between the two, if there are pairs enough (six); else the least and the most.
    pub low: f64,
    pub high: f64,
    pub pairs: usize,
}

impl Ratio {
    /// Ours over theirs, pair by pair.
    pub fn of(ours: &Row, theirs: &Row, of: fn(&Measured) -> f64) -> Option<Ratio> {
        let pairs = ours.runs.iter().zip(&theirs.runs);
        Ratio::over(pairs.map(|(ours, theirs)| of(ours) / of(theirs)))
    }

    fn over(ratios: impl Iterator<Item = f64>) -> Option<Ratio> {
        let mut all: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        let rank = rank(all.len());
        Some(Ratio {
            median: median(all.iter().copied()),
            low: *all.get(rank)?,
            high: *all.get(all.len() - 1 - rank)?,
            pairs: all.len(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        format!(
            "{:.2}x [{:.2}, {:.2}] of {} pairs",
            self.median, self.low, self.high, self.pairs
        )
    }
}

/// The rank from either end (from 0) between which the median of so many lies with 95 %: of the binomial distribution.
fn rank(count: usize) -> usize {
    let (mut below, mut term) = (0.0, 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX)));
    for rank in 0..count / 2 {
        below += term;
        if below > 0.025 {
            return rank.saturating_sub(1);
        }
        term *= (count - rank) as f64 / (rank + 1) as f64;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables_of_the_sign_test() {
        assert_eq!(
            [1, 5, 6, 9, 11, 12, 21, 31].map(rank),
            [0, 0, 0, 1, 1, 2, 5, 9]
        );
    }

    #[test]
    fn a_median_between_its_bounds() {
        let nine = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0];
        let ratio = Ratio::over(nine.into_iter()).expect("nine");
        assert_eq!((ratio.low, ratio.median, ratio.high), (2.0, 5.0, 8.0));
        assert!(Ratio::over(std::iter::empty()).is_none());
    }
}
