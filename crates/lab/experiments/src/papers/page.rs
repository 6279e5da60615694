//! The page of all figures, and their results for programs.

use super::figure::Done;
use super::picture::escape;
use super::rows::{self, Found, Row};
use crate::args::Scale;
use crate::machine::Machine;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

const STYLE: &str = "body{font-family:sans-serif;max-width:62em;margin:1em auto;padding:0 1em;line-height:1.4}\
td,th{padding:.15em .6em;text-align:left;vertical-align:top;border-bottom:1px solid #ddd}\
td.n{text-align:right;font-variant-numeric:tabular-nums}table{border-collapse:collapse;font-size:90%}\
svg{width:100%;height:auto;font-size:11px}.two{display:grid;grid-template-columns:1fr 2fr;gap:2em}\
.no{font-weight:bold;color:#a00}code{font-size:90%}details{margin:.5em 0}";

/// Rows of one table, at most: periods of an experiment are in the picture.
const MOST: usize = 200;

/// Writes `index.html` and `results.json`.
pub(super) fn write(out: &Path, scale: Scale, machine: &Machine, all: &[Done]) -> Result<()> {
    let save = |name: &str, text: String| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    save("index.html", html(scale, machine, all))?;
    let results = json!({ "scale": scale.name(), "machine": machine, "figures": all });
    save(
        "results.json",
        serde_json::to_string_pretty(&results)? + "\n",
    )
}

fn html(scale: Scale, machine: &Machine, all: &[Done]) -> String {
    let mut out = format!(
        "<!doctype html><meta charset=utf-8><title>The papers' figures</title><style>{STYLE}</style>\
         <h1>The papers' figures and tables, measured with tranship</h1>\
         <p>{}. Scale: {}. Compare values of one figure only: figures are measured one after the other.</p>\
         <table><tr><th>figure<th>orderings<th>time",
        escape(&machine.text()),
        scale.name()
    );
    // Writing to a string does not fail.
    for one in all {
        let _ = write!(
            out,
            "<tr><td><a href='#{id}'>{}: {}</a><td>{}<td class=n>{}",
            escape(&one.figure.paper),
            escape(&one.figure.title),
            verdict(one),
            time(one.seconds),
            id = one.id
        );
    }
    out += "</table>";
    for one in all {
        section(&mut out, one);
    }
    out
}

fn verdict(one: &Done) -> String {
    if one.failed.is_some() {
        return "<span class=no>failed</span>".to_owned();
    }
    if one.rows.is_empty() {
        return "skipped".to_owned();
    }
    let count = |held| {
        one.orderings
            .iter()
            .filter(|found| found.held == held)
            .count()
    };
    let (held, not, missing) = (count(Some(true)), count(Some(false)), count(None));
    let mut text = format!("{held} held");
    if not > 0 {
        let _ = write!(text, ", <span class=no>{not} did not hold</span>");
    }
    if missing > 0 {
        let _ = write!(text, ", {missing} not measured");
    }
    text
}

fn section(out: &mut String, one: &Done) {
    let figure = &one.figure;
    let _ = write!(
        out,
        "<h2 id='{}'>{}: {}</h2><p><code>{}</code></p><div class=two><div><h3>The paper</h3><p>{}</p>\
         <h3>Why ours differs</h3><p>{}</p></div><div><h3>Here</h3>",
        one.id,
        escape(&figure.paper),
        escape(&figure.title),
        escape(&one.command),
        escape(&figure.shape),
        escape(&figure.differs)
    );
    if let Some(why) = &one.failed {
        let _ = write!(out, "<p class=no>Not measured: {}</p>", escape(why));
    }
    for line in &one.skipped {
        let _ = write!(out, "<p>{}</p>", escape(line));
    }
    for picture in &figure.picture {
        *out += &picture.draw(&one.rows);
    }
    *out += "</div></div>";
    if !one.orderings.is_empty() {
        *out += "<table>";
        one.orderings.iter().for_each(|found| ordering(out, found));
        *out += "</table>";
    }
    table(out, &figure.columns, &one.rows);
}

fn ordering(out: &mut String, found: &Found) {
    let held = match found.held {
        Some(true) => "held",
        Some(false) => "<span class=no>did not hold</span>",
        None => "not measured",
    };
    let _ = write!(
        out,
        "<tr><td>{held}<td>{}<td>{}",
        escape(&found.what),
        escape(&found.measured)
    );
}

fn table(out: &mut String, columns: &[String], rows: &[Row]) {
    let of = rows.iter().filter(|row| !row.contains_key("at_ms"));
    let rows: Vec<&Row> = of.take(MOST).collect();
    if rows.is_empty() {
        return;
    }
    *out += "<details><summary>All values</summary><table><tr>";
    for column in columns {
        let _ = write!(out, "<th>{}", escape(&column.replace('_', " ")));
    }
    for row in rows {
        *out += "<tr>";
        for column in columns {
            match row.get(column) {
                None | Some(Value::Null) => *out += "<td>",
                Some(Value::String(text)) => {
                    let _ = write!(out, "<td>{}", escape(text));
                }
                Some(value) => {
                    let text = match value.as_f64() {
                        Some(value) if value.fract() == 0.0 => format!("{value}"),
                        Some(value) => rows::number(value),
                        None => value.to_string(),
                    };
                    let _ = write!(out, "<td class=n>{}", escape(&text));
                }
            }
        }
    }
    *out += "</table></details>";
}

/// Seconds, for people.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}
