//! `tranship-lab simulate` and `list`.

use crate::args::SimulateArgs;
use crate::output::{self, Table, size};
use crate::report::SCHEMA;
use crate::sim::{self, SCENARIOS, Scenario};
use crate::tables::{Played, percent, tables};
use crate::trace;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tranship_policy::{Config, POLICIES, find};

pub(crate) fn run(args: &SimulateArgs) -> Result<()> {
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
    match args.json {
        true => output::json(&answer(&scenario, &all, args.frames)),
        false => {
            show(&scenario, &all);
            Ok(())
        }
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

fn show(scenario: &Scenario, all: &[Played]) {
    let limit = size(scenario.limit_pages * scenario.page_bytes);
    println!(
        "{}: {}\n{limit} in all, quotas every {} ms, {:.1} s\n",
        scenario.name,
        scenario.about,
        scenario.period_ms,
        scenario.end_ms as f64 / 1000.0
    );
    tables(all).iter().for_each(Table::print);
    for played in all {
        let (policy, moved) = (&played.run.policy, percent(played.moved));
        println!("{policy}: {moved} of the memory changes hands in a period");
    }
}

/// Lists the policies and scenarios.
pub(crate) fn list(as_json: bool) -> Result<()> {
    if as_json {
        let policies = POLICIES.iter();
        let policies: Vec<_> = policies
            .map(|p| json!({ "name": p.name, "about": p.about }))
            .collect();
        let scenarios = SCENARIOS.iter();
        let scenarios: Vec<_> = scenarios
            .map(|s| json!({ "name": s.name, "about": s.about }))
            .collect();
        let all = json!({ "schema": SCHEMA, "policies": policies, "scenarios": scenarios });
        return output::json(&all);
    }
    let mut policies = Table::new(&["policy", "what it does"]);
    for p in POLICIES {
        policies.row(vec![p.name.to_owned(), p.about.to_owned()]);
    }
    let mut scenarios = Table::new(&["scenario", "what happens"]);
    for s in SCENARIOS {
        scenarios.row(vec![s.name.to_owned(), s.about.to_owned()]);
    }
    policies.print();
    scenarios.print();
    Ok(())
}
