//! A figure's program, and its report.

use super::figure::{Done, Figure};
use super::keeper::{End, Keeper};
use super::rows::{self, Found, Rule};
use crate::args::Scale;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// An experiment's exit code when an ordering did not hold.
const NOT_SHOWN: i32 = crate::orderings::NOT_SHOWN as i32;

/// Reports by their commands, with what was skipped: figures of one program share its run.
pub(super) type Known = BTreeMap<String, (Value, Vec<String>)>;

/// Runs it, and looks at its report.
pub(super) fn measure(
    figure: &Figure,
    scale: Scale,
    out: &Path,
    keeper: &Keeper,
    known: &mut Known,
) -> Done {
    let more = match scale {
        Scale::Small => &figure.small,
        Scale::Whole => &figure.whole,
    };
    let command = format!("{} {more}", figure.command).trim().to_owned();
    let begun = Instant::now();
    let mut skipped = Vec::new();
    let report = match known.get(&command) {
        Some((report, before)) => {
            skipped.clone_from(before);
            Ok(report.clone())
        }
        None => report(figure, &command, keeper, &mut skipped),
    };
    let mut done = Done {
        id: figure.id.clone(),
        figure: figure.clone(),
        failed: None,
        seconds: begun.elapsed().as_secs_f64(),
        command: command.clone(),
        skipped,
        orderings: Vec::new(),
        rows: Vec::new(),
    };
    match report.and_then(|report| keep(&report, &figure.id, out).map(|()| report)) {
        Ok(report) => {
            known
                .entry(command)
                .or_insert_with(|| (report.clone(), done.skipped.clone()));
            done.rows = rows::of(&report);
            done.orderings = figure
                .ordering
                .iter()
                .map(|rule: &Rule| rule.look(&done.rows))
                .collect();
            let own = serde_json::from_value::<Vec<Found>>(report["orderings"].clone());
            done.orderings.extend(own.unwrap_or_default());
            if done.rows.is_empty() && done.skipped.is_empty() {
                done.failed = Some("the report has no rows".to_owned());
            }
        }
        Err(error) => done.failed = Some(format!("{error:#}")),
    }
    done
}

/// The whole report, for other programs.
fn keep(report: &Value, id: &str, out: &Path) -> Result<()> {
    let path = out.join(format!("{id}.json"));
    std::fs::write(&path, report.to_string()).with_context(|| format!("writing {}", path.display()))
}

fn report(
    figure: &Figure,
    command: &str,
    keeper: &Keeper,
    skipped: &mut Vec<String>,
) -> Result<Value> {
    let mut words = command.split_whitespace();
    let name = words.next().context("no program")?;
    let own = std::env::current_exe().context("this program's path")?;
    let program = own.with_file_name(name);
    if let (false, Some(needs)) = (program.is_file(), &figure.needs) {
        skipped.push(format!(
            "SKIPPED: {}: no {name} beside tranship-lab: {needs}",
            figure.id
        ));
        return Ok(Value::Null);
    }
    ensure!(
        program.is_file(),
        "no {name} beside tranship-lab: build it first"
    );
    // Files: a pipe ends only when its last holder has closed it, and a daemon that outlives the program does not.
    let (out, error) = (
        tempfile::NamedTempFile::new().context("a file for the output")?,
        tempfile::NamedTempFile::new().context("a file for the errors")?,
    );
    let mut started = Command::new(&program);
    started
        .args(words)
        .args((!figure.lines).then_some("--json"))
        .stdin(Stdio::null())
        .stdout(out.reopen()?)
        .stderr(error.reopen()?);
    let ended = keeper.run(&mut started);
    let ended = ended.with_context(|| format!("running {}", program.display()))?;
    let text = std::fs::read(out.path()).context("its output")?;
    let text = String::from_utf8(text).context("its output")?;
    let said = std::fs::read(error.path()).context("its errors")?;
    let said = String::from_utf8_lossy(&said);
    skipped.extend(
        said.lines()
            .filter(|line| line.starts_with("SKIPPED: "))
            .map(str::to_owned),
    );
    let last = said
        .lines()
        .rev()
        .find(|line| !line.starts_with("SKIPPED: "));
    let last = last.unwrap_or("it said nothing");
    match ended {
        End::Ended(status) if status.success() || status.code() == Some(NOT_SHOWN) => {}
        End::Ended(status) => bail!("{status}: {last}"),
        End::Killed(why) => bail!("{why}, so it was killed with all that it started: {last}"),
    }
    match figure.lines {
        true => Ok(rows::report_of_lines(&text)),
        false => serde_json::from_str(&text).context("its report"),
    }
}
