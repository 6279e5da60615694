//! Waiters by the hundred thousand: on the word of the manager's answers, and on that of a source's messages.
//!
//! Each hoard is filled up again as it is woken. What an honest user sees is measured beside the same clients without hoards.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tranship_core::{ChannelOptions, Domain, PoolOptions, Sender, WhenFull};
use tranship_proto::{BufferId, Role};
use tranship_sys::map;
use tranship_testkit::hostile::Hoard;
use tranship_testkit::hostile::raw::{Raw, path};
use tranship_testkit::{Control, child};

use super::cast::{Times, row, sum_up};
use super::stage::{ATTACKERS, Stage};
use crate::options::Common;
use crate::plan::Outcome;

/// Of what is sampled elsewhere.
const LONGER: u32 = 10;
/// Waiters of one process: some 50 MB of the kernel's memory.
const WAITERS: usize = 200_000;
/// Processes of each hostile user.
const PROCESSES: usize = 3;
const PAYLOAD: usize = 4096;
/// Lines that a sink takes before it fills its hoard up.
const LINES: u64 = 256;
/// Where the word is in a control page (docs/format.md).
const WAKE: usize = 64;

/// Has as many waiters as there are to be.
fn fill(hoard: &mut Hoard, word: &AtomicU32, most: usize) {
    let _ = hoard.woken();
    while hoard.waiting() < most {
        // The word changes when somebody is woken meanwhile.
        let seen = word.load(Ordering::SeqCst);
        match hoard.wait_on(word, seen, most - hoard.waiting()) {
            Err(error) if error.raw_os_error() != Some(libc::EAGAIN) => panic!("{error}"),
            _ => {}
        }
    }
}

/// A word that somebody else writes.
fn word<'a>(at: *const AtomicU32) -> &'a AtomicU32 {
    // SAFETY: in a mapping that stays as long as the process; only loaded, and waited on.
    unsafe { &*at }
}

child!(
    /// Asks the manager, with a hoard on the word by which it wakes.
    fn hoarder(ctl: Control) {
        let polls: bool = ctl.recv().unwrap().unwrap();
        let mut raw = Raw::join("hoarder");
        let page = map::map_shared(&raw.kept[0], map::Access::Read, 4096, 0).unwrap();
        // SAFETY: in the mapping that was just made.
        let wake = word(unsafe { page.as_ptr().add(WAKE) }.cast_const().cast());
        let mut hoard = Hoard::new().unwrap();
        let mut told = false;
        loop {
            if polls {
                let _ = hoard.woken();
                let left = WAITERS - hoard.waiting();
                hoard.poll(raw.fd.as_fd(), left).unwrap();
            } else {
                fill(&mut hoard, wake, WAITERS);
            }
            if !std::mem::replace(&mut told, true) {
                ctl.send(&()).unwrap();
            }
            raw.sync();
        }
    }
);

child!(
    /// An honest client: asks the manager again and again, for as long as it is told to.
    fn asker(ctl: Control) {
        let mut raw = Raw::join("asker");
        while let Some(time) = ctl.recv::<Duration>().unwrap() {
            let end = Instant::now() + time;
            let mut times = Vec::new();
            while Instant::now() < end {
                let begin = Instant::now();
                raw.sync();
                times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap());
            }
            ctl.send(&sum_up(times)).unwrap();
        }
    }
);

child!(
    /// An honest source, for every sink that connects.
    fn source(ctl: Control) {
        let domain = Domain::builder().name("source").socket(path());
        let domain = domain.connect().unwrap();
        let options = ChannelOptions::new().lines(16).when_full(WhenFull::Wait);
        let fed = domain.listen_with::<Sender>("fed", options).unwrap();
        let pool = domain.create_pool(PoolOptions::new(4 << 20)).unwrap();
        ctl.send(&()).unwrap();
        while let Some(time) = ctl.recv::<Duration>().unwrap() {
            let mut sender = fed.accept().unwrap();
            // The pool is agreed on.
            sender.send(pool.alloc(PAYLOAD).unwrap().freeze()).unwrap();
            let end = Instant::now() + time;
            let mut times = Vec::new();
            while Instant::now() < end {
                let buf = pool.alloc(PAYLOAD).unwrap().freeze();
                let begin = Instant::now();
                sender.send(buf).unwrap();
                times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap());
            }
            drop(sender);
            ctl.send(&sum_up(times)).unwrap();
        }
    }
);

child!(
    /// Takes what it is sent, and says before each line that it sleeps; with a hoard of so many.
    fn sink(ctl: Control) {
        let mut raw = Raw::join("sink");
        while let Some(waiters) = ctl.recv::<usize>().unwrap() {
            let mut channel = raw.connect("fed", Role::Sink);
            raw.take_offer(&mut channel);
            let wake = word(channel.theirs.wake().as_ptr());
            let mut hoard = Hoard::new().unwrap();
            let mut position = 0;
            while channel.theirs.closed().load(Ordering::Acquire) == 0 {
                if position % LINES == 0 {
                    fill(&mut hoard, wake, waiters);
                }
                let flag = wake.load(Ordering::SeqCst) << 2 | 1;
                channel.own.asleep().store(flag, Ordering::SeqCst);
                let prey = raw.prey.as_ref().unwrap();
                let there = |c: &tranship_testkit::hostile::raw::Channel| c.has_line(position);
                while !there(&channel) && channel.theirs.closed().load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                if !there(&channel) {
                    break;
                }
                prey.release(BufferId(channel.take(position, prey)[2]));
                position += 1;
            }
            drop(hoard);
            raw.close(channel);
            ctl.send(&()).unwrap();
        }
    }
);

pub fn measure(common: &Common, outcome: &mut Outcome) -> Result<()> {
    if let Err(error) = Hoard::new() {
        eprintln!("SKIPPED: of siege, hoards of waiters: no io_uring: {error}");
        return Ok(());
    }
    let time = common.budget() * LONGER;
    let stage = Stage::new(None)?;
    let asker = stage.honest(asker())?;
    let mut answers: [Vec<Times>; 3] = Default::default();
    for (mode, seen) in answers.iter_mut().enumerate() {
        let mut hoarders = Vec::new();
        for user in ATTACKERS.iter().filter(|_| mode > 0) {
            for _ in 0..PROCESSES {
                let hoarder = stage.hostile(hoarder(), *user)?;
                hoarder.send(&(mode == 2))?;
                hoarders.push(hoarder);
            }
        }
        for hoarder in &hoarders {
            let () = hoarder.recv().with_context(|| hoarder.stderr())?;
        }
        for _ in 0..common.runs() {
            asker.send(&time)?;
            seen.push(asker.recv().with_context(|| asker.stderr())?);
        }
    }
    for (mode, seen) in ["idle", "hoarded", "hoarded-polls"].iter().zip(&answers) {
        outcome.rows.push(row(mode, "answer", None, seen.iter()));
    }
    let source = stage.honest(source())?;
    let () = source.recv().with_context(|| source.stderr())?;
    let sink = stage.hostile(sink(), ATTACKERS[0])?;
    for (mode, waiters) in [("idle", 0), ("hoarded", WAITERS)] {
        let mut seen = Vec::new();
        for _ in 0..common.runs() {
            source.send(&time)?;
            sink.send(&waiters)?;
            seen.push(source.recv().with_context(|| source.stderr())?);
            let () = sink.recv().with_context(|| sink.stderr())?;
        }
        outcome
            .rows
            .push(row(mode, "send", Some(PAYLOAD), seen.iter()));
    }
    Ok(())
}
