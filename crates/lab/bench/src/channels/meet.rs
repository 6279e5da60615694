//! How the sides of a bench come together: by addresses that nobody else has.

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tranship_core::{ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender, Wait};
use tranship_transport::net::{CREDENTIALS_VARIABLE, certificate};

use super::Level;
use crate::party::{self, Member, Party};
use crate::stats::Measured;
use crate::systems::tranship;

/// Ports of this machine that benches use, each run other ones.
const PORTS: [u64; 2] = [21_000, 9_000];

/// An address of this run; `link` tells its channels apart.
pub fn address(scheme: &str, run: u64, link: usize) -> String {
    let name = format!("bench-{run:x}-{link}");
    match scheme {
        "tcp" | "tcp+plain" => {
            let port = PORTS[0] + (run * 16 + link as u64) % PORTS[1];
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

/// A domain that understands all addresses; process 0 has the manager in it. All processes of the run call this at once.
fn domain(me: usize, party: &Party) -> Result<Domain> {
    let domain = tranship::domain(me, party)?;
    tranship_channel::add_to(&domain)?;
    Ok(domain)
}

/// Whether the sides are threads of one process.
fn is_local(scheme: &str) -> bool {
    scheme == "local"
}

/// Whether what arrives is a copy, in a pool of the receiver's.
pub fn copies(scheme: &str, level: Level) -> bool {
    match scheme {
        "local" => false,
        "shm" => level == Level::None,
        _ => true,
    }
}

/// A pool in which so many buffers fit, with all its memory.
pub fn pool(domain: &Domain, buffers: usize, payload: usize, level: Level) -> Result<Pool> {
    let (bytes, chunk, slots) = tranship::shape_of(buffers, payload);
    let options = PoolOptions::new(bytes)
        .chunk_bytes(chunk)
        .slots(slots)
        .preallocate(bytes)
        .trust(level.trust());
    Ok(domain.create_pool(options)?)
}

/// Options of both ends. What is copied goes to `copies`.
pub fn options(wait: Wait, copies: Option<&Pool>) -> ChannelOptions {
    let options = ChannelOptions::new().wait(wait);
    match copies {
        Some(pool) => options.snapshots(pool.id()),
        None => options,
    }
}

/// Listens there for the one that receives.
pub fn sender(domain: &Domain, address: &str, options: ChannelOptions) -> Result<Sender> {
    let listener = domain.listen_with::<Sender>(address, options);
    let listener = listener.with_context(|| format!("listening at {address}"))?;
    Ok(listener.accept()?)
}

/// Listens there for the one that sends.
pub fn receiver(domain: &Domain, address: &str, options: ChannelOptions) -> Result<Receiver> {
    let listener = domain.listen_with::<Receiver>(address, options);
    let listener = listener.with_context(|| format!("listening at {address}"))?;
    Ok(listener.accept()?)
}

/// One side of a run: a process with a domain, or a thread of one.
pub struct Side<'a> {
    pub me: usize,
    pub run: u64,
    pub domain: Domain,
    others: Others<'a>,
}

enum Others<'a> {
    Processes(&'a Party),
    Threads(&'a Barrier),
}

impl Side<'_> {
    /// Waits until all sides have come here: nobody closes its channels while another still looks.
    pub fn meet(&self) -> Result<()> {
        match self.others {
            Others::Processes(party) => party.barrier(),
            Others::Threads(barrier) => {
                barrier.wait();
                Ok(())
            }
        }
    }
}

/// Runs the sides, each on its core; gives what they measured, one after the other.
pub fn run(
    scheme: &str,
    cores: &[usize],
    number: u64,
    side: impl Fn(&Side<'_>) -> Result<Vec<Measured>> + Sync,
) -> Result<Vec<Measured>> {
    let side = &side;
    let members = match is_local(scheme) {
        true => vec![Member {
            core: cores[0],
            body: Box::new(move |party: &Party| threads(cores, party, side)),
        }],
        false => {
            let member = |me: usize| Member {
                core: cores[me],
                body: Box::new(move |party: &Party| {
                    side(&Side {
                        me,
                        run: party.run,
                        domain: domain(me, party)?,
                        others: Others::Processes(party),
                    })
                }),
            };
            (0..cores.len()).map(member).collect()
        }
    };
    Ok(party::run(number, members)?.into_iter().flatten().collect())
}

/// All sides in one process, which has one domain.
fn threads(
    cores: &[usize],
    party: &Party,
    side: &(impl Fn(&Side<'_>) -> Result<Vec<Measured>> + Sync),
) -> Result<Vec<Measured>> {
    let (domain, barrier) = (domain(0, party)?, Barrier::new(cores.len()));
    let (domain, barrier) = (&domain, &barrier);
    std::thread::scope(|scope| {
        let one = |(me, core): (usize, &usize)| {
            let (core, run) = (*core, party.run);
            scope.spawn(move || {
                party::pin(core)?;
                let this = Side {
                    me,
                    run,
                    domain: domain.clone(),
                    others: Others::Threads(barrier),
                };
                // The others wait for it until the clock of the parent ends that.
                side(&this).inspect_err(|error| eprintln!("side {me} of the run: {error:#}"))
            })
        };
        let sides: Vec<_> = cores.iter().enumerate().map(one).collect();
        let mut measured = Vec::new();
        for side in sides {
            match side.join() {
                Ok(more) => measured.extend(more?),
                Err(_) => bail!("a side panicked"),
            }
        }
        Ok(measured)
    })
}
