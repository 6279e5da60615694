//! `tranship experiment`: the measurements of the CBUF paper, with real processes, and the orderings that hold.
//!
//! ```text
//!  plan ──► real: a manager, processes (part), a watch over memory (residency) ──► played ──► orderings, picture, report
//!      └──► simulated: the policy crate's programs ─────────────────────────────────┘
//! ```

mod bar;
mod figure7;
mod lines;
mod machine;
mod orderings;
mod part;
mod picture;
mod plan;
mod played;
mod processes;
mod real;
mod report;
mod residency;

use crate::args::experiment::{ExperimentArgs, Figure, PartArgs};
use crate::exit::Answer;
use anyhow::{Result, bail};
use bar::Bar;
use machine::Machine;
use orderings::Ordering;
use played::Played;
use tranship_policy::{Config, sim};

pub(crate) fn run(args: &ExperimentArgs) -> Result<Answer> {
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
    Ok(match orderings.iter().all(Ordering::held) {
        true => Answer::Yes,
        false => Answer::NotShown,
    })
}

/// Runs a process of an experiment.
pub(crate) fn run_part(args: &PartArgs) -> Result<Answer> {
    part::run(args)?;
    Ok(Answer::Yes)
}
