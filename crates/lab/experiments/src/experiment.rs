//! `tranship-lab experiment`: what the CBUF paper measured, with real processes, and what of it holds.
//!
//! ```text
//!  plan ──► real: a manager, the web server (web), processes (part), looks at memory (residency) ──► played ──► orderings, report
//!      └──► simulated: the policy crate's programs ─────────────────────────────────┘
//! ```

use crate::args::{ExperimentArgs, Figure};
use crate::machine::Machine;
use crate::orderings::{self, Ordering};
use crate::played::Played;
use crate::sim;
use crate::{figure7, figure9, output, plan, real, report};
use anyhow::{Result, bail};
use tranship_policy::Config;

/// The scale of `--quick`.
const QUICK: f64 = 0.05;

/// Whether all orderings held.
pub(crate) fn run(args: &ExperimentArgs) -> Result<bool> {
    let mut args = args.clone();
    if args.quick {
        args.scale = QUICK;
    }
    let args = &args;
    let settings = plan::settings(args.figure, &args.policy, &args.target)?;
    if args.figure == Figure::CbufFig7 {
        if args.simulated || !args.policy.is_empty() {
            bail!(
                "cbuf-fig7 is a measurement of costs: there is no policy in it, and nothing to simulate"
            );
        }
        return figure7::run(args);
    }
    if args.figure == Figure::CbufFig9 {
        return figure9::run(args);
    }
    let machine = Machine::now();
    let mut all: Vec<Played> = Vec::new();
    let settings = match args.simulated {
        true => settings,
        false => plan::after_unlimited(settings),
    };
    for (number, mut setting) in settings.iter().cloned().enumerate() {
        output::stage(args.json, &setting.name, number, settings.len());
        // How many pages the programs use when nothing is short depends on the machine.
        if let Some(first) = all.first().filter(|_| !args.simulated) {
            setting.limit_pages = plan::limit(first.used());
        }
        let setting = &setting;
        all.push(match args.simulated {
            true => {
                let scenario = setting.scenario(args.figure)?;
                let run = sim::run(&scenario, &Config::of(&setting.policy))?;
                Played::new(setting, run, None)
            }
            false => real::play(args.figure, setting, args.scale)?,
        });
    }
    let is_steered = args.simulated || args.scale >= orderings::STEERED;
    let orderings = orderings::of(args.figure, &all, is_steered);
    report::write(args, &machine, &all, &orderings)?;
    Ok(orderings.iter().all(Ordering::held))
}
