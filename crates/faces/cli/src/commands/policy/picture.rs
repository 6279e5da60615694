//! Runs as pictures, and as a page.

use super::played::{Played, tables};
use crate::output::size;
use crate::plot::{self, Curve, Plot, page};
use tranship_policy::sim::{Frame, Scenario};

const MIB: f64 = 1048576.0;

/// Returns the plots of a run.
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

/// Returns all pictures below each other.
pub(super) fn svg(scenario: &Scenario, all: &[Played]) -> String {
    let plots: Vec<Plot> = all.iter().flat_map(plots).collect();
    plot::stack(&format!("{}: {}", scenario.name, scenario.about), &plots)
}

/// Returns one page that needs no other file.
pub(super) fn html(scenario: &Scenario, all: &[Played]) -> String {
    let about = format!(
        "{}. {} in all, quotas every {} ms.",
        scenario.about,
        size(scenario.limit_pages * scenario.page_bytes),
        scenario.period_ms
    );
    let mut out = page::begin(&scenario.name, &[about]);
    for table in tables(all) {
        page::table(&mut out, &table);
    }
    for played in all {
        page::heading(&mut out, &played.run.policy);
        for one in plots(played) {
            out.push_str(&plot::svg(&one));
        }
    }
    page::end(out)
}
