//! System calls per frame in steady state, counted from outside, in a run apart from the timing: one producer, one
//! consumer, both looking again and again instead of sleeping.

use super::Producer;
use crate::args::demo::ConsumerRole;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use tranship::Wait;
use tranship_sys::process;
use tranship_sys::syscalls::{Counts, SyscallCounter};

/// Frames before the first mark, so that every frame of the pool was used.
const WARM_UP: u32 = 40;
const COUNTED: u32 = 64;
/// Number of spans. Work by the clock may fall into a span, so the one with the fewest calls counts.
const SPANS: usize = 5;
/// Most frames under way, so that no call has to wait for memory.
const UNDER_WAY: u64 = 3;

/// Counted system calls.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub frames: u32,
    /// System calls of the thread that sends, by number; the reading of the file is not in it.
    pub producer: BTreeMap<u64, u64>,
    /// Calls that read the file, which one side has to do.
    pub file_reads: u64,
    pub consumer: BTreeMap<u64, u64>,
    /// System calls with which the consumer reports its result and leaves.
    pub at_end: u64,
}

impl Counted {
    /// Returns the calls of both sides.
    fn calls(&self) -> u64 {
        self.producer.values().chain(self.consumer.values()).sum()
    }

    /// Calls of both sides for the passing of one frame.
    pub(crate) fn per_frame(&self) -> f64 {
        f64::from(u32::try_from(self.calls()).unwrap_or(u32::MAX)) / f64::from(self.frames)
    }

    /// Returns whether the calls that there must have been were seen: otherwise 0 says nothing.
    pub(crate) fn is_seen(&self) -> bool {
        self.frames > 0 && self.file_reads >= u64::from(self.frames) && self.at_end > 0
    }
}

/// Counts the calls; an error if this kernel does not allow it.
pub(crate) fn counted(producer: &Producer<'_>) -> Result<Counted> {
    let (worker, mut lane) = producer.start(ConsumerRole::Hash, &["--counted"], Wait::Spin)?;
    super::may_be_counted();
    let theirs = SyscallCounter::attach(worker.pid()).context("counting the consumer's calls")?;
    // The manager's thread has timers, and on a slow machine they fall into every span.
    let ours = SyscallCounter::attach_thread(process::gettid());
    let ours = ours.context("counting the producer's calls")?;
    let mut offset = 0;
    let mut pass = |frames: u32| -> Result<()> {
        for _ in 0..frames {
            let (frame, next) = producer.frame(offset)?;
            while lane.queued() >= UNDER_WAY && !worker.ended() {
                std::hint::spin_loop();
            }
            lane.send(&frame, offset)?;
            offset = next;
        }
        while lane.queued() > 0 && !worker.ended() {
            std::hint::spin_loop();
        }
        Ok(())
    };
    pass(WARM_UP)?;
    let mut best: Option<Counted> = None;
    for _ in 0..SPANS {
        let (our_mark, their_mark) = (ours.counts(), theirs.counts());
        pass(COUNTED)?;
        let (mut producer, consumer) = (ours.since(&our_mark), theirs.since(&their_mark));
        let span = Counted {
            frames: COUNTED,
            file_reads: take(&mut producer, libc::SYS_pread64),
            producer,
            consumer,
            at_end: 0,
        };
        if best.as_ref().is_none_or(|b| span.calls() < b.calls()) {
            best = Some(span);
        }
    }
    let best = best.context("a span")?;
    drop(ours);
    let leaving = theirs.total();
    drop(lane);
    worker.finish()?;
    let at_end = theirs.total() - leaving;
    Ok(Counted { at_end, ..best })
}

fn take(counts: &mut Counts, number: libc::c_long) -> u64 {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    counts.remove(&number).unwrap_or(0)
}
