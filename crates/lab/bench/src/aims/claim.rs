//! One promise, and whether it is kept.

use serde::Serialize;

/// How far a number may go.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// A number of several runs: what the medians say, and the least and the most that a single run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The size, or whatever else was varied.
    pub at: String,
    pub value: f64,
    pub least: f64,
    pub most: f64,
}

/// One promise.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// The row of the design's table.
    pub what: &'static str,
    /// Which number of it.
    pub number: String,
    /// `x` for ratios.
    pub unit: &'static str,
    pub bound: Bound,
    /// All sizes; none if it was not measured.
    pub found: Vec<Found>,
    /// Why not, if so.
    pub missing: Option<&'static str>,
}

impl Bound {
    /// By what factor the number misses it; at most 1 if it does not.
    pub fn off(self, value: f64) -> f64 {
        match self {
            // None of something that may not be is what was asked for.
            Bound::AtMost(most) if value <= most => (value / most).min(1.0),
            Bound::AtMost(most) => value / most,
            Bound::AtLeast(least) => least / value,
        }
    }
}

impl Claim {
    /// The size that is worst off: the promise is about each.
    pub fn worst(&self) -> Option<&Found> {
        let off = |found: &&Found| self.bound.off(found.value);
        self.found.iter().max_by(|a, b| off(a).total_cmp(&off(b)))
    }

    /// `reached`, or how far off it is.
    pub fn verdict(&self) -> String {
        let Some(worst) = self.worst() else {
            return format!(
                "not measured: {}",
                self.missing.unwrap_or("its peer is missing")
            );
        };
        match self.bound.off(worst.value) {
            off if off <= 1.0 => "reached".to_owned(),
            off if off < 1.1 => format!("**{off:.3}x off**"),
            off if off < 10.0 => format!("**{off:.2}x off**"),
            off if off.is_infinite() => "**not reached**".to_owned(),
            off => format!("**{off:.0}x off**"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(bound: Bound, values: &[f64]) -> Claim {
        let found = values.iter().map(|&value| Found {
            at: format!("at {value}"),
            value,
            least: value,
            most: value,
        });
        Claim {
            what: "a row",
            number: "a number".to_owned(),
            unit: "x",
            bound,
            found: found.collect(),
            missing: None,
        }
    }

    #[test]
    fn the_worst_size_decides() {
        let most = claim(Bound::AtMost(2.0), &[1.0, 3.0, 2.0]);
        assert_eq!(most.worst().map(|found| &*found.at), Some("at 3"));
        assert_eq!(most.verdict(), "**1.50x off**");
        let least = claim(Bound::AtLeast(2.0), &[4.0, 1.0, 2.0]);
        assert_eq!(least.worst().map(|found| &*found.at), Some("at 1"));
        assert_eq!(least.verdict(), "**2.00x off**");
    }

    #[test]
    fn a_bound_that_is_met_exactly_is_reached_and_a_near_miss_is_one() {
        assert_eq!(claim(Bound::AtMost(2.0), &[2.0]).verdict(), "reached");
        assert_eq!(claim(Bound::AtLeast(2.0), &[2.0]).verdict(), "reached");
        assert_eq!(claim(Bound::AtMost(15.0), &[-3.0]).verdict(), "reached");
        assert_eq!(claim(Bound::AtMost(0.0), &[0.0]).verdict(), "reached");
        let some = claim(Bound::AtMost(0.0), &[0.0, 0.25]);
        assert_eq!(some.verdict(), "**not reached**");
        assert_eq!(
            claim(Bound::AtMost(1.0), &[1.004]).verdict(),
            "**1.004x off**"
        );
    }

    #[test]
    fn nothing_measured_is_never_reached() {
        assert!(
            claim(Bound::AtMost(2.0), &[])
                .verdict()
                .starts_with("not measured")
        );
        let nan = claim(Bound::AtMost(2.0), &[f64::NAN]);
        assert_ne!(nan.verdict(), "reached");
    }
}
