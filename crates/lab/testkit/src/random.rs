//! Randomness that can be repeated, and random instants.

use std::time::{Duration, Instant};

use crate::payload::mix;

/// Kills of a test: `TRANSHIP_KILLS` says how many, else `torture` where `TRANSHIP_TORTURE` is set, else `few`.
///
/// # Panics
/// When `TRANSHIP_KILLS` is not a number.
#[must_use]
pub fn kills(few: u64, torture: u64) -> u64 {
    match std::env::var("TRANSHIP_KILLS") {
        Ok(said) => said.parse().expect("TRANSHIP_KILLS is a number"),
        Err(_) if std::env::var_os("TRANSHIP_TORTURE").is_some() => torture,
        Err(_) => few,
    }
}

/// A generator that printed its seed.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
    seed: u64,
}

impl Random {
    /// Seeds from `TRANSHIP_SEED` if it is set, else freshly. Either way the seed is printed, so that a failed test
    /// says how to repeat it.
    ///
    /// # Panics
    /// When `TRANSHIP_SEED` is not a number.
    #[must_use]
    pub fn printed(test: &str) -> Self {
        let seed = std::env::var("TRANSHIP_SEED").map_or_else(
            |_| {
                let mut bytes = [0; 8];
                // SAFETY: the kernel writes at most 8 bytes into the local.
                unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0) };
                u64::from_ne_bytes(bytes)
            },
            |s| s.parse().expect("TRANSHIP_SEED is a decimal number"),
        );
        eprintln!("{test}: TRANSHIP_SEED={seed}");
        Self::seeded(seed)
    }

    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed, seed }
    }

    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.state)
    }

    /// Returns a number below `n` (0 when `n` is 0).
    pub fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Lets a random time below `longest` pass, by yielding: the instant at which to kill. Nothing is waited
    /// for by it.
    pub fn instant(&mut self, longest: Duration) {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let until = Instant::now() + Duration::from_nanos(self.below(nanos));
        while Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b, mut c) = (Random::seeded(7), Random::seeded(7), Random::seeded(8));
        let take = |r: &mut Random| (0..100).map(|_| r.below(1000)).collect::<Vec<_>>();
        let (a, b, c) = (take(&mut a), take(&mut b), take(&mut c));
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert!(a.iter().all(|n| *n < 1000));
        assert_eq!(Random::seeded(1).below(0), 0);
    }
}
