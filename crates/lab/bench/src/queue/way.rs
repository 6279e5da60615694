//! A way for items, and producers and consumers over it.

use anyhow::{Result, ensure};

use crate::clock;
use crate::options::Common;
use crate::party::{self, Party};
use crate::stats::Measured;

/// Bytes of an item of a stream.
pub const ITEM: usize = 64;
/// The word of the last item that a consumer gets.
pub const END: u64 = u64::MAX;

/// A way for items.
pub trait Way: Sized {
    /// Sends an item that begins with this word. Waits for room.
    fn send(&mut self, word: u64) -> Result<()>;
    /// Takes an item, and returns its first word. Waits for one.
    fn recv(&mut self) -> Result<u64>;
    /// Waits until what was sent was taken.
    fn wait_done(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Runs producers and consumers over a way that each process opens. `sides` of each.
pub fn run_stream<W: Way>(
    sides: usize,
    common: &Common,
    number: u64,
    open: impl Fn(usize, &Party) -> Result<W>,
) -> Result<Vec<Measured>> {
    let [core, other] = common.cores();
    let budget = clock::in_ticks(common.budget());
    let cores = [vec![core; sides], vec![other; sides]].concat();
    party::each(number, &cores, |me, party| {
        let mut way = open(me, party)?;
        party.barrier()?;
        match me < sides {
            true => produce(&mut way, me, sides, budget, party),
            false => consume(&mut way, party),
        }
    })
}

fn produce<W: Way>(
    way: &mut W,
    me: usize,
    sides: usize,
    budget: u64,
    party: &Party,
) -> Result<Vec<Measured>> {
    let begun = clock::ticks();
    let mut sent = 0u64;
    while clock::ticks() - begun < budget {
        for _ in 0..16 {
            way.send(sent)?;
            sent += 1;
        }
    }
    way.wait_done()?;
    if me > 0 {
        party.tell(0, sent)?;
        party.barrier()?;
        return Ok(Vec::new());
    }
    for other in 1..sides {
        sent += party.hear(other)?;
    }
    for _ in 0..sides {
        way.send(END)?;
    }
    let mut taken = 0;
    let mut last = 0;
    for consumer in sides..2 * sides {
        taken += party.hear(consumer)?;
        last = last.max(party.hear(consumer)?);
    }
    way.wait_done()?;
    party.barrier()?;
    ensure!(taken == sent, "{taken} items of {sent} were taken");
    let seconds = clock::ns(last - begun) / 1e9;
    Ok(vec![Measured::rate(sent as f64 / seconds)])
}

fn consume<W: Way>(way: &mut W, party: &Party) -> Result<Vec<Measured>> {
    let (mut taken, mut last) = (0u64, 0);
    while way.recv()? != END {
        taken += 1;
        if taken.is_multiple_of(16) {
            last = clock::ticks();
        }
    }
    party.tell(0, taken)?;
    party.tell(0, last.max(1))?;
    party.barrier()?;
    Ok(Vec::new())
}
