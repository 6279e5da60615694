//! `tranship-lab experiment`: what the CBUF paper measured, with real processes, and what of it holds.
//!
//! ```text
//!  plan ──► real: a manager, processes (part), a watch over memory (residency) ──► played ──► orderings, report
//!      └──► simulated: the policy crate's programs ─────────────────────────────────┘
//! ```

use crate::args::{ExperimentArgs, Figure};
use crate::bar::Bar;
use crate::machine::Machine;
use crate::orderings::{self, Ordering};
use crate::played::Played;
use crate::sim;
use crate::{figure7, plan, real, report};
use anyhow::{Result, bail};
use tranship_policy::Config;

/// Whether all orderings held.
pub(crate) fn run(args: &ExperimentArgs) -> Result<bool> {
    let settings = plan::settings(args.figure, &args.policy, &args.target)?;
    if args.figure == Figure::CbufFig7 {
        if args.simulated || !args.policy.is_empty() {
            bail!(
                "cbuf-fig7 is a measurement of costs: there is no policy in it, and nothing to simulate"
            );
        }
        return figure7::run(args);
    }
    let machine = Machine::now();
    let mut bar = Bar::new(args.json);
    let mut all = Vec::new();
    for (number, setting) in settings.iter().enumerate() {
        bar.stage(&setting.name, number, settings.len());
        all.push(match args.simulated {
            true => {
                let scenario = setting.scenario(args.figure)?;
                let run = sim::run(&scenario, &Config::of(&setting.policy))?;
                Played::new(setting, run, None)
            }
            false => real::play(args.figure, setting, args.scale, &mut bar)?,
        });
    }
    bar.clear();
    let orderings = orderings::of(args.figure, &all);
    report::write(args, &machine, &all, &orderings)?;
    Ok(orderings.iter().all(Ordering::held))
}
