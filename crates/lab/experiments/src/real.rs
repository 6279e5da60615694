//! A run with real processes: the web server under a policy, the interferer beside it on the same processor, and the
//! client on another one.

use crate::args::{Figure, PartRole};
use crate::lines::Progress;
use crate::machine::cores;
use crate::plan::{CALLERS, COMPONENTS, CONNECTIONS, OVER, PAGE, POOL, Setting};
use crate::played::{INTERFERER, Played, SERVER};
use crate::processes::Process;
use crate::residency::{Residency, resident};
use crate::sim::{AppFrame, Frame, PoolFrame, Run};
use crate::web::{Server, Setup, System};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};
use tranship::Domain;
use tranship::admin::{PoolFigures, StatRecord};

/// How often the manager sets quotas in the paper, and how often it can at most.
const PERIOD: Duration = Duration::from_millis(250);
const SHORTEST: Duration = Duration::from_millis(100);
/// How long a process may take to be ready on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the interferer is told what it needs, and memory is looked at.
const TOLD: Duration = Duration::from_millis(20);

/// One program, as its process reports it.
struct Program {
    process: Process<Progress>,
    now: Progress,
    then: Progress,
}

/// Figures of the pools' writers up to a moment.
struct Look {
    at: Instant,
    figures: Vec<PoolFigures>,
}

pub(crate) fn play(figure: Figure, setting: &Setting, scale: f64) -> Result<Played> {
    let period = PERIOD.mul_f64(scale).max(SHORTEST);
    let limit_bytes = setting.limit_pages * PAGE;
    let (core, client_core) = cores();
    let setup = Setup {
        manager: manager(setting, period)?,
        pool: Some(POOL),
    };
    let server = Server::with(System::Tranship, core, setup)?;
    let server = server.context("the web server cannot run here")?;
    let socket = server.socket()?;
    let manager_pid = server.manager()?;
    let domain = Domain::builder().name("experiment").socket(&socket);
    let domain = domain.autostart(false).connect()?;
    let start = |role, amount, core| {
        let process = Process::start_on(role, 0, amount, &socket, Some(core))?;
        let now: Progress = process.next(PATIENCE)?;
        Ok::<_, anyhow::Error>(Program {
            process,
            then: now,
            now,
        })
    };
    let client = start(PartRole::Client, server.port().into(), client_core)?;
    let mut programs = [client, start(PartRole::Interferer, 0, core)?];
    let need = setting.need();
    // Times are the paper's in all that is shown.
    let scaled = |real: Duration| millis(real.div_f64(scale));
    let mut run = Run {
        scenario: figure.name().to_owned(),
        policy: setting.name.clone(),
        limit_bytes,
        period_ms: scaled(period),
        pools: COMPONENTS.map(str::to_owned).to_vec(),
        apps: vec!["server".to_owned(), "interferer".to_owned()],
        frames: Vec::new(),
    };
    run.pools.push("interferer".to_owned());

    let mut memory = Residency {
        total_bytes: limit_bytes,
        ..Residency::default()
    };
    programs[SERVER].process.want(CONNECTIONS.into())?;
    let begin = Instant::now();
    let mut before = look(&domain)?;
    let mut told = 0;
    while run.frames.last().is_none_or(|f| f.at_ms < OVER) {
        // If the machine was so busy that a period was missed, the period is left out.
        let due = next(begin.elapsed(), period);
        loop {
            let callers = whole(need.at(scaled(begin.elapsed())));
            if callers != told {
                programs[INTERFERER].process.want(callers)?;
                told = callers;
            }
            memory.saw(resident(manager_pid, limit_bytes));
            let left = due.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(TOLD.min(left));
        }
        let at_ms = scaled(due);
        let now = look(&domain)?;
        for program in &mut programs {
            // Of one that says nothing what it said before goes on to hold.
            if let Some(new) = program.process.latest()? {
                program.then = std::mem::replace(&mut program.now, new);
            }
        }
        // The number of pages that the interferer wants during most of the period.
        let wanted = need.at(at_ms.saturating_sub(run.period_ms / 2));
        run.frames.push(frame(
            at_ms,
            wanted,
            &programs,
            [&before, &now],
            &run.pools,
        )?);
        let quotas = now.figures.iter().map(|p| p.quota_bytes).sum();
        memory.quotas_max_bytes = memory.quotas_max_bytes.max(quotas);
        let (granted, stranded) = granted(&domain)?;
        memory.granted_max_bytes = memory.granted_max_bytes.max(granted + stranded);
        before = now;
    }
    memory.samples_per_second = real(memory.samples) / begin.elapsed().as_secs_f64();
    let wrong = programs[SERVER].now.wrong;
    if wrong > 0 {
        eprintln!("{}: {wrong} requests were refused", setting.name);
    }
    if programs[SERVER].now.done == 0 {
        bail!("{}: the server has answered nothing", setting.name);
    }
    Ok(Played::new(setting, run, Some(memory)))
}

/// As an administrator would write it: an equal part for each pool to begin with, under `static` for ever.
fn manager(setting: &Setting, period: Duration) -> Result<toml::Table> {
    let total = setting.limit_pages * PAGE;
    let first = setting.limit_pages / (COMPONENTS.len() as u64 + 1) * PAGE;
    let mut text = format!(
        r#"
        total = {total}
        default_quota = {first}
        policy = "{}"
        policy_period = "{}ms"
        grace = "1ms"
        "#,
        setting.policy,
        period.as_millis()
    );
    for name in COMPONENTS {
        text += &format!(
            r#"
            [[pool]]
            name = "{name}"
            priority = 1
            target = {}
            callers = {CALLERS}
            group = "server"
            "#,
            setting.target
        );
    }
    text.parse().context("the manager's configuration")
}

fn look(domain: &Domain) -> Result<Look> {
    let (_, figures) = domain.admin().pool_figures()?;
    Ok(Look {
        at: Instant::now(),
        figures,
    })
}

/// Makes the frame between two looks.
fn frame(
    at_ms: u64,
    wanted: f64,
    programs: &[Program; 2],
    [before, now]: [&Look; 2],
    names: &[String],
) -> Result<Frame> {
    let ns = now.at.duration_since(before.at).as_secs_f64().max(1e-3) * 1e9;
    let pools = names.iter().map(|name| {
        let of = |look: &Look| look.figures.iter().find(|p| p.name == *name).cloned();
        let pool = of(now).with_context(|| format!("the manager knows no pool {name}"))?;
        let then = of(before).unwrap_or_else(|| pool.clone());
        let since = |now: u64, then: u64| real(now.saturating_sub(then)) / ns;
        Ok(PoolFrame {
            quota_bytes: pool.quota_bytes,
            resident_bytes: pool.granted_bytes,
            live_bytes: pool.live_bytes,
            blocked: since(pool.blocked_ns, then.blocked_ns),
            collecting: since(pool.collect_ns, then.collect_ns),
        })
    });
    let pools: Vec<PoolFrame> = pools.collect::<Result<_>>()?;
    let cost = |pools: &[PoolFrame]| pools.iter().map(|p| p.blocked + p.collecting).sum::<f64>();
    let app = |app: usize, pools, callers: u32, active| {
        let Program { now, then, .. } = &programs[app];
        // Each rate is over the time between two reports of the process itself.
        let ns = real(now.at_ns.saturating_sub(then.at_ns).max(1));
        AppFrame {
            per_second: 1e9 * real(now.done.saturating_sub(then.done)) / ns,
            share: (cost(pools) / f64::from(callers)).min(1.0),
            active,
        }
    };
    let (own, other) = pools.split_at(COMPONENTS.len());
    let server = app(SERVER, own, CALLERS, true);
    let interferer = app(INTERFERER, other, 1, wanted >= 1.0);
    Ok(Frame {
        at_ms,
        apps: vec![server, interferer],
        pools,
    })
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

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages: few, and not below 0
fn whole(pages: f64) -> u64 {
    pages.round() as u64
}
