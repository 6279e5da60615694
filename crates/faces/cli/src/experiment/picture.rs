//! Runs as pictures: all of them over each other, and each by itself.

use super::plan::{BEGINS, ENDS, FALLS, PEAK, STAGES};
use super::played::{INTERFERER, Played, SERVER, whole_pages};
use crate::output::Table;
use crate::plot::{self, Curve, Plot, page};
use tranship_policy::sim::Frame;

/// Time of the schedule over which the drawn mean is taken: requests come in waves.
const SMOOTH_MS: u64 = 1_000;

/// Returns all pictures below each other.
pub(super) fn svg(about: &str, all: &[Played]) -> String {
    plot::stack(about, &together(all))
}

/// Returns one page that needs no other file.
pub(super) fn html(title: &str, notes: &[String], tables: &[Table], all: &[Played]) -> String {
    let mut out = page::begin(title, notes);
    for table in tables {
        page::table(&mut out, table);
    }
    out.push_str("<h2>All runs</h2>\n");
    for plot in together(all) {
        out.push_str(&plot::svg(&plot));
    }
    for played in all {
        page::heading(&mut out, &played.setting.name);
        for plot in alone(played) {
            out.push_str(&plot::svg(&plot));
        }
    }
    page::end(out)
}

/// Returns one plot for each figure, in which runs are compared.
fn together(all: &[Played]) -> Vec<Plot> {
    let of = |title: &str, unit, value: &dyn Fn(&Frame) -> f64| Plot {
        title: title.to_owned(),
        unit,
        curves: (all.iter())
            .map(|p| curve(p, &p.setting.name, value))
            .collect(),
        marks: marks(),
        ..Plot::default()
    };
    vec![
        of("server: throughput", "requests per second", &|f| {
            f.apps[SERVER].per_second
        }),
        of(
            "server: time spent waiting for memory and collecting",
            "percent of its callers' time",
            &|f| 100.0 * f.apps[SERVER].share,
        ),
        of(
            "interferer: time spent waiting for memory and collecting",
            "percent of its callers' time",
            &|f| 100.0 * f.apps[INTERFERER].share,
        ),
        of(
            "server: quota of its six stages together",
            "pages",
            &server_pages,
        ),
        of("interferer: quota", "pages", &|f| {
            whole_pages(f.pools[STAGES].quota_bytes)
        }),
    ]
}

/// Returns the plots of one run's programs and pools.
fn alone(played: &Played) -> [Plot; 3] {
    let of = |title: &str, unit, curves| Plot {
        title: format!("{}: {title}", played.setting.name),
        unit,
        curves,
        marks: marks(),
        ..Plot::default()
    };
    let apps = |value: &dyn Fn(&Frame, usize) -> f64| {
        let names = played.run.apps.iter().enumerate();
        names
            .map(|(i, name)| curve(played, name, &|f| value(f, i)))
            .collect()
    };
    let pools = played.run.pools.iter().enumerate();
    let pools =
        pools.map(|(i, name)| curve(played, name, &|f| whole_pages(f.pools[i].quota_bytes)));
    [
        of(
            "throughput",
            "requests, or pages, per second",
            apps(&|f, i| f.apps[i].per_second),
        ),
        of(
            "time spent waiting and collecting",
            "percent of the callers' time",
            apps(&|f, i| 100.0 * f.apps[i].share),
        ),
        of("quotas", "pages", pools.collect()),
    ]
}

fn server_pages(frame: &Frame) -> f64 {
    let quotas = frame.pools[..STAGES].iter().map(|p| p.quota_bytes);
    whole_pages(quotas.sum())
}

fn curve(played: &Played, name: &str, value: &dyn Fn(&Frame) -> f64) -> Curve {
    let width = usize::try_from(SMOOTH_MS / played.run.period_ms.max(1)).unwrap_or(1);
    let frames = &played.run.frames;
    let width = width.clamp(1, frames.len().max(1));
    let mean = |some: &[Frame]| {
        #[allow(clippy::cast_precision_loss)] // few
        let mean = some.iter().map(value).sum::<f64>() / some.len() as f64;
        some.last().map(|last| (seconds(last.at_ms), mean))
    };
    Curve {
        name: name.to_owned(),
        points: frames.windows(width).filter_map(mean).collect(),
    }
}

fn marks() -> Vec<(f64, String)> {
    let what = [
        (BEGINS, "interferer comes"),
        (PEAK, "needs most"),
        (FALLS, "needs 10"),
        (ENDS, "goes"),
    ];
    what.map(|(at, what)| (seconds(at), what.to_owned()))
        .to_vec()
}

fn seconds(ms: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a minute
    let ms = ms as f64;
    ms / 1000.0
}
