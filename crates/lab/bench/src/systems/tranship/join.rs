//! The begin of all benches of the product: domains, pools of a known number of buffers, links.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tranship_core::{ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender};

use crate::case::{Case, Wait};
use crate::party::Party;
use crate::peer::Role;

pub fn socket(run: u64) -> PathBuf {
    crate::party::folder(run).join("manager.sock")
}

/// A domain; process 0 has the manager in it. All processes of the run call this at once.
pub fn domain(me: usize, party: &Party) -> Result<Domain> {
    domain_with(me, party, true)
}

/// Joins with a helper thread or without one.
pub fn domain_with(me: usize, party: &Party, helper: bool) -> Result<Domain> {
    let builder = Domain::builder()
        .name(&format!("bench-{me}"))
        .socket(socket(party.run))
        .helper_thread(helper); // bounds the sleeps of links, so that the kernel needs no timer for each
    if me == 0 {
        let domain = builder.embedded().context("a manager in process 0")?;
        party.barrier()?;
        return Ok(domain);
    }
    party.barrier()?;
    Ok(builder.connect()?)
}

/// A pool in which as near as possible `buffers` of `payload` bytes fit: small ones come 64 to a page.
pub fn pool_of(buffers: usize, payload: usize) -> PoolOptions {
    let (bytes, chunk, slots) = shape_of(buffers, payload);
    PoolOptions::new(bytes).chunk_bytes(chunk).slots(slots)
}

/// Its bytes, the bytes of a chunk, its slots.
pub fn shape_of(buffers: usize, payload: usize) -> (u64, u64, u32) {
    let bytes = (buffers * payload.next_multiple_of(64)) as u64;
    // Few chunks, each of which holds at least one buffer.
    let least = (payload as u64).next_power_of_two().max(64 << 10);
    let chunk = (bytes / 16)
        .next_power_of_two()
        .max(least)
        .clamp(64 << 10, 64 << 20);
    (
        bytes,
        chunk,
        u32::try_from(buffers).unwrap_or(u32::MAX).max(64),
    )
}

/// Gives the pool all its memory before anything is measured: a manager that shares a core with a side that spins takes a
/// millisecond for each chunk.
pub fn grow(pool: &Pool, case: &Case) -> Result<()> {
    let all: Result<Vec<_>, _> = (0..case.buffers)
        .map(|_| pool.alloc(case.payload))
        .collect();
    all.map(drop).context("all buffers of the pool")
}

/// How a side waits, in the library's words.
pub fn wait(wait: Wait) -> tranship_core::Wait {
    match wait {
        Wait::Spin => tranship_core::Wait::Spin,
        Wait::Block => tranship_core::Wait::Sleep,
    }
}

/// How both ends of a link wait.
pub fn options(how: Wait) -> ChannelOptions {
    ChannelOptions::new().wait(wait(how))
}

/// A link each way between Ping and Pong.
pub fn links(domain: &Domain, case: &Case, role: Role) -> Result<(Sender, Receiver)> {
    let options = options(case.wait);
    if role == Role::Ping {
        let out = domain.listen_with::<Sender>("out", options.clone())?;
        let back = domain.listen_with::<Receiver>("back", options)?;
        return Ok((out.accept()?, back.accept()?));
    }
    let receiver = domain.open_with::<Receiver>("out", options.clone())?;
    Ok((domain.open_with::<Sender>("back", options)?, receiver))
}

/// Assigns a pool to a link before anything is measured. The other side calls `look`.
pub fn show(sender: &mut Sender, pool: &Pool) -> Result<()> {
    sender.assign(pool)?;
    sender.send(&[])?;
    Ok(())
}

/// Waits until the other side's `show` is through.
pub fn look(receiver: &mut Receiver) -> Result<()> {
    let message = receiver.recv()?;
    ensure!(message.is_empty(), "{} bytes to begin with", message.len());
    Ok(())
}
