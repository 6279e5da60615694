//! The main stage's work with trouble: one consumer is stopped and goes on later, one is killed, and a fifth process
//! tries to write into the frames.

use super::lane::Lane;
use super::{LAST_PATIENCE, Producer};
use crate::args::demo::{ConsumerRole, Transport};
use crate::demo::consumers::Outcome;
use crate::demo::plan::{Begun, Reached};
use crate::demo::worker::Worker;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tranship::admin::StatRecord;
use tranship::{DomainId, Wait};

const STOPPED: ConsumerRole = ConsumerRole::Stats;
const KILLED: ConsumerRole = ConsumerRole::Lz4;
/// Frames that the intruder is sent.
const BAIT: u32 = 2;

/// Result of the trouble.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub reached: Reached,
    /// Seconds since the beginning, and the event.
    pub events: Vec<(f64, String)>,
    /// Frames that each consumer was not sent while it took none.
    pub missed: Vec<(ConsumerRole, u64)>,
    /// Frames that the others took while one was stopped.
    pub taken_meanwhile: u64,
    pub killed: Killed,
    /// Attempts of the intruder: refused, and not.
    pub refused: Vec<String>,
    pub succeeded: Vec<String>,
}

/// A consumer that was killed while it held frames.
#[derive(Clone, Default, Debug)]
pub(crate) struct Killed {
    /// Bytes of frames that it held, and frames that waited for it, when it was killed.
    pub held: u64,
    pub queued: u64,
    /// Time when it was killed, and time when the manager had released all.
    at: Option<Instant>,
    pub back_after: Option<Duration>,
}

/// Runs it: `watch` sees the workers after each frame.
pub(crate) fn trouble(
    producer: &Producer<'_>,
    mut watch: impl FnMut(&[Worker]),
) -> Result<Trouble> {
    let (mut workers, mut lanes) = producer.start_all()?;
    let begun = Begun::now();
    let begin = begun.at;
    let mut events = Vec::new();
    let mut killed = Killed::default();
    let (mut refused, mut succeeded) = (Vec::new(), Vec::new());
    let mut taken_at_stop = 0;
    let mut taken_meanwhile = 0;
    let mut victim: Option<DomainId> = None;
    let mut offset = 0;
    let mut next = Act::Stop;
    // On a machine that is busy with other work the effects come later.
    let patient = || begin.elapsed() < producer.plan.time + LAST_PATIENCE;
    let awaited = |killed: &Killed| killed.at.is_some() && killed.back_after.is_none() && patient();
    while offset != 0
        || next != Act::End
        || begin.elapsed() < producer.plan.time
        || awaited(&killed)
    {
        let seen = next != Act::GoOn || taken_by_others(&workers) > taken_at_stop || !patient();
        let due = seen && producer.plan.time.mul_f64(next.when()) <= begin.elapsed();
        // Whole passes at the end: no living consumer misses a frame of the last one.
        if due && next != Act::End {
            let at = begin.elapsed().as_secs_f64();
            match next {
                Act::Stop => {
                    worker(&mut workers, STOPPED)?.signal(Signal::STOP)?;
                    taken_at_stop = taken_by_others(&workers);
                    events.push((at, format!("{} stopped", STOPPED.name())));
                }
                Act::GoOn => {
                    taken_meanwhile = taken_by_others(&workers) - taken_at_stop;
                    worker(&mut workers, STOPPED)?.signal(Signal::CONT)?;
                    events.push((at, format!("{} goes on", STOPPED.name())));
                }
                Act::Kill => {
                    let lane = lane(&lanes, KILLED)?;
                    victim = lane.peer();
                    killed.queued = lane.queued();
                    killed.held = held(producer, victim)?.unwrap_or(0);
                    killed.at = Some(Instant::now());
                    worker(&mut workers, KILLED)?.kill()?;
                    events.push((at, format!("{} killed", KILLED.name())));
                }
                Act::Intrude => {
                    (refused, succeeded) = intrude(producer)?;
                    events.push((at, "intruder".to_owned()));
                }
                Act::End => {}
            }
            next = next.after();
        }
        if next == Act::End && offset == 0 {
            lanes
                .iter_mut()
                .for_each(|lane| lane.wait_for(LAST_PATIENCE));
        }
        let (frame, after) = producer.frame(offset)?;
        for lane in &mut lanes {
            lane.send(&frame, offset)?;
        }
        offset = after;
        if let (Some(at), None) = (killed.at, killed.back_after)
            && held(producer, victim)?.is_none()
            && lane(&lanes, KILLED)?.is_gone()
        {
            killed.back_after = Some(at.elapsed());
        }
        watch(&workers);
    }
    let missed = lanes
        .iter()
        .map(|lane| (lane.role, lane.missed))
        .filter(|(_, missed)| *missed > 0)
        .collect();
    drop(lanes);
    let reached = begun.reached(Transport::Tranship, workers)?;
    Ok(Trouble {
        reached,
        events,
        missed,
        taken_meanwhile,
        killed,
        refused,
        succeeded,
    })
}

/// Event, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Stop,
    GoOn,
    Kill,
    Intrude,
    End,
}

impl Act {
    /// Returns the time of the event as a part of the stage's time.
    fn when(self) -> f64 {
        match self {
            Act::Stop => 0.2,
            Act::GoOn => 0.5,
            Act::Kill => 0.65,
            Act::Intrude => 0.85,
            Act::End => 1.0,
        }
    }

    fn after(self) -> Act {
        match self {
            Act::Stop => Act::GoOn,
            Act::GoOn => Act::Kill,
            Act::Kill => Act::Intrude,
            Act::Intrude | Act::End => Act::End,
        }
    }
}

/// Starts a fifth process and sends it a few frames.
fn intrude(producer: &Producer<'_>) -> Result<(Vec<String>, Vec<String>)> {
    let (worker, mut lane) = producer.start(ConsumerRole::Intruder, &[], Wait::default())?;
    lane.wait_for(LAST_PATIENCE);
    let mut offset = 0;
    for _ in 0..BAIT {
        let (frame, next) = producer.frame(offset)?;
        lane.send(&frame, offset)?;
        offset = next;
    }
    drop(lane);
    match worker.finish()?.outcome {
        Outcome::Intruder { refused, succeeded } => Ok((refused, succeeded)),
        other => anyhow::bail!("an intruder with another outcome: {other:?}"),
    }
}

/// Returns the bytes of frames that a domain holds, as the manager sees it; nothing if it knows no such domain.
fn held(producer: &Producer<'_>, domain: Option<DomainId>) -> Result<Option<u64>> {
    let mut held = None;
    for record in producer
        .domain
        .admin()
        .stat()
        .context("asking the manager")?
    {
        match record {
            StatRecord::Domain(it) if Some(it.domain) == domain => {
                held.get_or_insert(0);
            }
            StatRecord::Hold(it) if Some(it.domain) == domain => {
                *held.get_or_insert(0) += it.bytes;
            }
            _ => {}
        }
    }
    Ok(held)
}

fn worker(workers: &mut [Worker], role: ConsumerRole) -> Result<&mut Worker> {
    let found = workers.iter_mut().find(|worker| worker.role == role);
    found.context("a consumer of that role")
}

fn lane(lanes: &[Lane], role: ConsumerRole) -> Result<&Lane> {
    let found = lanes.iter().find(|lane| lane.role == role);
    found.context("a link of that role")
}

/// Returns the frames that the slowest consumer that was not stopped has taken.
fn taken_by_others(workers: &[Worker]) -> u64 {
    let others = workers.iter().filter(|worker| worker.role != STOPPED);
    let taken = others.map(|worker| worker.progress().frames);
    taken.min().unwrap_or(0)
}
