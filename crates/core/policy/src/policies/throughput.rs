//! `throughput`: the paper's policies 1 and 2. With enough memory every prediction is met. Otherwise needs come before
//! headroom, and both are met up to one level.

use crate::config::Config;
use crate::policy::{Policy, Wish};
use crate::predict::Needs;
use crate::round::Round;

#[derive(Debug)]
pub(super) struct Throughput {
    needs: Needs,
}

impl Throughput {
    pub fn new(config: &Config) -> Throughput {
        Throughput {
            needs: Needs::new(config),
        }
    }
}

impl Policy for Throughput {
    fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish> {
        let needs = self.needs.of(round);
        let both = |(pool, need): (usize, crate::predict::Need)| {
            let wish = |rank, up_to_bytes| Wish {
                pool,
                rank,
                up_to_bytes,
            };
            [wish(0, need.bytes), wish(1, need.roomy_bytes)]
        };
        needs.into_iter().enumerate().flat_map(both).collect()
    }
}
