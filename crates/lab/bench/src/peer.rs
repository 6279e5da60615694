//! The operations of a system that is measured, and the loops that measure it.
//!
//! To add one: a file in `systems/` with `impl Peer`, and a line in `systems/mod.rs`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Pattern, Touch};
use crate::clock;
use crate::line::Line;
use crate::party::Party;
use crate::placement::Look;
use crate::stats::{Measured, Samples};

/// The stamp that ends a run.
const STOP: u64 = u64::MAX;
/// The stamp after which samples of a stream count.
const WARM: u64 = u64::MAX - 1;
/// Most samples of a run.
const SAMPLES: usize = 1 << 18;
/// A budget of at least that long is for a profiler that looks on: the run does not end when the samples are full.
const LONG: Duration = Duration::from_secs(1);

/// A process's part. Its number is its index in [`Party`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Measures round trips; sends streams.
    Ping,
    /// Answers; receives streams.
    Pong,
}

pub const ROLES: [Role; 2] = [Role::Ping, Role::Pong];

impl Role {
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One side of a connection, in a process of its own.
pub trait Peer: Sized {
    /// As in the rows.
    const NAME: &'static str;

    /// Why it cannot do this case, if so.
    fn refuses(_case: &Case) -> Option<String> {
        None
    }

    /// Joins the run; all roles call it at once, and may talk through `party`. Ping needs both directions
    /// in a round trip, and only its way out in a stream.
    fn open(case: &Case, role: Role, party: &Party) -> Result<Self>;

    /// The whole way of one message out: take a buffer of the case's payload, write as much of it as
    /// the case says, with the stamp in front (or beside), send it. Waits while the other side is behind.
    fn send(&mut self, stamp: u64) -> Result<()>;

    /// The whole way of one message in: wait for it, read as much as the case says, give it back. Gives the stamp.
    fn recv(&mut self) -> Result<u64>;
}

/// A system whose operations can be told apart.
pub trait Ops: Peer {
    /// A buffer to write, not yet sent.
    type Loan;
    /// A received buffer.
    type Held;

    /// Takes a buffer.
    fn alloc(&mut self) -> Result<Self::Loan>;
    /// Writes 8 bytes, freezes, sends.
    fn give(&mut self, loan: Self::Loan, stamp: u64) -> Result<()>;
    /// Receives a message that is there, and reads 8 bytes.
    fn take(&mut self) -> Result<(Self::Held, u64)>;
    /// Gives a received buffer back.
    fn release(&mut self, held: Self::Held) -> Result<()>;

    /// How many messages one call takes at most.
    const MANY: usize = 1;

    /// Freezes and sends up to [`MANY`](Ops::MANY) buffers by one call.
    fn give_many(&mut self, loans: Vec<Self::Loan>) -> Result<()> {
        loans.into_iter().try_for_each(|loan| self.give(loan, 0))
    }

    /// Receives as many messages, which are there, by one call.
    fn take_many(&mut self, into: &mut Vec<Self::Held>) -> Result<()> {
        into.push(self.take()?.0);
        Ok(())
    }
}

/// A system in the list of all.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub refuses: fn(&Case) -> Option<String>,
    /// Measures as a party. The last argument says whether near cores are told from far ones.
    pub serve: fn(&Case, Role, &Party, bool) -> Result<Vec<Measured>>,
}

/// The list's entry of a system.
pub const fn entry<P: Peer>() -> Entry {
    Entry {
        name: P::NAME,
        refuses: P::refuses,
        serve: serve::<P>,
    }
}

fn serve<P: Peer>(case: &Case, role: Role, party: &Party, looks: bool) -> Result<Vec<Measured>> {
    let looks = looks && case.cores_used() == 2;
    let line = looks.then(|| Line::open(party, role.index())).transpose()?;
    let mut peer = P::open(case, role, party).with_context(|| format!("{role:?} joins"))?;
    party.barrier()?;
    let is_measuring = (case.pattern == Pattern::RoundTrip) == (role == Role::Ping);
    // How the cores lie, before and after.
    let look = || match &line {
        Some(line) if is_measuring => {
            let timed = line.time();
            line.end();
            Look::of(timed)
        }
        Some(line) => {
            line.answer();
            Look::No
        }
        None => Look::No,
    };
    let before = look();
    let samples = match (case.pattern, role) {
        (Pattern::RoundTrip, Role::Ping) => Some(ping(&mut peer, case)?),
        (Pattern::RoundTrip, Role::Pong) => pong(&mut peer).map(|()| None)?,
        (Pattern::Stream, Role::Ping) => pour(&mut peer, case).map(|()| None)?,
        (Pattern::Stream, Role::Pong) => Some(drain(&mut peer, case)?),
    };
    let (placement, line_ns) = before.until(look());
    // Nobody leaves while another still looks at its memory.
    party.barrier()?;
    let measured = samples.and_then(|samples| samples.placed(placement, line_ns));
    Ok(measured.into_iter().collect())
}

/// Trips that wait for what is made once.
const FIRST: usize = 2;

fn ping<P: Peer>(peer: &mut P, case: &Case) -> Result<Samples> {
    let mut samples = Samples::new(SAMPLES, 1);
    let mut stamp = 0u64;
    let mut trip = |peer: &mut P| -> Result<()> {
        stamp += 1;
        peer.send(stamp)?;
        let back = peer.recv()?;
        ensure!(back == stamp, "sent {stamp}, got {back} back");
        Ok(())
    };
    // Warm: every buffer used twice if time allows, a quarter of the budget in any case.
    let budget = clock::in_ticks(case.budget);
    let begun = clock::ticks();
    let mut warm = 0;
    loop {
        trip(peer)?;
        warm += 1;
        let spent = clock::ticks() - begun;
        if warm > FIRST && spent > budget / 4 && (warm > 2 * case.buffers || spent > budget) {
            break;
        }
    }
    let mut before = clock::ticks();
    let end = before + budget;
    loop {
        trip(peer)?;
        let now = clock::ticks();
        let is_full = !samples.push(now - before);
        before = now;
        if is_full && case.budget < LONG || now > end && samples.are_enough() {
            peer.send(STOP)?;
            return Ok(samples);
        }
    }
}

fn pong<P: Peer>(peer: &mut P) -> Result<()> {
    loop {
        let stamp = peer.recv()?;
        if stamp == STOP {
            return Ok(());
        }
        peer.send(stamp)?;
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

fn pour<P: Peer>(peer: &mut P, case: &Case) -> Result<()> {
    let batch = u64::from(batch_of(case));
    let budget = clock::in_ticks(case.budget);
    let mut stamp = 0u64;
    for (ticks, last) in [(budget / 4, WARM), (budget, STOP)] {
        // However late the receiver comes to run, it gets batches to time.
        let (end, least) = (clock::ticks() + ticks, stamp + 4 * batch);
        while stamp < least || !stamp.is_multiple_of(batch) || clock::ticks() <= end {
            stamp += 1;
            peer.send(stamp)?;
        }
        peer.send(last)?;
    }
    Ok(())
}

fn drain<P: Peer>(peer: &mut P, case: &Case) -> Result<Samples> {
    let batch = batch_of(case);
    let mut samples = Samples::new(SAMPLES, batch);
    let mut stamp = 0u64;
    // The stamp of a message that ends something.
    let mut next = |peer: &mut P| -> Result<Option<u64>> {
        let got = peer.recv()?;
        if got >= WARM {
            return Ok(Some(got));
        }
        stamp += 1;
        ensure!(got == stamp, "expected message {stamp}, got {got}");
        Ok(None)
    };
    while next(peer)?.is_none() {}
    // The first batch after it finds an empty queue, and does not count.
    let mut before = None;
    loop {
        for _ in 0..batch {
            if next(peer)?.is_some() {
                return Ok(samples);
            }
        }
        let now = clock::ticks();
        if let Some(before) = before {
            samples.push(now - before);
        }
        before = Some(now);
    }
}
