//! Round trips and streams over channels that were there before, while their manager is attacked.
//!
//! Both honest domains are on one core and sleep when there is nothing; manager and attackers are on the other core.
//! The cost of a busy neighbouring core, by any program, is measured beside it: processors of a virtual machine may be
//! two threads of one core.

use anyhow::{Context, Result};

use super::cast::{Times, row};
use super::pair::{self, Ask, Kind};
use super::stage::Stage;
use crate::options::Common;
use crate::plan::Outcome;
use crate::stats::median;

/// Of what is sampled elsewhere.
const LONGER: u32 = 10;
/// How much longer it may take beside attackers.
const MOST: f64 = 1.05;
const BESIDE: [&str; 3] = ["idle", "busy", "besieged"];

pub fn measure(common: &Common, attackers: usize, outcome: &mut Outcome) -> Result<()> {
    let [theirs, ours] = common.cores();
    let stage = Stage::new(Some(theirs))?;
    let pong = stage.honest(pair::pong())?;
    pong.send(&ours)?;
    let () = pong.recv().with_context(|| pong.stderr())?;
    let ping = stage.honest(pair::ping())?;
    ping.send(&ours)?;
    let () = ping.recv().with_context(|| ping.stderr())?;
    let spinner = stage.honest(pair::spinner())?;
    spinner.send(&theirs)?;
    let () = spinner.recv()?;
    spinner.stop();
    let load = stage.load(attackers, Some(theirs))?;
    super::clients::until_all_attack(&load, attackers)?;
    load.pause();
    let time = common.budget() * LONGER;
    let ask = |kind| -> Result<Times> {
        ping.send(&Ask { kind, time })?;
        ping.recv().with_context(|| ping.stderr())
    };
    let mut seen: Vec<(&'static str, Kind, Times)> = Vec::new();
    for _ in 0..common.runs() {
        for beside in BESIDE {
            match beside {
                "busy" => spinner.resume(),
                "besieged" => load.resume(),
                _ => {}
            }
            for kind in [Kind::RoundTrip, Kind::Stream] {
                seen.push((beside, kind, ask(kind)?));
            }
            match beside {
                "busy" => spinner.stop(),
                "besieged" => load.pause(),
                _ => {}
            }
        }
    }
    load.resume();
    drop(load);
    for kind in [Kind::RoundTrip, Kind::Stream] {
        let of = |beside| {
            let of = seen.iter().filter(move |s| s.0 == beside && s.1 == kind);
            of.map(|(_, _, times)| times)
        };
        for beside in BESIDE {
            let (op, bytes) = (kind.name(), Some(pair::PAYLOAD));
            outcome.rows.push(row(beside, op, bytes, of(beside)));
        }
        let mid = |beside| median(of(beside).map(|times| times.median));
        let (idle, busy, besieged) = (mid("idle"), mid("busy"), mid("besieged"));
        let (times, neighbour) = (besieged / idle, busy / idle);
        let word = if times <= MOST {
            "within"
        } else {
            "not within"
        };
        outcome.verdicts.push(format!(
            "{}: {times:.3} times as long beside attackers, {word} {MOST}; {neighbour:.3} beside a busy core",
            kind.name()
        ));
    }
    Ok(())
}
