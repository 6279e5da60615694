//! `tranship policy record`.

use super::super::connect;
use super::trace::VERSION;
use crate::args::policy::RecordArgs;
use crate::output;
use anyhow::{Context, Result};
use std::io::Write;
use std::time::{Duration, Instant};
use tranship_policy::{PoolState, Rule, Snapshot};
use tranship_proto::PoolFigures;

pub(super) fn run(args: &RecordArgs) -> Result<()> {
    let domain = connect::look(&args.connect)?;
    let mut out: Box<dyn Write> = match args.file.to_str() {
        Some("-") => Box::new(output::stdout()),
        _ => {
            let shown = args.file.display();
            let file = std::fs::File::create(&args.file);
            Box::new(file.with_context(|| format!("creating {shown}"))?)
        }
    };
    writeln!(out, "{{\"tranship_trace\":{VERSION}}}")?;
    let begun = Instant::now();
    let every = args.every.max(Duration::from_millis(1));
    for period in 0u32.. {
        let (limit_bytes, pools) = domain.pool_figures()?;
        let at = begun.elapsed();
        let snapshot = Snapshot {
            // Nobody else's clock: a trace says what was seen when.
            at_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
            limit_bytes,
            pools: pools.into_iter().map(state).collect(),
        };
        serde_json::to_writer(&mut out, &snapshot).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
        out.flush()?; // whoever interrupts us has whole lines
        let next = every.saturating_mul(period + 1);
        if args.duration.is_some_and(|most| next > most) {
            break;
        }
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
    }
    Ok(())
}

fn state(p: PoolFigures) -> PoolState {
    PoolState {
        id: p.pool.0,
        name: p.name,
        blocked_ns: p.blocked_ns,
        collect_ns: p.collect_ns,
        allocs: p.allocs,
        live_bytes: p.live_bytes,
        peak_bytes: p.peak_bytes,
        live_buffers: p.live_buffers,
        garbage_bytes: p.garbage_bytes,
        cached_bytes: p.cached_bytes,
        waiters: p.waiters,
        quota_bytes: p.quota_bytes,
        granted_bytes: p.granted_bytes,
        grain_bytes: p.chunk_bytes,
        rule: Rule {
            min_bytes: p.min_bytes,
            max_bytes: p.max_bytes,
            weight: p.weight,
            priority: p.priority,
            target: p.target_ppm.map(|ppm| f64::from(ppm) / 1e6),
            callers: p.callers,
            group: p.group,
            group_max_bytes: p.group_max_bytes,
        },
        ..PoolState::default()
    }
}
