//! The scenarios that belong to this crate.

use super::app::App;
use super::curve::Curve;
use super::scenario::{PoolSpec, Scenario};

/// An available scenario.
#[derive(Debug)]
pub struct ScenarioEntry {
    /// The scenario's name.
    pub name: &'static str,
    /// A sentence about the scenario's purpose.
    pub about: &'static str,
    make: fn() -> Scenario,
}

/// All of them.
pub const SCENARIOS: &[ScenarioEntry] = &[
    ScenarioEntry {
        name: "paper",
        about: "the CBUF paper's figure 10: a server of six stages; from 21 s to 45 s an interferer that needs 5, then 64, then 10 pages; 300 pages",
        make: || paper(300, 0.25),
    },
    ScenarioEntry {
        name: "paper-ample",
        about: "the same without a limit that matters: 680 pages",
        make: || paper(AMPLE_PAGES, 0.25),
    },
    ScenarioEntry {
        name: "step",
        about: "one program needs 5 pages, from 5 s on 64, from 15 s on 10; 300 pages",
        make: step,
    },
    ScenarioEntry {
        name: "greedy",
        about: "two programs that could use any amount, one of which comes 5 s later; 300 pages",
        make: greedy,
    },
    ScenarioEntry {
        name: "pressure",
        about: "a server with a target of 10 % and, from 5 s on, an interferer that takes all it can; 200 pages",
        make: || pressure(0.1),
    },
];

/// Finds a scenario by its name; `paper:300:0.05` and `pressure:0.05` with pages and target.
pub fn scenario(name: &str) -> Option<Scenario> {
    let mut parts = name.split(':');
    let (base, rest): (_, Vec<&str>) = (parts.next()?, parts.collect());
    let share = |text: &str| text.parse::<f64>().ok().filter(|t| (0.0..1.0).contains(t));
    let entry = SCENARIOS.iter().find(|s| s.name == base)?;
    let mut made = match (base, &rest[..]) {
        (_, []) => (entry.make)(),
        ("paper", [pages, target]) => paper(
            pages.parse().ok().filter(|p| (1..=1 << 20).contains(p))?,
            share(target)?,
        ),
        ("pressure", [target]) => pressure(share(target)?),
        _ => return None,
    };
    made.name = name.to_owned();
    made.about = entry.about.to_owned();
    Some(made)
}

fn empty(limit_pages: u64, end_ms: u64) -> Scenario {
    Scenario {
        name: String::new(),
        about: String::new(),
        page_bytes: super::PAGE,
        limit_pages,
        period_ms: 250,
        end_ms,
        pools: Vec::new(),
        apps: Vec::new(),
        seed: 1,
    }
}

/// Stages of the paper's web server that a packet passes.
const STAGES: usize = 6;
/// Requests in progress. When nothing is short each stage has 39 on average and up to 46: with the interferer's 64 that
/// is the paper's 340.
const SERVER_PAGES: f64 = 232.0;
/// The limit at which no program is short of memory.
const AMPLE_PAGES: u64 = 680;

fn paper(limit_pages: u64, target: f64) -> Scenario {
    let mut s = empty(limit_pages, 65_000);
    for stage in 1..=STAGES {
        let mut pool = PoolSpec::new(&format!("stage {stage}"));
        pool.rule.priority = 1;
        pool.rule.target = Some(target);
        pool.rule.group = Some("server".to_owned());
        s.pools.push(pool);
    }
    s.pools.push(PoolSpec::new("interferer"));
    s.apps.push(App {
        name: "server".to_owned(),
        stages: (0..STAGES).collect(),
        hold_ms: 8.0,
        demand: Curve::flat(SERVER_PAGES),
        processor: 0.0,
    });
    s.apps.push(App {
        name: "interferer".to_owned(),
        stages: vec![STAGES],
        hold_ms: 10.0,
        demand: Curve(vec![
            (20_999, 0.0),
            (21_000, 5.0),
            (31_000, 64.0),
            (41_000, 64.0),
            (41_001, 10.0),
            (45_000, 10.0),
            (45_001, 0.0),
        ]),
        processor: 0.1,
    });
    s
}

fn looping(name: &str, pool: usize, demand: Curve) -> App {
    App {
        name: name.to_owned(),
        stages: vec![pool],
        hold_ms: 10.0,
        demand,
        processor: 0.0,
    }
}

fn step() -> Scenario {
    let mut s = empty(300, 25_000);
    s.pools = vec![PoolSpec::new("one"), PoolSpec::new("other")];
    let steps = Curve::steps(&[(0, 5.0), (5_000, 64.0), (15_000, 10.0)]);
    s.apps = vec![
        looping("one", 0, steps),
        looping("other", 1, Curve::flat(100.0)),
    ];
    s
}

fn greedy() -> Scenario {
    let mut s = empty(300, 30_000);
    s.pools = vec![PoolSpec::new("early"), PoolSpec::new("late")];
    s.apps = vec![
        looping("early", 0, Curve::flat(100_000.0)),
        looping("late", 1, Curve::steps(&[(0, 0.0), (5_000, 100_000.0)])),
    ];
    s
}

fn pressure(target: f64) -> Scenario {
    let mut s = empty(200, 30_000);
    s.pools = vec![PoolSpec::new("server"), PoolSpec::new("interferer")];
    s.pools[0].rule.target = Some(target);
    s.pools[0].rule.priority = 1;
    s.apps = vec![
        looping("server", 0, Curve::flat(120.0)),
        looping(
            "interferer",
            1,
            Curve::steps(&[(0, 0.0), (5_000, 100_000.0)]),
        ),
    ];
    s
}
