//! What a system must offer to be measured, and the loops that measure it.
//!
//! To add one: a file in `systems/` with `impl Peer`, and a line in `systems/mod.rs`.

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Pattern, Touch};
use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, Samples};

/// The stamp that ends a run.
const STOP: u64 = u64::MAX;
/// Most samples of a run.
const SAMPLES: usize = 1 << 18;
/// A budget of at least that long is for a profiler that looks on: the run does not end when the samples are full.
const LONG: std::time::Duration = std::time::Duration::from_secs(1);

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
    pub serve: fn(&Case, Role, &Party) -> Result<Vec<Measured>>,
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

fn serve<P: Peer>(case: &Case, role: Role, party: &Party) -> Result<Vec<Measured>> {
    let mut peer = P::open(case, role, party).with_context(|| format!("{role:?} joins"))?;
    party.barrier()?;
    let measured = match (case.pattern, role) {
        (_, Role::Third) => None,
        (Pattern::RoundTrip, Role::Ping) => Some(ping(&mut peer, case)?),
        (Pattern::RoundTrip, Role::Pong) => pong(&mut peer)?,
        (Pattern::Stream, Role::Ping) => pour(&mut peer, case)?,
        (Pattern::Stream, Role::Pong) => Some(drain(&mut peer, case)?),
    };
    // Nobody leaves while another still looks at its memory.
    party.barrier()?;
    Ok(measured.into_iter().collect())
}

fn ping<P: Peer>(peer: &mut P, case: &Case) -> Result<Measured> {
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
        if spent > budget / 4 && (warm > 2 * case.buffers || spent > budget) {
            break;
        }
    }
    let mut before = clock::ticks();
    let end = before + budget;
    loop {
        trip(peer)?;
        let now = clock::ticks();
        let full = !samples.push(now - before);
        if full && case.budget < LONG || now > end {
            break;
        }
        before = now;
    }
    peer.send(STOP)?;
    samples.finish("").context("no samples")
}

fn pong<P: Peer>(peer: &mut P) -> Result<Option<Measured>> {
    loop {
        let stamp = peer.recv()?;
        if stamp == STOP {
            return Ok(None);
        }
        peer.send(stamp)?;
    }
}

fn pour<P: Peer>(peer: &mut P, case: &Case) -> Result<Option<Measured>> {
    let end = clock::ticks() + clock::in_ticks(case.budget) * 5 / 4;
    let mut stamp = 0u64;
    loop {
        stamp += 1;
        peer.send(stamp)?;
        if stamp.is_multiple_of(16) && clock::ticks() > end {
            peer.send(STOP)?;
            return Ok(None);
        }
    }
}

fn drain<P: Peer>(peer: &mut P, case: &Case) -> Result<Measured> {
    // One time stamp costs as much as a small message: then several share one.
    let batch = if case.touch == Touch::Touched && case.payload >= 1 << 16 {
        1
    } else {
        16
    };
    let mut samples = Samples::new(SAMPLES, batch);
    let begun = clock::ticks();
    let warm = clock::in_ticks(case.budget) / 4;
    let mut before = begun;
    let mut cold = None;
    let mut stamp = 0u64;
    loop {
        for _ in 0..batch {
            let got = peer.recv()?;
            if got == STOP {
                // Who came to run so late that all was over while it warmed up has that to show.
                if let (true, Some(cold)) = (samples.is_empty(), cold) {
                    samples.push(cold);
                }
                return samples
                    .finish("")
                    .context("no samples: the budget is too small");
            }
            stamp += 1;
            ensure!(got == stamp, "expected message {stamp}, got {got}");
        }
        let now = clock::ticks();
        if now - begun > warm {
            samples.push(now - before);
        } else {
            cold = Some(now - before);
        }
        before = now;
    }
}
