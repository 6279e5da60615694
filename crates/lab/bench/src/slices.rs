//! Samples of one run in slices of time, with a look at how the cores lie between each two: what was taken near and what was taken far
//! are told apart.

use crate::clock;
use crate::placement::{self, Placement};
use crate::stats::{Measured, Sampled, Samples, at_permille, median, of_sorted};

/// Slices of a run, about.
pub const SLICES: u32 = 25;

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
    /// What [`crate::line::Line::time`] says.
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
            (Look::Ticks(one), Look::Disturbed) | (Look::Disturbed, Look::Ticks(one)) => {
                (Some(Placement::Unclear), clock::ns(one))
            }
            (Look::Disturbed, Look::Disturbed) => (Some(Placement::Unclear), 0.0),
        }
    }
}

#[derive(Debug)]
pub struct Slices {
    samples: Samples,
    last: Look,
    cuts: Vec<Cut>,
}

/// The end of a slice.
#[derive(Debug)]
struct Cut {
    end: usize,
    placement: Option<Placement>,
    line_ns: f64,
}

impl Slices {
    /// The first slice begins with this look.
    pub fn new(capacity: usize, batch: u32) -> Slices {
        Slices {
            samples: Samples::new(capacity, batch),
            last: Look::No,
            cuts: Vec::with_capacity(4 * SLICES as usize),
        }
    }

    /// Looked before the first slice.
    pub fn begin(&mut self, look: Look) {
        self.last = look;
    }

    /// False once it is full.
    #[inline(always)]
    pub fn push(&mut self, ticks: u64) -> bool {
        self.samples.push(ticks)
    }

    /// A slice has ended, and the next one begins.
    pub fn cut(&mut self, look: Look) {
        let (placement, line_ns) = self.last.until(look);
        self.cuts.push(Cut {
            end: self.samples.len(),
            placement,
            line_ns,
        });
        self.last = look;
    }

    /// A measurement for each placement that was met.
    pub fn finish(self) -> Vec<Measured> {
        let met = placement::ALL.map(Some).into_iter().chain([None]);
        met.filter_map(|met| self.at(met)).collect()
    }

    fn at(&self, met: Option<Placement>) -> Option<Measured> {
        let begins = std::iter::once(0).chain(self.cuts.iter().map(|cut| cut.end));
        let (mut taken, mut lines) = (Vec::new(), Vec::new());
        for (begin, cut) in begins.zip(&self.cuts) {
            if cut.placement == met {
                taken.extend_from_slice(&self.samples.taken()[begin..cut.end]);
                lines.push(cut.line_ns);
            }
        }
        taken.sort_unstable();
        let batch = self.samples.batch();
        let measured = of_sorted(&taken, batch, "")?;
        Some(Measured {
            sampled: Some(Sampled {
                placement: met,
                samples: taken.len() as u64,
                p999_ns: clock::ns(at_permille(&taken, 999)) / f64::from(batch),
                line_ns: median(lines),
                round: 0,
            }),
            ..measured
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(ns: u64) -> u64 {
        clock::in_ticks(std::time::Duration::from_nanos(ns))
    }

    #[test]
    fn each_slice_goes_where_both_looks_say() {
        clock::calibrate();
        let (near, far) = (Look::Ticks(ticks(80)), Look::Ticks(ticks(450)));
        let mut slices = Slices::new(16, 1);
        slices.begin(near);
        slices.push(10);
        slices.push(12);
        slices.cut(near);
        slices.push(99);
        slices.cut(far);
        slices.push(50);
        slices.cut(far);
        slices.cut(near); // a slice without samples
        slices.push(14);
        slices.cut(near);
        slices.push(99);
        slices.cut(Look::Disturbed);
        let seen: Vec<_> = slices
            .finish()
            .into_iter()
            .map(|m| (m.sampled.expect("always"), m.median_ns))
            .map(|(s, ns)| (s.placement.map(Placement::name), s.samples, ns))
            .collect();
        assert_eq!(
            seen,
            [
                (Some("near"), 3, clock::ns(12)),
                (Some("far"), 1, clock::ns(50)),
                (Some("unclear"), 2, clock::ns(99)),
            ]
        );
    }

    #[test]
    fn who_cannot_look_has_no_placement() {
        clock::calibrate();
        let mut slices = Slices::new(16, 1);
        slices.begin(Look::No);
        slices.push(10);
        slices.cut(Look::No);
        let all = slices.finish();
        assert_eq!(all.len(), 1);
        let sampled = all[0].sampled.as_ref().expect("always");
        assert_eq!((sampled.placement, sampled.samples), (None, 1));
    }
}
