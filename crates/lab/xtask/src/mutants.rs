//! Changes the code in ways that a test has to notice, one at a time, and says which nobody noticed.
//!
//! The changes are written down in `crates/lab/xtask/mutations/*.txt` (`list` says how). They are made in a copy of the
//! tree under `target/mutants`, never in the tree itself. A change that nothing notices is killed by a new test, or
//! explained.

mod list;
mod table;
mod tree;
mod verdict;

use crate::findings::Findings;
use anyhow::{Context, Result, ensure};
use list::{Group, Mutation};
use std::path::Path;
use std::time::{Duration, Instant};
use table::Table;
use tree::{Tests, Tree};
use verdict::Verdict;

/// Checks that every change's text is found in exactly one place, so that the lists follow the code.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    for group in list::read(&root.join("crates/lab/xtask/mutations"))? {
        for mutation in &group.mutations {
            findings.saw();
            let text = std::fs::read_to_string(root.join(&mutation.file));
            if let Err(error) = text
                .map_err(Into::into)
                .and_then(|text| mutation.apply(&text))
            {
                findings.error(format!(
                    "{}: {}: {error:#}",
                    mutation.at(&group),
                    mutation.file
                ));
            }
        }
    }
    Ok(findings)
}

/// Runs the mutations that a filter fits (`Mutation::matches`); without filters, all. The answer is no if one lives
/// that should not.
pub(crate) fn run(root: &Path, filters: &[String]) -> Result<bool> {
    let folder = root.join("crates/lab/xtask/mutations");
    let tree = Tree::new(root)?;
    let mut table = Table::default();
    let mut wrong = Vec::new();
    let groups = list::read(&folder)?;
    for group in &groups {
        for mutation in &group.mutations {
            let text = tree.read(&mutation.file)?;
            mutation.apply(&text).with_context(|| mutation.at(group))?;
        }
    }
    for group in &groups {
        let wanted: Vec<&Mutation> = group
            .mutations
            .iter()
            .filter(|m| m.matches(group, filters))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let limit = baseline(&tree, group)?;
        for mutation in wanted {
            let verdict = try_one(&tree, group, mutation, limit)?;
            println!("{}", line(group, mutation, &verdict));
            let lives = verdict == Verdict::Survived;
            table.count(mutation, &verdict);
            if lives != mutation.why.is_some() || verdict == Verdict::DoesNotBuild {
                wrong.push(line(group, mutation, &verdict));
            }
        }
    }
    println!("\n{table}");
    if !wrong.is_empty() {
        println!("not as the list says:\n{}", wrong.join("\n"));
    }
    Ok(wrong.is_empty())
}

/// Checks that the tests pass without any change; returns how long they may take with one.
fn baseline(tree: &Tree, group: &Group) -> Result<Duration> {
    println!("== {}: {}", group.name, group.tests.join(" "));
    let built = tree.build(&group.tests)?;
    ensure!(built, "{}: the tests do not build", group.name);
    let begun = Instant::now();
    let passed = tree.run(&group.tests, Duration::from_secs(3600))?;
    ensure!(
        passed == Tests::Pass,
        "{}: without any change, {passed:?}",
        group.name
    );
    println!("   pass in {:?}", begun.elapsed());
    Ok(10 * begun.elapsed() + Duration::from_secs(30))
}

fn try_one(tree: &Tree, group: &Group, mutation: &Mutation, limit: Duration) -> Result<Verdict> {
    let changed = tree.change(&mutation.file, |text| mutation.apply(text))?;
    let tests = match tree.build(&group.tests) {
        Ok(true) => Some(tree.run(&group.tests, limit)),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    };
    changed.restore()?;
    Ok(match tests.transpose()? {
        Some(Tests::Pass) => Verdict::Survived,
        Some(Tests::Hang) => Verdict::Hung,
        Some(Tests::Fail(test)) => Verdict::Killed(test),
        None => Verdict::DoesNotBuild,
    })
}

fn line(group: &Group, mutation: &Mutation, verdict: &Verdict) -> String {
    let said = match verdict {
        Verdict::Killed(test) => format!("noticed by {test}"),
        Verdict::Hung => "noticed: a test hung".to_owned(),
        Verdict::Survived if mutation.why.is_some() => "lives, as explained".to_owned(),
        Verdict::Survived => "NOTHING NOTICES".to_owned(),
        Verdict::DoesNotBuild => "DOES NOT BUILD".to_owned(),
    };
    format!(
        "{}: {said}\n    {}: {}",
        mutation.at(group),
        mutation.file,
        mutation.shown()
    )
}
