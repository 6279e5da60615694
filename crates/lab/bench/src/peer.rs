//! What a system must offer to be measured, and the loops that measure it.
//!
//! To add one: a file in `systems/` with `impl Peer`, and a line in `systems/mod.rs`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Pattern, Touch};
use crate::clock;
use crate::line::Line;
use crate::party::Party;
use crate::slices::{Look, SLICES, Slices};
use crate::stats::Measured;

/// The stamp that ends a run.
const STOP: u64 = u64::MAX;
/// The stamp that ends a slice of it: then both look how the cores lie.
const LOOK: u64 = u64::MAX - 1;
/// Most samples of a run.
const SAMPLES: usize = 1 << 18;
/// A budget of at least that long is for a profiler that looks on: the run does not end when the samples are full.
const LONG: Duration = Duration::from_secs(1);
/// A slice of a run is no shorter.
const SHORTEST: Duration = Duration::from_micros(100);

/// A process's part. Its number is its index in [`Party`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Measures round trips; sends streams.
    Ping,
    /// Answers; receives streams.
    Pong,
    /// Sleeps, and owns what the others pass on. Only in runs of a system with [`Peer::THIRD`].
    Third,
}

impl Role {
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One side of a connection, in a process of its own.
pub trait Peer: Sized {
    /// As in the rows.
    const NAME: &'static str;
    /// Whether a third process takes part.
    const THIRD: bool = false;

    /// Why it cannot do this case, if so.
    fn refuses(_case: &Case) -> Option<String> {
        None
    }

    /// Removes what a run left behind on the machine, once all its processes are gone.
    fn clean(_run: u64) {}

    /// Joins the run; all roles call it at once, and may talk through `party`. Ping needs both directions
    /// in a round trip, and only its way out in a stream.
    fn open(case: &Case, role: Role, party: &Party) -> Result<Self>;

    /// The whole way of one message out: take a buffer of the case's payload, write as much of it as
    /// the case says, with the stamp in front (or beside), send it. Waits while the other side is behind.
    fn send(&mut self, stamp: u64) -> Result<()>;

    /// The whole way of one message in: wait for it, read as much as the case says, give it back. Gives the stamp.
    fn recv(&mut self) -> Result<u64>;
}

/// A system in the list of all.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub third: bool,
    pub refuses: fn(&Case) -> Option<String>,
    pub clean: fn(u64),
    /// The last one: whether it tells near cores from far ones, where there are two.
    pub serve: fn(&Case, Role, &Party, bool) -> Result<Vec<Measured>>,
}

/// The list's entry of a system.
pub const fn entry<P: Peer>() -> Entry {
    Entry {
        name: P::NAME,
        third: P::THIRD,
        refuses: P::refuses,
        clean: P::clean,
        serve: serve::<P>,
    }
}

fn serve<P: Peer>(case: &Case, role: Role, party: &Party, looks: bool) -> Result<Vec<Measured>> {
    let looks = looks && case.cores_used() == 2 && role != Role::Third;
    let line = looks.then(|| Line::open(party, role.index())).transpose()?;
    let line = line.as_ref();
    let mut peer = P::open(case, role, party).with_context(|| format!("{role:?} joins"))?;
    party.barrier()?;
    let measured = match (case.pattern, role) {
        (_, Role::Third) => Vec::new(),
        (Pattern::RoundTrip, Role::Ping) => ping(&mut peer, case, line)?,
        (Pattern::RoundTrip, Role::Pong) => pong(&mut peer, line)?,
        (Pattern::Stream, Role::Ping) => pour(&mut peer, case, line)?,
        (Pattern::Stream, Role::Pong) => drain(&mut peer, case, line)?,
    };
    // Nobody leaves while another still looks at its memory.
    party.barrier()?;
    Ok(measured)
}

/// The asking side of a look; the other one is on its way to answer.
fn look(line: Option<&Line>) -> Look {
    line.map_or(Look::No, |line| {
        let timed = line.time();
        line.end(0);
        Look::of(timed)
    })
}

fn slice_of(case: &Case) -> u64 {
    clock::in_ticks((case.budget / SLICES).max(SHORTEST))
}

fn ping<P: Peer>(peer: &mut P, case: &Case, line: Option<&Line>) -> Result<Vec<Measured>> {
    let mut slices = Slices::new(SAMPLES, 1);
    let mut stamp = 0u64;
    let mut trip = |peer: &mut P| -> Result<()> {
        stamp += 1;
        there_and_back(peer, stamp)
    };
    let both_look = |peer: &mut P| -> Result<Look> {
        if line.is_some() {
            there_and_back(peer, LOOK)?;
        }
        Ok(look(line))
    };
    // Warm: every buffer used twice if time allows, a quarter of the budget in any case.
    let budget = clock::in_ticks(case.budget);
    let begun = clock::ticks();
    let mut warm = 0;
    loop {
        trip(peer)?;
        warm += 1;
        let spent = clock::ticks() - begun;
        if spent > budget / 4 && (warm > 2 * case.buffers || spent > budget) {
            break;
        }
    }
    slices.begin(both_look(peer)?);
    let slice = slice_of(case);
    let mut before = clock::ticks();
    let end = before + budget;
    let mut next = before + slice;
    loop {
        trip(peer)?;
        let now = clock::ticks();
        let is_full = !slices.push(now - before);
        let is_last = is_full && case.budget < LONG || now > end;
        before = now;
        if is_last || now > next {
            slices.cut(both_look(peer)?);
            if is_last {
                break;
            }
            before = clock::ticks();
            next = before + slice;
        }
    }
    peer.send(STOP)?;
    Ok(slices.finish())
}

fn there_and_back<P: Peer>(peer: &mut P, stamp: u64) -> Result<()> {
    peer.send(stamp)?;
    let back = peer.recv()?;
    ensure!(back == stamp, "sent {stamp}, got {back} back");
    Ok(())
}

fn pong<P: Peer>(peer: &mut P, line: Option<&Line>) -> Result<Vec<Measured>> {
    loop {
        let stamp = peer.recv()?;
        if stamp == STOP {
            return Ok(Vec::new());
        }
        peer.send(stamp)?;
        if let (LOOK, Some(line)) = (stamp, line) {
            line.answer();
        }
    }
}

/// Messages of a stream that share a time stamp, as one costs as much as a small message.
fn batch_of(case: &Case) -> u32 {
    if case.touch == Touch::Touched && case.payload >= 1 << 16 {
        1
    } else {
        16
    }
}

fn pour<P: Peer>(peer: &mut P, case: &Case, line: Option<&Line>) -> Result<Vec<Measured>> {
    let batch = u64::from(batch_of(case));
    let mut stamp = 0u64;
    let mut slice = |peer: &mut P, ticks: u64| -> Result<()> {
        // However late the receiver comes to run, it gets batches to time.
        let (end, least) = (clock::ticks() + ticks, stamp + 4 * batch);
        loop {
            stamp += 1;
            peer.send(stamp)?;
            if stamp >= least && stamp.is_multiple_of(batch) && clock::ticks() > end {
                break;
            }
        }
        peer.send(LOOK)?;
        if let Some(line) = line {
            line.answer();
        }
        Ok(())
    };
    let budget = clock::in_ticks(case.budget);
    slice(peer, budget / 4)?;
    let end = clock::ticks() + budget;
    loop {
        slice(peer, slice_of(case))?;
        if clock::ticks() > end {
            peer.send(STOP)?;
            return Ok(Vec::new());
        }
    }
}

fn drain<P: Peer>(peer: &mut P, case: &Case, line: Option<&Line>) -> Result<Vec<Measured>> {
    let batch = batch_of(case);
    let mut slices = Slices::new(SAMPLES, batch);
    let mut stamp = 0u64;
    // The stamp of a message that ends something.
    let mut next = |peer: &mut P| -> Result<Option<u64>> {
        let got = peer.recv()?;
        if got >= LOOK {
            return Ok(Some(got));
        }
        stamp += 1;
        ensure!(got == stamp, "expected message {stamp}, got {got}");
        Ok(None)
    };
    // Warm.
    while next(peer)?.is_none() {}
    slices.begin(look(line));
    loop {
        // The first batch of a slice finds an empty queue, and does not count.
        let mut before = None;
        let end = 'slice: loop {
            for _ in 0..batch {
                if let Some(end) = next(peer)? {
                    break 'slice end;
                }
            }
            let now = clock::ticks();
            if let Some(before) = before {
                slices.push(now - before);
            }
            before = Some(now);
        };
        if end == STOP {
            return Ok(slices.finish());
        }
        slices.cut(look(line));
    }
}
