//! `ops`: what each operation costs by itself, a batch of it at a time, both caches warm.

use anyhow::{Context, Result};

use crate::case::{Case, Pattern, Touch, Wait};
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::peer::{Peer, Role};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};

/// Operations of one kind in a row; a sender has at least twice as many buffers.
pub const BATCH: u32 = 32;
const PAYLOAD: usize = 4096;
const BUFFERS: usize = 256;
/// Said by Ping to Pong: a batch waits, a batch waits that does not count yet, or it was the last.
const MORE: u64 = 1;
const WARM: u64 = 2;
const END: u64 = 0;

/// A system whose operations can be told apart.
pub trait Ops: Peer {
    /// A buffer to write, not yet sent.
    type Loan;
    /// A received buffer.
    type Held;

    /// Takes a buffer.
    fn alloc(&mut self) -> Result<Self::Loan>;
    /// Gives back one that was never sent.
    fn free(&mut self, loan: Self::Loan) -> Result<()>;
    /// Writes 8 bytes, freezes, sends.
    fn give(&mut self, loan: Self::Loan, stamp: u64) -> Result<()>;
    /// Receives a message that is there, and reads 8 bytes.
    fn take(&mut self) -> Result<(Self::Held, u64)>;
    /// Gives a received buffer back.
    fn release(&mut self, held: Self::Held) -> Result<()>;
}

/// A system in the list.
#[derive(Debug, Clone, Copy)]
pub struct OpsEntry {
    pub name: &'static str,
    pub clean: fn(u64),
    pub serve: fn(&Case, Role, &Party) -> Result<Vec<Measured>>,
}

pub const fn entry<P: Ops>() -> OpsEntry {
    OpsEntry {
        name: P::NAME,
        clean: P::clean,
        serve: serve::<P>,
    }
}

pub fn bench(common: &Common, systems: &[OpsEntry]) -> Outcome {
    let case = Case {
        pattern: Pattern::Stream,
        wait: Wait::Spin,
        touch: Touch::Word,
        payload: PAYLOAD,
        buffers: BUFFERS,
        loans: BATCH as usize,
        cores: common.cores(),
        helper: true,
        budget: common.budget(),
    };
    let key = Key {
        mode: "hot",
        payload_bytes: Some(PAYLOAD),
        buffers: Some(BUFFERS),
        ..Key::default()
    };
    let wanted = systems.iter().filter(|e| common.wants(e.name));
    let cells = wanted.map(|e| {
        let case = &case;
        let member = move |role: Role| Member {
            core: case.cores[role.index()],
            body: Box::new(move |party: &Party| (e.serve)(case, role, party)),
        };
        let measure = Box::new(move |number| {
            let both = party::run(number, vec![member(Role::Ping), member(Role::Pong)]);
            (e.clean)(number);
            Ok(both?.into_iter().flatten().collect())
        });
        Cell {
            system: e.name,
            key: key.clone(),
            measure,
        }
    });
    let mut outcome = Outcome::default();
    outcome.group(common.runs(), cells.collect());
    outcome
}

fn serve<P: Ops>(case: &Case, role: Role, party: &Party) -> Result<Vec<Measured>> {
    let mut peer = P::open(case, role, party)?;
    party.barrier()?;
    let measured = match role {
        Role::Ping => give(&mut peer, case, party),
        _ => take(&mut peer, party),
    }?;
    party.barrier()?;
    Ok(measured)
}

/// Times `op` on each of a batch, as a whole.
fn timed<T>(samples: &mut Samples, warm: bool, op: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = clock::ticks();
    let done = op()?;
    let spent = clock::ticks() - before;
    if !warm {
        samples.push(spent);
    }
    Ok(done)
}

fn samples() -> Samples {
    Samples::new(1 << 16, BATCH)
}

fn give<P: Ops>(peer: &mut P, case: &Case, party: &Party) -> Result<Vec<Measured>> {
    let (mut alloc, mut free, mut send) = (samples(), samples(), samples());
    let mut loans = Vec::with_capacity(BATCH as usize);
    let begun = clock::ticks();
    let budget = clock::in_ticks(case.budget);
    let mut stamp = 0;
    loop {
        let warm = clock::ticks() - begun < budget / 4;
        timed(&mut alloc, warm, || {
            for _ in 0..BATCH {
                loans.push(peer.alloc()?);
            }
            Ok(())
        })?;
        timed(&mut free, warm, || {
            loans.drain(..).try_for_each(|loan| peer.free(loan))
        })?;
        for _ in 0..BATCH {
            loans.push(peer.alloc()?);
        }
        timed(&mut send, warm, || {
            loans.drain(..).try_for_each(|loan| {
                stamp += 1;
                peer.give(loan, stamp)
            })
        })?;
        // Never one that was not timed, however long it took.
        let last = !warm && clock::ticks() - begun > budget * 5 / 4;
        party.tell(
            Role::Pong.index(),
            if last {
                END
            } else if warm {
                WARM
            } else {
                MORE
            },
        )?;
        party.hear(Role::Pong.index())?;
        if last {
            break;
        }
    }
    named([("alloc", alloc), ("free", free), ("send", send)])
}

fn take<P: Ops>(peer: &mut P, party: &Party) -> Result<Vec<Measured>> {
    let (mut receive, mut release) = (samples(), samples());
    let mut held = Vec::with_capacity(BATCH as usize);
    let mut stamp = 0;
    loop {
        let word = party.hear(Role::Ping.index())?;
        let (last, warm) = (word == END, word == WARM);
        timed(&mut receive, warm, || {
            for _ in 0..BATCH {
                let (buffer, got) = peer.take()?;
                stamp += 1;
                anyhow::ensure!(got == stamp, "expected message {stamp}, got {got}");
                held.push(buffer);
            }
            Ok(())
        })?;
        timed(&mut release, warm, || {
            held.drain(..).try_for_each(|one| peer.release(one))
        })?;
        party.tell(Role::Ping.index(), 0)?;
        if last {
            break;
        }
    }
    named([("receive", receive), ("release", release)])
}

fn named<const N: usize>(list: [(&str, Samples); N]) -> Result<Vec<Measured>> {
    let one = |(name, s): (&str, Samples)| {
        s.finish(name)
            .with_context(|| format!("no samples of {name}"))
    };
    list.into_iter().map(one).collect()
}
