//! One cache line to and fro between two processes: what the machine itself takes, and how the cores lie.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::clock;
use crate::party::{self, Party};
use crate::stats::{Samples, median};
use crate::systems::shared::Shared;

/// Trips of one timing, of which the median counts: an interrupted process differs from a distant core by it.
const TRIPS: usize = 31;
/// All of them take longer only if somebody else has one of the cores: where they lie farthest apart they take 20 us.
const LONGEST: Duration = Duration::from_millis(1);
/// It was the last trip.
const END: u64 = 1 << 63;
const PAGE: usize = 4096;

/// A page that the first two processes of a run share, with the line in it.
#[derive(Debug)]
pub struct Line {
    shared: Shared,
}

impl Line {
    /// Processes 0 and 1 of a run call it at once.
    pub fn open(party: &Party, me: usize) -> Result<Line> {
        let shared = if me == 0 {
            let shared = Shared::make(PAGE)?;
            party.send(1, 0, &[shared.fd()])?;
            shared
        } else {
            let (_, mut fds) = party.recv(0)?;
            ensure!(fds.len() == 1, "the other side's page");
            Shared::map(fds.remove(0), PAGE)?
        };
        Ok(Line { shared })
    }

    fn word(&self) -> &AtomicU64 {
        let at = self.shared.at(0, 8).cast::<AtomicU64>();
        // SAFETY: inside the mapping, zeroed at the start, aligned, accessed as an atomic only.
        unsafe { at.as_ref() }
    }

    /// The middle one of several trips there and back, in ticks; none if they took so long that one of the two sides did not run
    /// meanwhile. The other side is in [`Line::answer`], or soon will be.
    pub fn time(&self) -> Option<u64> {
        let word = self.word();
        let mut each = [0; TRIPS];
        let trip = |odd: u64| {
            // Ordering: release and acquire, as in a ring; partner: `answer`.
            word.store(odd, Ordering::Release);
            while word.load(Ordering::Acquire) == odd {
                std::hint::spin_loop();
            }
        };
        trip(1); // waits for the other side
        let begun = clock::ticks();
        let mut before = begun;
        for (odd, one) in (3..).step_by(2).zip(&mut each) {
            trip(odd);
            let now = clock::ticks();
            if now - begun > clock::in_ticks(LONGEST) {
                return None;
            }
            *one = now - before;
            before = now;
        }
        each.sort_unstable();
        Some(each[TRIPS / 2])
    }

    /// Lets the other side go on. Before the next timing it must have said, in some other way, that it did.
    pub fn end(&self) {
        // Ordering: as in `time`.
        self.word().store(END, Ordering::Release);
    }

    /// The other side of [`Line::time`] and [`Line::end`].
    pub fn answer(&self) {
        let word = self.word();
        loop {
            // Ordering: as in `time`.
            match word.load(Ordering::Acquire) {
                END => return word.store(0, Ordering::Release),
                odd if odd % 2 == 1 => word.store(odd + 1, Ordering::Release),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

/// There and back for 5 ms, the median over the runs, in nanoseconds; 0 if both sides are on one core, where spinning measures
/// nothing, or if never both had a core for as long as that takes.
pub fn round_trip(cores: [usize; 2], runs: usize) -> Result<f64> {
    if cores[0] == cores[1] {
        return Ok(0.0);
    }
    let mut each = Vec::new();
    for number in 0..runs as u64 {
        let ping = |party: &Party| {
            let line = Line::open(party, 0)?;
            let mut samples = Samples::new(1 << 13, 1);
            let begun = clock::ticks();
            let [end, last] = [5, 500].map(|ms| begun + clock::in_ticks(Duration::from_millis(ms)));
            loop {
                let is_full = line.time().is_some_and(|ticks| !samples.push(ticks));
                let now = clock::ticks();
                if is_full || now > end && !samples.is_empty() || now > last {
                    break;
                }
            }
            line.end();
            Ok(samples.finish("").into_iter().collect())
        };
        let pong = |party: &Party| {
            Line::open(party, 1)?.answer();
            Ok(Vec::new())
        };
        let done = party::each(number, &cores, |me, party| match me {
            0 => ping(party),
            _ => pong(party),
        })?;
        each.extend(done.into_iter().map(|m| m.median_ns));
    }
    Ok(match each.is_empty() {
        true => 0.0,
        false => (median(each) * 10.0).round() / 10.0,
    })
}
