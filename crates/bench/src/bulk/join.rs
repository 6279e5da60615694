//! How the sides of a bulk bench come together: by an address that nobody else has.

use anyhow::{Result, bail};
use tranship_bulk::{Channel, Code, Completion, Direction, Domain, EndOptions, Event, Pool, Trust};

use crate::case::Wait;
use crate::party::Party;

/// The longest metadata: a stamp.
const META_BYTES: u32 = 8;

/// An address of this run; `link` tells its channels apart.
pub fn address(scheme: &str, run: u64, link: usize) -> String {
    format!("{scheme}:bench-{run:x}-{link}")
}

/// A domain; process 0 has the manager in it. All processes of the run call this at once.
pub fn domain(me: usize, party: &Party) -> Result<Domain> {
    Ok(Domain::over(&crate::systems::tranship::domain(me, party)?)?)
}

/// Creates the channel, as its source, and waits until somebody has bound.
pub fn create(domain: &Domain, address: &str, trust: Trust) -> Result<Channel> {
    let options = EndOptions::new(trust).meta_bytes(META_BYTES);
    let channel = domain.create(address, Direction::Source, options)?;
    bound(&channel)?;
    Ok(channel)
}

/// Binds as soon as somebody has created it.
pub fn bind(domain: &Domain, address: &str, trust: Trust) -> Result<Channel> {
    loop {
        match domain.bind(address, EndOptions::new(trust)) {
            Ok((channel, _)) => {
                bound(&channel)?;
                return Ok(channel);
            }
            // Not there yet. A run that is stuck ends by the clock of its parent.
            Err(Code::InvalidEndpoint) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
}

fn bound(channel: &Channel) -> Result<()> {
    match next(channel, Wait::Block)? {
        Event::Bound(Ok(_)) => Ok(()),
        other => bail!("not bound: {other:?}"),
    }
}

/// A pool of the domain, assigned to the channel.
pub fn pool(domain: &Domain, channel: &Channel, buffers: usize, bytes: usize) -> Result<Pool> {
    let pool = domain.pool(u32::try_from(buffers)?, bytes as u64, true)?;
    assign(channel, pool.info().id)?;
    Ok(pool)
}

/// Assigns a pool and waits until it is.
pub fn assign(channel: &Channel, pool: u64) -> Result<()> {
    let assigned: Completion = channel.assign(pool)?;
    channel.block_on(assigned)?;
    Ok(())
}

/// Waits for the other end's pool; gives its number.
pub fn assigned(channel: &Channel) -> Result<u64> {
    match next(channel, Wait::Block)? {
        Event::PoolAssigned(info) => Ok(info.id),
        other => bail!("no pool: {other:?}"),
    }
}

/// The next event.
#[inline]
pub fn next(channel: &Channel, wait: Wait) -> Result<Event> {
    loop {
        let event = match wait {
            Wait::Spin => channel.poll_event()?,
            Wait::Block => channel.wait_event(std::time::Duration::from_secs(1))?,
        };
        match event {
            Some(event) => return Ok(event),
            None => std::hint::spin_loop(),
        }
    }
}
