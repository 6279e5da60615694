//! Results of a simulation, for tables and pictures.

use crate::output::{Table, size};
use crate::sim::{self, AppFigures, PoolFigures, Run};

/// A run and its figures.
pub(crate) struct Played {
    pub run: Run,
    pub apps: Vec<AppFigures>,
    pub pools: Vec<PoolFigures>,
    /// The part of all memory that the quotas of a period move, on average.
    pub moved: f64,
}

impl Played {
    pub fn of(run: Run) -> Played {
        let (apps, pools) = sim::figures(&run, 0, u64::MAX);
        let bytes: u64 = (run.frames.windows(2))
            .flat_map(|w| w[0].pools.iter().zip(&w[1].pools))
            .map(|(a, b)| b.quota_bytes.saturating_sub(a.quota_bytes))
            .sum();
        let periods = run.frames.len().saturating_sub(1).max(1);
        let moved = bytes as f64 / periods as f64 / run.limit_bytes.max(1) as f64;
        Played {
            run,
            apps,
            pools,
            moved,
        }
    }
}

/// The tables, for people: programs, then pools.
pub(crate) fn tables(all: &[Played]) -> [Table; 2] {
    let mut apps = Table::new(&["policy", "program", ">per second", ">waits"]);
    let mut pools = Table::new(&[
        "policy",
        "pool",
        ">quota",
        ">memory",
        ">waiting",
        ">largest step",
    ]);
    for played in all {
        let policy = || played.run.policy.clone();
        for app in &played.apps {
            apps.row(vec![
                policy(),
                app.name.clone(),
                format!("{:.0}", app.per_second),
                percent(app.share),
            ]);
        }
        for pool in &played.pools {
            pools.row(vec![
                policy(),
                pool.name.clone(),
                mean_size(pool.quota_bytes),
                mean_size(pool.resident_bytes),
                format!("{:.1}", pool.blocked),
                percent(pool.largest_step),
            ]);
        }
    }
    [apps, pools]
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a mean of sizes
fn mean_size(bytes: f64) -> String {
    size(bytes as u64)
}
