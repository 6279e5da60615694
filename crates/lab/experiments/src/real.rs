//! A run with real processes under a manager of its own.

use crate::args::{Figure, PartRole};
use crate::bar::Bar;
use crate::lines::Progress;
use crate::plan::{CALLERS, HOLD, INTERFERER_HOLD, OVER, PAGE, STAGES, Setting};
use crate::played::Played;
use crate::processes::Process;
use crate::residency::{Watch, outside};
use crate::sim::{AppFrame, Frame, PoolFrame, Run};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};
use tranship::Domain;
use tranship::admin::{PoolFigures, StatRecord};
use tranship::manager::Config;

/// How often the manager sets quotas in the paper, and how often it can at most.
const PERIOD: Duration = Duration::from_millis(250);
const SHORTEST: Duration = Duration::from_millis(100);
/// How long a process may take to be ready on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the interferer is told what it needs.
const TOLD: Duration = Duration::from_millis(20);

/// Stages, interferer, client, in this order.
struct Crew {
    processes: Vec<Process<Progress>>,
    /// What each said last, and before that, when it was listened to.
    now: Vec<Progress>,
    then: Vec<Progress>,
}

const INTERFERER: usize = STAGES;
const CLIENT: usize = STAGES + 1;

pub(crate) fn play(figure: Figure, setting: &Setting, scale: f64, bar: &mut Bar) -> Result<Played> {
    let period = PERIOD.mul_f64(scale).max(SHORTEST);
    let limit_bytes = setting.limit_pages * PAGE;
    let config = config(setting, period)?;
    let domain = Domain::builder().name("experiment").config(config);
    let domain = domain.embedded().context("starting a manager")?;
    let socket = domain.socket_path().context("the manager's socket")?;
    let mut crew = Crew::start(&socket)?;
    let need = setting.need();
    // Times are the paper's in all that is shown.
    let scaled = |real: Duration| millis(real.div_f64(scale));
    let mut run = Run {
        scenario: figure.name().to_owned(),
        policy: setting.name.clone(),
        limit_bytes,
        period_ms: scaled(period),
        pools: (1..=STAGES).map(|n| format!("stage {n}")).collect(),
        apps: vec!["server".to_owned(), "interferer".to_owned()],
        frames: Vec::new(),
    };
    run.pools.push("interferer".to_owned());

    let watch = Watch::start(limit_bytes)?;
    let (mut granted_most, mut quotas_most, mut outside_most) = (0, 0, 0);
    crew.processes[CLIENT].want(CALLERS.into())?;
    let begin = Instant::now();
    let mut told = 0;
    while run.frames.last().is_none_or(|f| f.at_ms < OVER) {
        // If the machine was so busy that a period was missed, the period is left out.
        let due = next(begin.elapsed(), period);
        loop {
            let callers = whole(need.at(scaled(begin.elapsed())));
            if callers != told {
                crew.processes[INTERFERER].want(callers)?;
                told = callers;
            }
            let left = due.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(TOLD.min(left));
        }
        let at_ms = scaled(due);
        bar.at(part(at_ms));
        let (_, figures) = domain.admin().pool_figures()?;
        crew.hear()?;
        // The number of callers during most of the period.
        let callers = need.at(at_ms.saturating_sub(run.period_ms / 2));
        let frame = crew.frame(at_ms, callers, &figures, &run.pools)?;
        run.frames.push(frame);
        quotas_most = quotas_most.max(figures.iter().map(|p| p.quota_bytes).sum());
        let (granted_now, before) = granted(&domain)?;
        granted_most = granted_most.max(granted_now + before);
        let pids = crew.processes.iter().map(Process::pid);
        let pids: Vec<u32> = pids.chain([std::process::id()]).collect();
        let seen = outside(&pids, limit_bytes - before.min(limit_bytes));
        // What is stranded before and after has been so meanwhile, or as much of it.
        let (_, after) = granted(&domain)?;
        outside_most = outside_most.max(seen + before.min(after));
    }
    let mut memory = watch.end();
    memory.outside_samples = run.frames.len() as u64;
    memory.outside_max_bytes = outside_most;
    memory.granted_max_bytes = granted_most;
    memory.quotas_max_bytes = quotas_most;
    let wrong: u64 = crew.now.iter().map(|p| p.wrong).sum();
    if wrong > 0 {
        bail!("{wrong} messages had other bytes than were sent");
    }
    Ok(Played::new(setting, run, Some(memory)))
}

/// As an administrator would write it: an equal part for each pool to begin with, under `static` for ever.
fn config(setting: &Setting, period: Duration) -> Result<Config> {
    let total = setting.limit_pages * PAGE;
    let first = setting.limit_pages / (STAGES as u64 + 1) * PAGE;
    let text = format!(
        r#"
        total = {total}
        default_quota = {first}
        policy = "{}"
        policy_period = "{}ms"
        grace = "1ms"
        [[pool]]
        name = "stage*"
        priority = 1
        target = {}
        callers = {CALLERS}
        group = "server"
        "#,
        setting.policy,
        period.as_millis(),
        setting.target
    );
    Config::parse(&text).context("the manager's configuration")
}

impl Crew {
    fn start(socket: &Path) -> Result<Crew> {
        let start = |role, number, hold| Process::start(role, number, millis(hold), socket);
        let stages = (1..).take(STAGES);
        let mut processes = stages
            .map(|number| start(PartRole::Stage, number, HOLD))
            .collect::<Result<Vec<_>>>()?;
        processes.push(start(PartRole::Interferer, 0, INTERFERER_HOLD)?);
        processes.push(start(PartRole::Client, 0, Duration::ZERO)?);
        let now = processes.iter().map(|p| p.next(PATIENCE));
        let now: Vec<Progress> = now.collect::<Result<_>>()?;
        Ok(Crew {
            processes,
            then: now.clone(),
            now,
        })
    }

    fn hear(&mut self) -> Result<()> {
        let words = self.now.iter_mut().zip(&mut self.then);
        for (process, (now, then)) in self.processes.iter().zip(words) {
            // Of one that says nothing what it said before goes on to hold.
            if let Some(new) = process.latest()? {
                *then = std::mem::replace(now, new);
            }
        }
        Ok(())
    }

    /// What they did since the last one.
    fn frame(
        &self,
        at_ms: u64,
        callers: f64,
        figures: &[PoolFigures],
        names: &[String],
    ) -> Result<Frame> {
        // Each rate is over the time between two reports of the process itself.
        let since = |i: usize, of: fn(&Progress) -> u64| {
            let (now, then) = (&self.now[i], &self.then[i]);
            let ns = now.at_ns.saturating_sub(then.at_ns).max(1);
            real(of(now).saturating_sub(of(then))) / real(ns)
        };
        let pools = names.iter().enumerate().map(|(i, name)| {
            let pool = figures.iter().find(|p| p.name == *name);
            let pool = pool.with_context(|| format!("the manager knows no pool {name}"))?;
            Ok(PoolFrame {
                quota_bytes: pool.quota_bytes,
                resident_bytes: pool.granted_bytes,
                live_bytes: pool.live_bytes,
                blocked: since(i, |p| p.blocked_ns),
                collecting: since(i, |p| p.collect_ns),
            })
        });
        let pools: Vec<PoolFrame> = pools.collect::<Result<_>>()?;
        let cost =
            |pools: &[PoolFrame]| pools.iter().map(|p| p.blocked + p.collecting).sum::<f64>();
        let app = |process, pools, callers: f64, active| AppFrame {
            per_second: 1e9 * since(process, |p| p.done),
            share: (cost(pools) / callers.max(1.0)).min(1.0),
            active,
        };
        let server = app(CLIENT, &pools[..STAGES], f64::from(CALLERS), true);
        let other = app(INTERFERER, &pools[STAGES..], callers, callers >= 1.0);
        Ok(Frame {
            at_ms,
            apps: vec![server, other],
            pools,
        })
    }
}

/// Bytes granted and bytes stranded.
fn granted(domain: &Domain) -> Result<(u64, u64)> {
    let records = domain.admin().stat()?;
    let manager = records.iter().find_map(|record| match record {
        StatRecord::Manager(it) => Some((it.granted_bytes, it.stranded_bytes)),
        _ => None,
    });
    manager.context("the manager says nothing of itself")
}

/// The end of the period in which a time lies.
fn next(now: Duration, period: Duration) -> Duration {
    let periods = now.as_nanos() / period.as_nanos().max(1) + 1;
    period * u32::try_from(periods).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_precision_loss)] // for people
fn real(value: u64) -> f64 {
    value as f64
}

fn part(at_ms: u64) -> f64 {
    real(at_ms) / real(OVER)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of callers: few, and not below 0
fn whole(callers: f64) -> u64 {
    callers.round() as u64
}
