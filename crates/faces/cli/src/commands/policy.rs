//! `tranship policy`: policies, one as a program of its own, and traces for a simulator.

mod record;
mod run;

use super::view::SCHEMA;
use crate::args::policy::PolicyAction;
use crate::exit::Answer;
use crate::output::{self, Table};
use anyhow::Result;
use serde_json::json;
use tranship_policy::POLICIES;

pub(crate) fn run(action: &PolicyAction) -> Result<Answer> {
    match action {
        PolicyAction::List { json } => list(*json)?,
        PolicyAction::Run(args) => run::run(args)?,
        PolicyAction::Record(args) => record::run(args)?,
    }
    Ok(Answer::Yes)
}

fn list(as_json: bool) -> Result<()> {
    if as_json {
        let policies = POLICIES.iter();
        let policies: Vec<_> = policies
            .map(|p| json!({ "name": p.name, "about": p.about }))
            .collect();
        return output::json(&json!({ "schema": SCHEMA, "policies": policies }));
    }
    let mut policies = Table::new(&["policy", "what it does"]);
    for p in POLICIES {
        policies.row(vec![p.name.to_owned(), p.about.to_owned()]);
    }
    Ok(policies.print()?)
}
