//! `tranship zcopy explain`: the choices of senders, and their reasons.

use crate::args::zcopy::{ExplainArgs, ZcopyAction};
use crate::exit::Answer;
use crate::output::{self, Table, size};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use tranship::zcopy::Report;

pub(super) fn run(action: &ZcopyAction) -> Result<Answer> {
    let ZcopyAction::Explain(args) = action;
    let reports = find(args)?;
    if args.json {
        let programs: Vec<_> = reports.iter().map(as_json).collect();
        output::json(&json!({ "programs": programs }))?;
    } else if reports.is_empty() {
        eprintln!("no program that may be looked at has sent anything by ZCopy");
    } else {
        let mut out = output::stdout();
        for (number, report) in reports.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            write(&mut out, report)?;
        }
        out.flush()?;
    }
    Ok((!reports.is_empty()).into())
}

fn find(args: &ExplainArgs) -> Result<Vec<Report>> {
    let Some(what) = &args.what else {
        let all = Report::processes().into_iter();
        // A process that has ended meanwhile has no report.
        return Ok(all.filter_map(|pid| Report::of_process(pid).ok()).collect());
    };
    if let Some(pid) = what.to_str().and_then(|text| text.parse().ok()) {
        return Ok(vec![Report::of_process(pid)?]);
    }
    if what.is_dir() {
        return in_folder(what);
    }
    Ok(vec![Report::of_file(what)?])
}

fn in_folder(folder: &Path) -> Result<Vec<Report>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "zcopy"))
        .collect();
    files.sort();
    ensure!(
        !files.is_empty(),
        "{} has no counts (PROGRAM.PID.zcopy): a program leaves them that ran with TRANSHIP_ZCOPY_EXPLAIN={0}",
        folder.display()
    );
    files
        .iter()
        .map(|file| Ok(Report::of_file(file)?))
        .collect()
}

fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let counts = &report.counts;
    let all = counts.referred_bytes + counts.copied_bytes;
    writeln!(
        out,
        "{} (process {}): {} sends, {}; {} ({}) by reference, {} copied",
        report.program,
        report.pid,
        counts.sends,
        size(all),
        size(counts.referred_bytes),
        percent(counts.referred_bytes, all),
        size(counts.copied_bytes)
    )?;
    if report.unseen > 0 {
        writeln!(
            out,
            "{} senders more found no place to be counted",
            report.unseen
        )?;
    }
    section(out, "Ways, and why", &ways(report))?;
    section(out, "Why bytes were copied", &causes(report))?;
    section(out, "Events", &events(report))
}

fn section(out: &mut impl Write, title: &str, table: &Table) -> io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    for line in table.lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn ways(report: &Report) -> Table {
    let mut table = Table::new(&["socket", "way", ">sends", ">bytes", "why"]);
    for took in &report.took {
        table.row(vec![
            took.socket.to_owned(),
            took.way.to_string(),
            took.sends.to_string(),
            size(took.bytes),
            took.why.to_string(),
        ]);
    }
    table
}

fn causes(report: &Report) -> Table {
    let mut table = Table::new(&[">bytes", ">part", "why"]);
    for copied in &report.copied {
        table.row(vec![
            size(copied.bytes),
            percent(copied.bytes, report.counts.copied_bytes),
            copied.cause.to_string(),
        ]);
    }
    table
}

fn events(report: &Report) -> Table {
    let mut table = Table::new(&[">count", "what"]);
    let counts = &report.counts;
    let rows = [
        (counts.calls, "system calls"),
        (
            counts.partial,
            "sends that the kernel took less of than was offered",
        ),
        (
            counts.gave_up_notified,
            "sockets on which MSG_ZEROCOPY was given up: the kernel copied all the same",
        ),
        (counts.datagrams, "datagrams"),
        (counts.together, "calls that took several datagrams"),
    ];
    for (count, what) in rows.into_iter().filter(|(count, _)| *count > 0) {
        table.row(vec![count.to_string(), what.to_owned()]);
    }
    table
}

#[allow(clippy::cast_precision_loss)] // for people
fn percent(part: u64, all: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / all.max(1) as f64)
}

fn as_json(report: &Report) -> Value {
    let counts: serde_json::Map<_, _> = report
        .counts
        .rows()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    json!({
        "program": report.program,
        "pid": report.pid,
        "started": report.started,
        "senders": report.senders,
        "unseen_senders": report.unseen,
        "counts": counts,
        "choices": report.took.iter().map(|took| json!({
            "socket": took.socket,
            "way": took.way.to_string(),
            "why": took.why.to_string(),
            "sends": took.sends,
            "bytes": took.bytes,
        })).collect::<Vec<_>>(),
        "copied": report.copied.iter().map(|copied| json!({
            "why": copied.cause.to_string(),
            "bytes": copied.bytes,
        })).collect::<Vec<_>>(),
    })
}
