//! How the sides of a bulk bench come together: by an address that nobody else has.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use tranship_bulk::{Channel, Completion, Direction, Domain, EndOptions, Event, Kind, Pool, Trust};
use tranship_transport::net::{CREDENTIALS_VARIABLE, certificate};

use crate::case::Wait;
use crate::party::Party;

/// The longest metadata: a stamp.
const META_BYTES: u32 = 8;

/// Ports of this machine that benches use, each run another one.
const PORTS: [u64; 2] = [21_000, 9_000];

/// An address of this run; `link` tells its channels apart.
pub fn address(scheme: &str, run: u64, link: usize) -> String {
    let name = format!("bench-{run:x}-{link}");
    match scheme {
        "tcp" | "tcp+plain" => {
            let port = PORTS[0] + (run * 8 + link as u64) % PORTS[1];
            format!("{scheme}:127.0.0.1:{port}/{name}")
        }
        _ => format!("{scheme}:{name}"),
    }
}

/// Certificates for the time of a bench, where `tcp:` finds them.
#[derive(Debug)]
pub struct Credentials(PathBuf);

impl Credentials {
    /// Makes them. The program must not have started any thread yet.
    pub fn make() -> Result<Credentials> {
        let place = std::env::temp_dir().join(format!("tranship-bench-{}", std::process::id()));
        let (made, life) = (Credentials(place), Duration::from_secs(3600));
        let (authority, own) = (made.0.join("authority"), made.0.join("own"));
        let names = ["127.0.0.1".to_owned()];
        let issued = certificate::init(&authority, "bench", life)
            .and_then(|()| certificate::issue_into(&authority, "bench", &names, life, &own));
        issued.map_err(anyhow::Error::msg)?;
        // SAFETY: nobody else reads the environment meanwhile: there is no other thread.
        unsafe { std::env::set_var(CREDENTIALS_VARIABLE, own) };
        Ok(made)
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        // At worst a few files stay.
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
            Err(error) if error == Kind::InvalidEndpoint => std::thread::yield_now(),
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
            Wait::Block => channel.wait_event(Duration::from_secs(1))?,
        };
        match event {
            Some(event) => return Ok(event),
            None => std::hint::spin_loop(),
        }
    }
}
