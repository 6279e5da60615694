//! Orderings that must hold between the runs of a figure, with the measured values.

use crate::args::Figure;
use crate::plan::UNLIMITED;
use crate::played::{INTERFERER, Played, SERVER, Span, whole_pages};
use serde::Serialize;

/// Rates this near to each other are equal: what a busy machine does to them.
const NEAR: f64 = 0.03;
/// So are shares of time, in percentage points of it.
const NEAR_SHARE: f64 = 0.01;
/// A target is kept when the share is this near to it.
const BAND: f64 = 0.02;

/// The least scale at which quotas are set often enough for rates and targets.
pub(crate) const STEERED: f64 = 0.4;

/// The exit code if an ordering did not hold.
pub(crate) const NOT_SHOWN: u8 = 5;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Ordering {
    /// The rule that must hold.
    pub what: String,
    pub measured: String,
    pub held: bool,
    /// Whether it holds however slow the machine is, and whatever other programs run on it.
    pub always: bool,
}

impl Ordering {
    pub fn new(what: impl Into<String>, measured: String, held: bool) -> Ordering {
        Ordering {
            what: what.into(),
            measured,
            held,
            always: false,
        }
    }

    pub fn held(&self) -> bool {
        self.held
    }
}

/// Those of a figure, as far as its runs are there. `is_steered`: rates and targets too.
pub(crate) fn of(figure: Figure, all: &[Played], is_steered: bool) -> Vec<Ordering> {
    let mut found = match figure {
        Figure::CbufFig7 | Figure::CbufFig9 => Vec::new(),
        Figure::CbufFig10 => policies(all, is_steered),
        Figure::CbufFig11 if is_steered => targets(all),
        Figure::CbufFig11 => Vec::new(),
    };
    found.extend(all.iter().filter_map(recovers));
    found.extend(all.iter().filter_map(within_total));
    found
}

fn named<'a>(all: &'a [Played], name: &str) -> Option<&'a Played> {
    all.iter().find(|p| p.setting.name.starts_with(name))
}

/// Values that a program reached while the demand was highest.
struct Reached {
    per_second: f64,
    share: f64,
}

fn at(played: &Played, app: usize, span: Span) -> Reached {
    let figures = played.app(app, span);
    Reached {
        per_second: figures.per_second,
        share: figures.share,
    }
}

fn peak(played: &Played, app: usize) -> Reached {
    at(played, app, played.peak())
}

/// Figure 10.
fn policies(all: &[Played], is_steered: bool) -> Vec<Ordering> {
    let mut found = Vec::new();
    let [ample, short, first, held] =
        [UNLIMITED, "throughput", "priority", "qos"].map(|name| named(all, name));
    if let Some(ample) = ample {
        for other in all.iter().filter(|p| p.setting.name != UNLIMITED) {
            found.push(best(ample, other));
        }
    }
    if let (Some(first), Some(short)) = (first, short) {
        let [a, b] = [first, short].map(|p| peak(p, SERVER));
        found.push(Ordering::new(
            "priority serves the server at least as well as throughput",
            format!(
                "{:.0} and {:.0} requests/s, waits {} and {}",
                a.per_second,
                b.per_second,
                percent(a.share),
                percent(b.share)
            ),
            (!is_steered || a.per_second >= (1.0 - NEAR) * b.per_second)
                && a.share <= b.share + NEAR_SHARE,
        ));
        let [a, b] = [first, short].map(|p| peak(p, INTERFERER));
        found.push(Ordering::new(
            "the interferer pays for it: it waits at least as long as under throughput",
            format!("{} and {}", percent(a.share), percent(b.share)),
            a.share >= b.share - NEAR_SHARE,
        ));
    }
    if let Some(held) = held {
        let (server, target) = (peak(held, SERVER), held.setting.target);
        found.push(Ordering::new(
            format!(
                "qos: the server waits no longer than its target, {}",
                percent(target)
            ),
            percent(server.share),
            server.share <= target + BAND,
        ));
        if let Some(short) = short {
            let [a, b] = [held, short].map(|p| peak(p, INTERFERER));
            found.push(Ordering::new(
                "qos: the interferer waits no longer than under throughput",
                format!("{} and {}", percent(a.share), percent(b.share)),
                a.share <= b.share + NEAR_SHARE,
            ));
        }
    }
    found
}

/// With enough memory nobody is worse off.
fn best(ample: &Played, other: &Played) -> Ordering {
    let both = |app| [peak(ample, app), peak(other, app)];
    let ([s, t], [i, j]) = (both(SERVER), both(INTERFERER));
    let wait = |a: &Reached, b: &Reached| a.share <= b.share + NEAR_SHARE;
    // Not the rates: a program that is short of memory leaves its processor time to the other.
    Ordering::new(
        format!(
            "with enough memory nobody waits longer than under {}",
            other.setting.name
        ),
        format!(
            "server {:.0} and {:.0} requests/s, waits {} and {}; interferer {:.0} and {:.0} pages/s, waits {} and {}",
            s.per_second,
            t.per_second,
            percent(s.share),
            percent(t.share),
            i.per_second,
            j.per_second,
            percent(i.share),
            percent(j.share)
        ),
        wait(&s, &t) && wait(&i, &j),
    )
}

/// Figure 11.
fn targets(all: &[Played]) -> Vec<Ordering> {
    let mut found = Vec::new();
    let held: Vec<&Played> = all.iter().filter(|p| p.setting.policy == "qos").collect();
    for played in &held {
        let (share, target) = (peak(played, SERVER).share, played.setting.target);
        found.push(Ordering::new(
            format!(
                "qos holds the server within 2 points of {}",
                percent(target)
            ),
            percent(share),
            (share - target).abs() <= BAND,
        ));
    }
    if let Some(fixed) = named(all, "static") {
        let share = peak(fixed, SERVER).share;
        // One share cannot be near all targets; the farthest target is the one that an administrator would miss most.
        let off = |p: &&Played| (share - p.setting.target).abs();
        let far: Vec<_> = held.iter().filter(|p| off(p) > BAND).collect();
        if !held.is_empty() {
            let missed: Vec<_> = far.iter().map(|p| percent(p.setting.target)).collect();
            found.push(Ordering::new(
                "static does not: it misses all targets but at most one",
                format!("{}, which misses {}", percent(share), missed.join(", ")),
                far.len() + 1 >= held.len(),
            ));
        }
    }
    let mut by_target = held;
    by_target.sort_by(|a, b| a.setting.target.total_cmp(&b.setting.target));
    for pair in by_target.windows(2) {
        let [less, more] = [pair[0], pair[1]].map(|p| p.quotas(p.peak())[1]);
        let [a, b] = [pair[0], pair[1]].map(|p| percent(p.setting.target));
        found.push(Ordering::new(
            format!("the longer the server may wait, the more the interferer has: {b} against {a}"),
            format!("{more:.0} and {less:.0} pages"),
            more >= less,
        ));
    }
    found
}

/// Checks that the interferer's memory comes back to the server; in the paper's 10 % case it does not.
fn recovers(played: &Played) -> Option<Ordering> {
    let moves = played.setting.policy != "static";
    moves.then(|| {
        let [before, after] =
            [played.before(), played.after()].map(|span| at(played, SERVER, span).share);
        Ordering::new(
            format!(
                "{}: after the interferer the server waits no longer than before it",
                played.setting.name
            ),
            format!("{} and {}", percent(after), percent(before)),
            after <= before + NEAR_SHARE,
        )
    })
}

/// However slow the machine is.
fn within_total(played: &Played) -> Option<Ordering> {
    let seen = played.memory?;
    let most = seen
        .max_bytes
        .max(seen.granted_max_bytes)
        .max(seen.quotas_max_bytes);
    Some(Ordering {
        always: true,
        ..Ordering::new(
            format!(
                "{}: resident bytes and quotas never exceed the total",
                played.setting.name
            ),
            format!(
                "at most {:.0} of {:.0} pages resident in {} samples ({:.0} a second; {} beyond); quotas {:.0}",
                whole_pages(seen.max_bytes),
                whole_pages(seen.total_bytes),
                seen.samples,
                seen.samples_per_second,
                seen.samples_beyond,
                whole_pages(seen.quotas_max_bytes)
            ),
            most <= seen.total_bytes,
        )
    })
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
