//! Runs as pictures, and as a page.

use super::played::{Played, tables};
use crate::output::{Table, size};
use crate::plot::{self, Curve, HEIGHT, Plot, WIDTH, escape};
use std::fmt::Write;
use tranship_policy::sim::{Frame, Scenario};

const MIB: f64 = 1048576.0;

/// What is drawn of each run.
fn plots(played: &Played) -> [Plot; 3] {
    let run = &played.run;
    let curves = |names: &[String], value: &dyn Fn(&Frame, usize) -> f64| {
        let curve = |(i, name): (usize, &String)| Curve {
            name: name.clone(),
            points: (run.frames.iter())
                .map(|f| (f.at_ms as f64 / 1000.0, value(f, i)))
                .collect(),
        };
        names.iter().enumerate().map(curve).collect::<Vec<_>>()
    };
    let plot = |what: &str, unit, curves| Plot {
        title: format!("{}: {what}", run.policy),
        unit,
        curves,
        ..Plot::default()
    };
    [
        plot(
            "requests done",
            "per second",
            curves(&run.apps, &|f, i| f.apps[i].per_second),
        ),
        plot(
            "time spent waiting for memory and collecting",
            "percent",
            curves(&run.apps, &|f, i| 100.0 * f.apps[i].share),
        ),
        plot(
            "quotas",
            "MiB",
            curves(&run.pools, &|f, i| f.pools[i].quota_bytes as f64 / MIB),
        ),
    ]
}

/// All of them below each other.
pub(super) fn svg(scenario: &Scenario, all: &[Played]) -> String {
    let plots: Vec<Plot> = all.iter().flat_map(plots).collect();
    let head = 40.0;
    let high = head + HEIGHT * plots.len() as f64;
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" font-family="sans-serif" font-size="14">
<rect width="100%" height="100%" fill="#fff"/>
<text x="16" y="26">{}</text>
"##,
        escape(&format!("{}: {}", scenario.name, scenario.about))
    );
    let mut at = head;
    for one in &plots {
        let place = format!(r#"<svg y="{at}" width="{WIDTH}" height="{HEIGHT}" "#);
        out.push_str(&plot::svg(one).replacen("<svg ", &place, 1));
        at += HEIGHT;
    }
    out.push_str("</svg>\n");
    out
}

/// One page that needs no other file.
pub(super) fn html(scenario: &Scenario, all: &[Played]) -> String {
    let title = escape(&scenario.name);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>\
body {{ font-family: sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em }} \
table {{ border-collapse: collapse }} td, th {{ padding: 0.2em 0.8em; text-align: right }} \
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) {{ text-align: left }} \
tr:nth-child(even) {{ background: #f4f4f4 }}</style></head><body>\n<h1>{title}</h1>\n<p>{}. {} in all, quotas every {} ms.</p>\n",
        escape(&scenario.about),
        size(scenario.limit_pages * scenario.page_bytes),
        scenario.period_ms
    );
    for table in tables(all) {
        rows(&mut out, &table);
    }
    for played in all {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&played.run.policy));
        for one in plots(played) {
            out.push_str(&plot::svg(&one));
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn rows(out: &mut String, table: &Table) {
    out.push_str("<table>\n");
    let (heading, rows) = table.cells();
    let mut row = |cells: &mut dyn Iterator<Item = &str>, tag: &str| {
        out.push_str("<tr>");
        for cell in cells {
            let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>\n");
    };
    row(&mut heading.into_iter(), "th");
    for cells in rows {
        row(&mut cells.iter().map(String::as_str), "td");
    }
    out.push_str("</table>\n");
}
