//! Tables and JSON.

use crate::args::ExperimentArgs;
use crate::machine::Machine;
use crate::orderings::{Ordering, percent};
use crate::output::{self, Table};
use crate::plan::{BEGINS, ENDS, FALLS, OVER, PAGE, PEAK};
use crate::played::{INTERFERER, Played, SERVER};
use anyhow::Result;
use serde_json::{Value, json};

/// The version of the JSON object.
pub(crate) const SCHEMA: u32 = 1;

pub(crate) fn write(
    args: &ExperimentArgs,
    machine: &Machine,
    all: &[Played],
    orderings: &[Ordering],
) -> Result<()> {
    let about = about(args, all);
    if args.json {
        return output::json(&answer(args, machine, all, orderings));
    }
    println!("{about}\n{}\n", machine.text());
    summary(all).print();
    show(orderings);
    Ok(())
}

/// Describes the figure in a line, with its scale.
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

/// While most is wanted.
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
            format!("{:.0}", played.used()),
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

pub(crate) fn show(orderings: &[Ordering]) {
    for Ordering {
        held,
        what,
        measured,
        ..
    } in orderings
    {
        let held = if *held { "held" } else { "did not hold" };
        println!("{held:<12}  {what}: {measured}");
    }
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
            "used_pages": played.used(),
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
