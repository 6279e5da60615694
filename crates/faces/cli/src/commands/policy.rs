//! `tranship policy`: policies, and their simulation.

mod picture;
mod played;
mod record;
mod run;
mod simulate;
mod trace;

use super::view::SCHEMA;
use crate::args::policy::PolicyAction;
use crate::exit::Answer;
use crate::output::{self, Table};
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use tranship_policy::POLICIES;
use tranship_policy::sim::SCENARIOS;

pub(crate) fn run(action: &PolicyAction) -> Result<Answer> {
    match action {
        PolicyAction::List { json } => list(*json)?,
        PolicyAction::Run(args) => run::run(args)?,
        PolicyAction::Record(args) => record::run(args)?,
        PolicyAction::Simulate(args) => simulate::run(args)?,
    }
    Ok(Answer::Yes)
}

fn list(as_json: bool) -> Result<()> {
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
    let mut out = output::stdout();
    policies.write(&mut out)?;
    writeln!(out)?;
    scenarios.write(&mut out)?;
    Ok(out.flush()?)
}
