//! How two cores lie to each other: the host of a virtual machine moves its processors within seconds, and they are two machines.

use serde::{Deserialize, Serialize};

use crate::clock;

/// Longer there and back for a cache line is from one complex of cores to another: between the 60 to 120 ns and the 300 to 480 that
/// were met.
pub const NEAR_NS: f64 = 170.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// They share a cache, or are threads of one core.
    Near,
    Far,
    /// One before a sample and the other after it, or nobody could look: not known which it was meanwhile.
    Unclear,
}

impl Placement {
    /// By a cache line's way there and back before and after.
    pub fn of(before_ns: f64, after_ns: f64) -> Placement {
        match [before_ns, after_ns].map(|ns| ns < NEAR_NS) {
            [true, true] => Placement::Near,
            [false, false] => Placement::Far,
            _ => Placement::Unclear,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Placement::Near => "near",
            Placement::Far => "far",
            Placement::Unclear => "unclear",
        }
    }
}

/// A look at the cores: ticks of a cache line there and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Ticks(u64),
    /// Somebody else had one of the cores.
    Disturbed,
    /// Nobody looks.
    No,
}

impl Look {
    /// Time that [`crate::line::Line::time`] returned.
    pub fn of(timed: Option<u64>) -> Look {
        timed.map_or(Look::Disturbed, Look::Ticks)
    }

    /// How the cores lay between this look and the next, and how long a line took there and back, in nanoseconds.
    pub fn until(self, next: Look) -> (Option<Placement>, f64) {
        match (self, next) {
            (Look::No, _) | (_, Look::No) => (None, 0.0),
            (Look::Ticks(before), Look::Ticks(after)) => {
                let [before, after] = [before, after].map(clock::ns);
                (Some(Placement::of(before, after)), (before + after) / 2.0)
            }
            (Look::Ticks(one), _) | (_, Look::Ticks(one)) => {
                (Some(Placement::Unclear), clock::ns(one))
            }
            _ => (Some(Placement::Unclear), 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_timings_decide() {
        assert_eq!(Placement::of(60.0, 120.0), Placement::Near);
        assert_eq!(Placement::of(430.0, 480.0), Placement::Far);
        assert_eq!(Placement::of(60.0, 430.0), Placement::Unclear);
        assert_eq!(Placement::of(430.0, 60.0), Placement::Unclear);
    }
}
