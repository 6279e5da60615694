//! Serves a store over channels, to any number of clients.
//!
//! Each channel is created at the service's address, and anew as soon as somebody has bound it. Who provides the
//! buffers depends on who serves: a [`Direct`] front is the slave, its clients bring their pools, and the disk works on
//! their buffers; a [`Forwarding`] front is the master of its clients and of its server, so that the same buffers go
//! both ways, and come back to it whoever of the others dies.

mod session;

use crate::lack::Patience;
use crate::leases::{Leases, Tenanted};
use crate::{Cache, Cached, Endpoint, Lane, LaneKind, Store, remote};
use session::{Fences, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tranship_bulk::{Channel, Direction, Domain, EndOptions, Error, Event, Kind, PoolInfo, Role};

/// The longest single wait.
const ROUND: Duration = Duration::from_millis(100);
/// What a client may bring in all pools of a channel, bytes: over a network it is this process's memory.
const MAX_POOL_BYTES: u64 = 16 << 20;
/// The most pools that a client may bring on one channel.
const MAX_POOLS: usize = 8;
/// The most channels of one kind, and of one client: a user, or a host.
const MAX_CHANNELS: usize = 256;
const MAX_CHANNELS_OF_ONE: usize = 64;

/// Where a front's requests go.
pub trait Behind: Send + Sync + 'static {
    /// Does it provide the buffers?
    fn is_master(&self) -> bool;
    /// What serves one channel, whose domain this is.
    fn serve(&self, kind: LaneKind, domain: &Domain) -> Result<Served, Error>;
}

/// What serves one channel.
pub struct Served {
    pub(crate) store: Arc<dyn Store>,
    /// For clients with caches.
    pub(crate) leases: Option<Arc<Leases>>,
    /// Whose buffers go to the client.
    pub(crate) lane: Option<LaneGuard>,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served({:?})", self.store)
    }
}

/// Ends the lane when its client is gone.
#[derive(Debug)]
pub(crate) struct LaneGuard(pub(crate) Arc<Lane>);

impl Drop for LaneGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A store that works on its clients' buffers.
#[derive(Debug)]
pub struct Direct {
    store: Arc<dyn Store>,
    leases: Arc<Leases>,
}

impl Direct {
    /// Of a disk that nobody else writes to: what goes past this is not seen by the caches of its clients.
    pub fn new(store: Arc<dyn Store>) -> std::io::Result<Direct> {
        let leases = Leases::new()?;
        Ok(Direct { store, leases })
    }

    /// For users in this process, beside the clients.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(Tenanted::new(&self.store, &self.leases))
    }
}

impl Behind for Direct {
    fn is_master(&self) -> bool {
        false
    }

    fn serve(&self, _: LaneKind, _: &Domain) -> Result<Served, Error> {
        Ok(Served {
            store: Arc::clone(&self.store),
            leases: Some(Arc::clone(&self.leases)),
            lane: None,
        })
    }
}

/// A server elsewhere: each client's channel has its own to it.
#[derive(Debug)]
pub struct Forwarding {
    server: Endpoint,
    cache: Option<Arc<Cache>>,
    client: Arc<remote::Client>,
}

impl Forwarding {
    /// To this server, with this cache in front.
    #[must_use]
    pub fn new(server: &Endpoint, cache: Option<&Arc<Cache>>) -> Forwarding {
        Forwarding {
            server: server.clone(),
            cache: cache.map(Arc::clone),
            client: remote::Client::new(cache.is_some()),
        }
    }

    /// As a store of this process, over channels of its own.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        let remote = remote::Remote::of(&self.server, &self.client);
        match &self.cache {
            Some(cache) => Arc::new(Cached::new(cache, remote)),
            None => Arc::new(remote),
        }
    }
}

impl Behind for Forwarding {
    fn is_master(&self) -> bool {
        true
    }

    fn serve(&self, kind: LaneKind, domain: &Domain) -> Result<Served, Error> {
        let lane = remote::lane_in(kind, &self.server, domain, &self.client);
        let guard = LaneGuard(Arc::clone(&lane));
        Ok(Served {
            store: match &self.cache {
                Some(cache) => Arc::new(Cached::new(cache, lane)),
                None => lane,
            },
            leases: None,
            lane: Some(guard),
        })
    }
}

/// A service at an address. Dropping it ends it, and its clients' channels.
#[derive(Debug)]
pub struct Front {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Front {
    /// Begins to serve; an error if the address cannot be had.
    pub fn start(at: &Endpoint, behind: Arc<dyn Behind>) -> Result<Front, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let fences = Arc::new(Fences::default());
        let mut front = Front {
            stop: Arc::clone(&stop),
            threads: Vec::new(),
        };
        for kind in LaneKind::ALL {
            let first = door(at, kind, &*behind)?;
            let shared = (at.clone(), Arc::clone(&behind), Arc::clone(&stop));
            let fences = Arc::clone(&fences);
            let thread = std::thread::Builder::new().name("block-door".into());
            let thread = thread.spawn(move || {
                let (at, behind, stop) = shared;
                admit(&at, kind, &behind, &stop, &fences, first);
            });
            let thread = thread.map_err(Error::system("starting a thread"));
            front.threads.push(thread?);
        }
        Ok(front)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Ordering: release, partner: the threads' acquire loads.
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A channel that waits for somebody.
fn door(at: &Endpoint, kind: LaneKind, behind: &dyn Behind) -> Result<(Domain, Channel), Error> {
    let domain = at.domain();
    let (mut pools, mut left) = (0, MAX_POOL_BYTES);
    let options = EndOptions::new(at.trust())
        .meta_bytes(crate::wire::META_BYTES)
        .role(match behind.is_master() {
            true => Role::Master,
            false => Role::Slave,
        })
        .accept(move |info: &PoolInfo| {
            let bytes = u64::from(info.buffers).checked_mul(info.buffer_bytes);
            let rest = bytes.and_then(|bytes| left.checked_sub(bytes));
            left = rest.filter(|_| pools < MAX_POOLS).ok_or(Kind::PoolVeto)?;
            pools += 1;
            Ok(())
        });
    let direction = match kind {
        LaneKind::Read => Direction::Source,
        LaneKind::Write => Direction::Sink,
    };
    let channel = domain.create(&at.channel(kind), direction, options)?;
    Ok((domain, channel))
}

/// Lets clients in until the end.
fn admit(
    at: &Endpoint,
    kind: LaneKind,
    behind: &Arc<dyn Behind>,
    stop: &Arc<AtomicBool>,
    fences: &Arc<Fences>,
    first: (Domain, Channel),
) {
    let mut clients: Vec<(String, JoinHandle<()>)> = Vec::new();
    let mut next = Some(first);
    // Ordering: acquire, partner: the front's end.
    while !stop.load(Ordering::Acquire) {
        clients.retain(|(_, client)| !client.is_finished());
        let (domain, channel) = match next.take().map_or_else(|| door(at, kind, &**behind), Ok) {
            Ok(door) => door,
            Err(error) => {
                tracing::warn!("{at}: {error}; trying again");
                std::thread::sleep(ROUND);
                continue;
            }
        };
        let mut patience = Patience::default();
        let bound = loop {
            if stop.load(Ordering::Acquire) {
                break false;
            }
            match patience.event(at, &channel, ROUND) {
                Ok(Some(Event::Bound(Ok(_)))) => break true,
                Ok(_) => {}
                Err(code) => {
                    tracing::warn!("{at}: {code}");
                    break false;
                }
            }
        };
        if !bound {
            continue;
        }
        let who = channel.peer();
        let own = channel.peer_owner();
        let of_one = clients.iter().filter(|(other, _)| *other == own).count();
        if of_one >= MAX_CHANNELS_OF_ONE || clients.len() >= MAX_CHANNELS {
            tracing::warn!(
                "{at}: {who} is refused, {kind:?}: it has {of_one} channels, all have {}; at most \
                 {MAX_CHANNELS_OF_ONE} and {MAX_CHANNELS}",
                clients.len()
            );
            channel.abandon();
            continue;
        }
        tracing::info!("{at}: {who} is let in, {kind:?}");
        let (behind, stop) = (Arc::clone(behind), Arc::clone(stop));
        let fences = Arc::clone(fences);
        let seen = channel.clone();
        let thread = std::thread::Builder::new().name("block-client".into());
        let thread = thread.spawn(move || {
            let ended = behind
                .serve(kind, &domain)
                .and_then(|served| Session::new(kind, channel, served, fences).run(&stop));
            match ended {
                Ok(()) => tracing::info!("{who} is gone, {kind:?}"),
                Err(code) => {
                    let why = seen.why().unwrap_or_default();
                    tracing::warn!("{who}: its channel is over, {kind:?}: {code} {why}");
                }
            }
        });
        match thread {
            Ok(thread) => clients.push((own, thread)),
            Err(error) => tracing::error!("no thread for a client: {error}"),
        }
    }
    for (_, client) in clients {
        let _ = client.join();
    }
}
