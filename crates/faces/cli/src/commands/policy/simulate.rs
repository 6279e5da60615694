//! `tranship policy simulate`.

use super::super::view::SCHEMA;
use super::played::{Played, percent, tables};
use super::{picture, trace};
use crate::args::policy::SimulateArgs;
use crate::output::{self, size};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Write;
use tranship_policy::sim::{self, SCENARIOS, Scenario};
use tranship_policy::{Config, POLICIES, find};

pub(super) fn run(args: &SimulateArgs) -> Result<()> {
    let scenario = scenario(args)?;
    let mut names: Vec<&str> = args.policy.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = POLICIES.iter().map(|p| p.name).collect();
    }
    for name in &names {
        find(name)?; // before anything is played
    }
    let play = |name: &&str| Ok(Played::of(sim::run(&scenario, &Config::of(name))?));
    let all = names.iter().map(play).collect::<Result<Vec<Played>>>()?;
    let write = |path: &std::path::Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    };
    if let Some(path) = &args.svg {
        write(path, picture::svg(&scenario, &all))?;
    }
    if let Some(path) = &args.html {
        write(path, picture::html(&scenario, &all))?;
    }
    match args.json {
        true => output::json(&answer(&scenario, &all, args.frames)),
        false => show(&scenario, &all),
    }
}

fn scenario(args: &SimulateArgs) -> Result<Scenario> {
    if let Some(path) = &args.trace {
        let trace = trace::load(path)?;
        let name = path.display().to_string();
        let scenario = sim::from_trace(&name, &trace).context(name.clone())?;
        return Ok(scenario);
    }
    let Some(name) = args.scenario.as_deref() else {
        bail!("nothing to simulate: name a TRACE, or a --scenario");
    };
    let Some(scenario) = sim::scenario(name) else {
        let known: Vec<_> = SCENARIOS.iter().map(|s| s.name).collect();
        bail!(
            "there is no scenario `{name}`; there are {}, `paper:PAGES:TARGET` and `pressure:TARGET` with a target from 0 to below 1",
            known.join(", ")
        );
    };
    Ok(scenario)
}

fn answer(scenario: &Scenario, all: &[Played], frames: bool) -> Value {
    let one = |played: &Played| {
        let mut one = json!({
            "policy": played.run.policy,
            "programs": played.apps,
            "pools": played.pools,
            "moved_per_period": played.moved,
        });
        if frames {
            one["frames"] = json!(played.run.frames);
        }
        one
    };
    json!({
        "schema": SCHEMA,
        "scenario": scenario.name,
        "about": scenario.about,
        "limit_bytes": scenario.limit_pages * scenario.page_bytes,
        "period_ms": scenario.period_ms,
        "runs": all.iter().map(one).collect::<Vec<_>>(),
    })
}

fn show(scenario: &Scenario, all: &[Played]) -> Result<()> {
    let mut out = output::stdout();
    let limit = size(scenario.limit_pages * scenario.page_bytes);
    writeln!(
        out,
        "{}: {}\n{limit} in all, quotas every {} ms, {:.1} s\n",
        scenario.name,
        scenario.about,
        scenario.period_ms,
        scenario.end_ms as f64 / 1000.0
    )?;
    let [apps, pools] = tables(all);
    apps.write(&mut out)?;
    writeln!(out)?;
    pools.write(&mut out)?;
    writeln!(out)?;
    for played in all {
        let (policy, moved) = (&played.run.policy, percent(played.moved));
        writeln!(
            out,
            "{policy}: {moved} of the memory changes hands in a period"
        )?;
    }
    Ok(out.flush()?)
}
