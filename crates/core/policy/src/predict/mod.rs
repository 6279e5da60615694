//! The two predictors, for policies to build upon.

mod cost;
mod search;

pub use cost::{Cost, Need};
pub use search::Search;

use crate::config::Config;
use crate::round::{Activity, Round};
use std::collections::BTreeMap;

/// [`Cost`] for each pool.
#[derive(Debug)]
pub(crate) struct Needs {
    config: Config,
    pools: BTreeMap<u32, Cost>,
}

impl Needs {
    pub fn new(config: &Config) -> Needs {
        Needs {
            config: config.clone(),
            pools: BTreeMap::new(),
        }
    }

    /// Returns the needs of all pools of a round, in its order. Pools that are gone are forgotten.
    pub fn of(&mut self, round: &Round<'_>) -> Vec<Need> {
        let mut before = std::mem::take(&mut self.pools);
        let one = |a: &Activity<'_>| {
            let known = before.remove(&a.state.id).filter(|_| !a.fresh);
            let mut cost = known.unwrap_or_default();
            let need = cost.predict(a, &self.config);
            self.pools.insert(a.state.id, cost);
            need
        };
        round.pools.iter().map(one).collect()
    }
}
