//! `priority`: the paper's policy 3. The needs of a priority come before those of the next; headroom comes after all
//! needs, in the same order.

use crate::config::Config;
use crate::policy::{Policy, Wish};
use crate::predict::Needs;
use crate::round::Round;
use std::cmp::Reverse;

#[derive(Debug)]
pub(super) struct Priority {
    needs: Needs,
}

impl Priority {
    pub fn new(config: &Config) -> Priority {
        Priority {
            needs: Needs::new(config),
        }
    }
}

impl Policy for Priority {
    fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish> {
        let needs = self.needs.of(round);
        let mut levels: Vec<_> = (round.pools.iter())
            .map(|a| Reverse(a.state.rule.priority))
            .collect();
        levels.sort_unstable();
        levels.dedup();
        let mut wishes = Vec::with_capacity(2 * needs.len());
        for (pool, (a, need)) in round.pools.iter().zip(needs).enumerate() {
            let level = levels.partition_point(|l| *l < Reverse(a.state.rule.priority));
            let rank = |level: usize| u32::try_from(level).unwrap_or(u32::MAX);
            for (rank, up_to_bytes) in [
                (rank(level), need.bytes),
                (rank(level + levels.len()), need.roomy_bytes),
            ] {
                wishes.push(Wish {
                    pool,
                    rank,
                    up_to_bytes,
                });
            }
        }
        wishes
    }
}
