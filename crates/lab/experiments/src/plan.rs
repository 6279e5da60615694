//! The plan of a run: the paper's programs, its schedule, and the memory.

use crate::args::Figure;
use crate::sim::{self, Curve, Scenario};
use anyhow::{Result, bail};
use tranship_policy::find;

/// The experiment's page: one chunk, the smallest there is. The paper's has 4 KiB.
pub(crate) const PAGE: u64 = 64 << 10;
/// The web server's components, whose pools have their names.
pub(crate) const COMPONENTS: [&str; 7] = [
    "front", "http", "guard", "route", "cache", "static", "dynamic",
];
/// The largest size of their pools: of such, the manager grants memory by the page.
pub(crate) const POOL: &str = "16MiB";
/// Connections, each with one request under way, and bytes of an answer: a page.
pub(crate) const CONNECTIONS: u32 = 232;
pub(crate) const ANSWER: u64 = PAGE - 4096;
/// Threads of the server that may wait for memory at once: the component that makes answers has one.
pub(crate) const CALLERS: u32 = 1;
/// The paper's pages in all.
const LIMIT: u64 = 300;
/// The paper's pages that are used when nothing is short.
const USED: f64 = 340.0;
/// More pages than are ever used.
const AMPLE: u64 = 680;
/// Pages of an interferer that takes all it can get.
const GREEDY: f64 = 300.0;

/// The paper's schedule, milliseconds.
pub(crate) const BEGINS: u64 = 21_000;
pub(crate) const PEAK: u64 = 31_000;
pub(crate) const FALLS: u64 = 41_000;
pub(crate) const ENDS: u64 = 45_000;
pub(crate) const OVER: u64 = 65_000;
/// The server's start is not looked at.
pub(crate) const WARM: u64 = 5_000;
/// Periods after which a policy has followed a change, as promised.
pub(crate) const PERIODS: u64 = 8;

/// The target of a run that is about something else (the paper's).
const TARGET: f64 = 0.25;

/// One run of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Setting {
    /// Name in tables.
    pub name: String,
    pub policy: String,
    pub limit_pages: u64,
    /// Target of the server.
    pub target: f64,
    /// At its peak the interferer takes all it can, instead of 64 pages.
    pub greedy: bool,
}

impl Setting {
    fn new(name: &str, policy: &str) -> Setting {
        Setting {
            name: name.to_owned(),
            policy: policy.to_owned(),
            limit_pages: LIMIT,
            target: TARGET,
            greedy: false,
        }
    }

    /// How many pages the interferer wants, by the paper's time.
    pub fn need(&self) -> Curve {
        let peak = if self.greedy { GREEDY } else { 64.0 };
        Curve(vec![
            (BEGINS - 1, 0.0),
            (BEGINS, 5.0),
            (PEAK - 1, 64.0),
            (PEAK, peak),
            (FALLS - 1, peak),
            (FALLS, 10.0),
            (ENDS - 1, 10.0),
            (ENDS, 0.0),
        ])
    }

    /// The same for the simulator.
    pub fn scenario(&self, figure: Figure) -> Result<Scenario> {
        let name = format!("paper:{}:{}", self.limit_pages, self.target);
        let Some(mut scenario) = sim::scenario(&name) else {
            bail!("the simulator knows no scenario `{name}`");
        };
        scenario.name = figure.name().to_owned();
        scenario.page_bytes = PAGE;
        for app in scenario.apps.iter_mut().filter(|a| a.name == "interferer") {
            app.demand = self.need();
        }
        Ok(scenario)
    }
}

/// Puts the run without a limit before the others: it shows how many pages are used when nothing is short.
pub(crate) fn after_unlimited(settings: Vec<Setting>) -> Vec<Setting> {
    let others = settings.into_iter().filter(|s| s.name != UNLIMITED);
    let unlimited = Setting {
        limit_pages: AMPLE,
        ..Setting::new(UNLIMITED, "throughput")
    };
    std::iter::once(unlimited).chain(others).collect()
}

/// Returns the limit of the other runs: the paper's part of what is used when nothing is short, and at least a chunk or
/// two for each pool.
pub(crate) fn limit(used_pages: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    // pages: few, and not below 0
    let limit = (used_pages * LIMIT as f64 / USED).round() as u64;
    limit.clamp(2 * (COMPONENTS.len() as u64 + 1), AMPLE)
}

/// The runs of a figure, of which only some policies may be wanted.
pub(crate) fn settings(
    figure: Figure,
    policies: &[String],
    targets: &[f64],
) -> Result<Vec<Setting>> {
    for name in policies {
        find(name)?;
    }
    let mut all = Vec::new();
    match figure {
        Figure::CbufFig7 | Figure::CbufFig9 => {}
        Figure::CbufFig10 => {
            all.push(Setting {
                limit_pages: AMPLE,
                ..Setting::new(UNLIMITED, "throughput")
            });
            for policy in ["throughput", "priority", "qos", "static"] {
                let name = match policy {
                    "qos" => format!("qos {}", percent(TARGET)),
                    _ => policy.to_owned(),
                };
                all.push(Setting::new(&name, policy));
            }
        }
        Figure::CbufFig11 => {
            let qos = |target: &f64| Setting {
                target: *target,
                greedy: true,
                ..Setting::new(&format!("qos {}", percent(*target)), "qos")
            };
            all.extend(targets.iter().map(qos));
            all.push(Setting {
                greedy: true,
                ..Setting::new("static", "static")
            });
        }
    }
    if !policies.is_empty() {
        all.retain(|s| policies.contains(&s.policy));
    }
    if all.is_empty() && !matches!(figure, Figure::CbufFig7 | Figure::CbufFig9) {
        bail!(
            "{} has no run under {}",
            figure.name(),
            policies.join(" or ")
        );
    }
    Ok(all)
}

/// The run without a limit that matters.
pub(crate) const UNLIMITED: &str = "unlimited";

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_schedule() {
        let need = Setting::new("x", "qos").need();
        let at = [0, 20_999, 21_000, 26_000, 31_000, 40_999, 41_000, 45_000];
        let seen = at.map(|ms| need.at(ms).round());
        assert_eq!(seen, [0.0, 0.0, 5.0, 35.0, 64.0, 64.0, 10.0, 0.0]);
    }

    #[test]
    fn what_is_wanted_is_run() {
        let names = |figure, policies: &[&str]| {
            let policies: Vec<_> = policies.iter().map(|p| (*p).to_owned()).collect();
            let all = settings(figure, &policies, &[0.01, 0.1])?;
            Ok::<_, anyhow::Error>(all.into_iter().map(|s| s.name).collect::<Vec<_>>())
        };
        let fig10 = names(Figure::CbufFig10, &[]).expect("runs");
        assert_eq!(
            fig10,
            ["unlimited", "throughput", "priority", "qos 25 %", "static"]
        );
        let some = names(Figure::CbufFig11, &["qos"]).expect("runs");
        assert_eq!(some, ["qos 1 %", "qos 10 %"]);
        let none = names(Figure::CbufFig11, &["priority"]).expect_err("none");
        assert!(none.to_string().contains("cbuf-fig11 has no run"), "{none}");
        assert!(names(Figure::CbufFig10, &["best"]).is_err());
    }
}
