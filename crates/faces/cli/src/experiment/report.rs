//! Tables, JSON, and files.

use super::machine::Machine;
use super::orderings::{Ordering, percent};
use super::picture;
use super::plan::{BEGINS, ENDS, FALLS, OVER, PAGE, PEAK};
use super::played::{INTERFERER, Played, SERVER};
use crate::args::experiment::ExperimentArgs;
use crate::output::{self, Colour, Table, paint};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// The version of the JSON object.
pub(super) const SCHEMA: u32 = 1;

pub(super) fn write(
    args: &ExperimentArgs,
    machine: &Machine,
    all: &[Played],
    orderings: &[Ordering],
) -> Result<()> {
    let about = about(args, all);
    if let Some(path) = &args.svg {
        save(path, &picture::svg(&about, all))?;
    }
    if let Some(path) = &args.html {
        let tables = [summary(all), table_of(orderings)];
        let notes = [about.clone(), machine.text()];
        save(
            path,
            &picture::html(args.figure.name(), &notes, &tables, all),
        )?;
    }
    if args.json {
        return output::json(&answer(args, machine, all, orderings));
    }
    let mut out = output::stdout();
    writeln!(out, "{about}\n{}\n", machine.text())?;
    summary(all).write(&mut out)?;
    writeln!(out)?;
    show(orderings, &mut out)?;
    Ok(out.flush()?)
}

pub(super) fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Returns a line about the experiment, with its scale.
fn about(args: &ExperimentArgs, all: &[Played]) -> String {
    let period = all.first().map_or(0, |p| p.run.period_ms);
    let how = match args.simulated {
        true => "simulated".to_owned(),
        false => format!(
            "real processes, scale {0}: a second of the schedule takes {0} s",
            args.scale
        ),
    };
    format!(
        "{}: {how}; a page is {}; quotas every {period} ms of the schedule",
        args.figure.name(),
        output::size(PAGE)
    )
}

/// Returns the table of the time while most is wanted.
fn summary(all: &[Played]) -> Table {
    let mut table = Table::new(&[
        "run",
        ">pages",
        ">used",
        ">server/s",
        ">waits",
        ">quota",
        ">interferer/s",
        ">waits",
        ">quota",
    ]);
    for played in all {
        let peak = played.peak();
        let [server, other] = [SERVER, INTERFERER].map(|app| played.app(app, peak));
        let quotas = played.quotas(peak);
        table.row(vec![
            played.setting.name.clone(),
            played.setting.limit_pages.to_string(),
            format!("{:.0}", played.most_used()),
            format!("{:.0}", server.per_second),
            percent(server.share),
            format!("{:.0}", quotas[0]),
            format!("{:.0}", other.per_second),
            percent(other.share),
            format!("{:.0}", quotas[1]),
        ]);
    }
    table
}

pub(super) fn table_of(orderings: &[Ordering]) -> Table {
    let mut table = Table::new(&["", "what must hold", "measured"]);
    for ordering in orderings {
        let held = if ordering.held {
            "held"
        } else {
            "did not hold"
        };
        table.row(vec![
            held.to_owned(),
            ordering.what.clone(),
            ordering.measured.clone(),
        ]);
    }
    table
}

pub(super) fn show(orderings: &[Ordering], out: &mut impl Write) -> Result<()> {
    let colours = output::colour_on_stdout();
    for ordering in orderings {
        let held = match ordering.held {
            true => paint("held        ", Colour::Green, colours),
            false => paint("did not hold", Colour::Red, colours),
        };
        writeln!(out, "{held}  {}: {}", ordering.what, ordering.measured)?;
    }
    Ok(())
}

fn answer(
    args: &ExperimentArgs,
    machine: &Machine,
    all: &[Played],
    orderings: &[Ordering],
) -> Value {
    let one = |played: &Played| {
        let spans = [played.before(), played.peak(), played.after()];
        let spans = spans.map(|span| {
            let programs = [SERVER, INTERFERER].map(|app| played.app(app, span));
            json!({
                "from_ms": span.0,
                "to_ms": span.1,
                "programs": programs,
                "quota_pages": played.quotas(span),
            })
        });
        let mut one = json!({
            "name": played.setting.name,
            "policy": played.setting.policy,
            "limit_pages": played.setting.limit_pages,
            "target": played.setting.target,
            "period_ms": played.run.period_ms,
            "most_used_pages": played.most_used(),
            "before": spans[0],
            "peak": spans[1],
            "after": spans[2],
            "memory": played.memory,
        });
        if args.frames {
            one["frames"] = json!(played.run.frames);
        }
        one
    };
    json!({
        "schema": SCHEMA,
        "experiment": args.figure.name(),
        "simulated": args.simulated,
        "scale": args.scale,
        "page_bytes": PAGE,
        "schedule_ms": { "begins": BEGINS, "peak": PEAK, "falls": FALLS, "ends": ENDS, "over": OVER },
        "machine": machine,
        "runs": all.iter().map(one).collect::<Vec<_>>(),
        "orderings": orderings,
        "held": orderings.iter().all(Ordering::held),
    })
}
