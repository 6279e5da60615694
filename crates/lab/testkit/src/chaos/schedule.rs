//! Schedule of blows out of a seed: the party, the time, and the harm.

use crate::Random;
use std::fmt;
use std::time::Duration;

/// Harm to a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL; a fresh process takes its place.
    Kill,
    /// SIGSTOP; it goes on later.
    Stop,
}

/// One party is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blow {
    /// Number of the victim in the list of parties.
    pub victim: usize,
    pub harm: Harm,
    /// Time after the one before.
    pub after: Duration,
}

/// Blows that fall together, and the order in which the struck recover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub number: u64,
    pub blows: Vec<Blow>,
    /// Victims, with the time before each.
    pub recovery: Vec<(usize, Duration)>,
    /// Whether flows that do not depend on the victims are waited for before the victims recover.
    pub looks: bool,
}

impl Step {
    /// Returns whether a party is stopped when another one has just been killed.
    #[must_use]
    pub fn stops_amid_a_death(&self, party: usize) -> bool {
        let stops = |b: &Blow| (b.victim, b.harm) == (party, Harm::Stop);
        let killed = |b: &Blow| b.harm == Harm::Kill && b.victim != party;
        let at = self.blows.iter().position(stops);
        at.is_some_and(|at| self.blows.iter().take(at).any(killed))
    }
}

/// Longest pause between two blows.
const LONGEST: Duration = Duration::from_millis(8);

/// An endless row of steps, the same for the same seed and number of parties.
#[derive(Debug, Clone)]
pub struct Schedule {
    random: Random,
    parties: usize,
    number: u64,
}

impl Schedule {
    #[must_use]
    pub fn new(seed: u64, parties: usize) -> Self {
        Self {
            random: Random::seeded(seed),
            parties,
            number: 0,
        }
    }

    fn pause(&mut self) -> Duration {
        let nanos = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random.below(nanos))
    }

    /// Returns so many of the parties, in any order.
    fn some(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.parties).collect();
        let below =
            |random: &mut Random, n: usize| usize::try_from(random.below(n as u64)).unwrap_or(0);
        let take = |_| all.swap_remove(below(&mut self.random, all.len()));
        (0..n.min(self.parties)).map(take).collect()
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.number += 1;
        let n = match self.random.below(12) {
            0 => self.parties,
            1..=3 => 2,
            _ => 1,
        };
        let victims = self.some(n);
        let blow = |victim| Blow {
            victim,
            harm: if self.random.one_in(2) {
                Harm::Kill
            } else {
                Harm::Stop
            },
            after: self.pause(),
        };
        let mut blows: Vec<Blow> = victims.iter().copied().map(blow).collect();
        // A party that stands still may be killed as well.
        if let (Some(&first), true) = (blows.first(), self.random.one_in(6)) {
            let after = self.pause();
            blows.push(Blow {
                harm: Harm::Kill,
                after,
                ..first
            });
        }
        let mut order = victims;
        if self.random.one_in(2) {
            order.reverse();
        }
        let recovery = order
            .into_iter()
            .map(|victim| (victim, self.pause()))
            .collect();
        Some(Step {
            number: self.number,
            blows,
            recovery,
            looks: !self.random.one_in(4),
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}:", self.number)?;
        for blow in &self.blows {
            write!(f, " {:?} {} after {:?}", blow.harm, blow.victim, blow.after)?;
        }
        write!(f, "; up again: {:?}", self.recovery)
    }
}

/// Steps of a run: as many as fit into a normal test, as `TRANSHIP_ROUNDS` says, or as a torture run asks for.
///
/// # Panics
/// When `TRANSHIP_ROUNDS` is not a number.
#[must_use]
pub fn rounds(normal: usize) -> usize {
    match (
        std::env::var("TRANSHIP_ROUNDS"),
        std::env::var_os("TRANSHIP_TORTURE"),
    ) {
        (Ok(rounds), _) => rounds.parse().expect("TRANSHIP_ROUNDS is a number"),
        (_, Some(_)) => 100 * normal,
        _ => normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_strikes_the_same() {
        let take = |seed| Schedule::new(seed, 4).take(50).collect::<Vec<_>>();
        assert_eq!(take(3), take(3));
        assert_ne!(take(3), take(4));
    }

    #[test]
    fn a_stop_after_a_kill_is_amid_a_death() {
        let step = |blows: [(usize, Harm); 2]| Step {
            number: 1,
            blows: blows
                .map(|(victim, harm)| Blow {
                    victim,
                    harm,
                    after: Duration::ZERO,
                })
                .into(),
            recovery: Vec::new(),
            looks: true,
        };
        let (kill, stop) = (Harm::Kill, Harm::Stop);
        assert!(step([(2, kill), (0, stop)]).stops_amid_a_death(0));
        assert!(!step([(0, stop), (2, kill)]).stops_amid_a_death(0));
        assert!(!step([(2, kill), (1, stop)]).stops_amid_a_death(0));
        assert!(!step([(0, stop), (0, kill)]).stops_amid_a_death(0));
    }

    #[test]
    fn everybody_is_struck_in_every_way_and_recovers() {
        let steps: Vec<Step> = Schedule::new(9, 4).take(300).collect();
        for victim in 0..4 {
            for harm in [Harm::Kill, Harm::Stop] {
                let hit = |b: &Blow| (b.victim, b.harm) == (victim, harm);
                assert!(
                    steps
                        .iter()
                        .any(|s| s.blows.len() == 1 && s.blows.iter().any(hit))
                );
            }
        }
        assert!(steps.iter().any(|s| s.recovery.len() == 4));
        for step in &steps {
            let up = |b: &Blow| step.recovery.iter().filter(|r| r.0 == b.victim).count() == 1;
            assert!(step.blows.iter().all(up), "{step}");
        }
    }
}
