//! Serves a store over channels, to any number of clients.
//!
//! Each client has two channels: it asks by one, and is answered by the other. [`door`] lets clients in, [`session`]
//! serves one.
//!
//! For a [`Direct`] front, read data goes from the disk into a buffer of a pool that only this client can see, and is
//! shared with it. Data to write goes to the disk from where the client has put it. A [`Forwarding`] front asks a
//! server elsewhere, and passes the data on.

mod answers;
mod behind;
mod door;
mod places;
mod session;

pub use behind::{Behind, Served};

use crate::leases::{Leases, Tenanted};
use crate::{Cache, Cached, Endpoint, Remote, Store, remote};
use door::Door;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tranship_core::{Error, error};

/// A store that works on its clients' buffers.
#[derive(Debug)]
pub struct Direct {
    store: Arc<dyn Store>,
    leases: Arc<Leases>,
}

impl Direct {
    /// Creates a front of a disk that nobody else writes to: the caches of its clients do not see writes that go past
    /// it.
    ///
    /// # Errors
    /// The kernel's error, if it gives no random numbers.
    pub fn new(store: Arc<dyn Store>) -> std::io::Result<Direct> {
        let leases = Leases::new()?;
        Ok(Direct { store, leases })
    }

    /// Returns the store for users in this process, beside the clients.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(Tenanted::new(&self.store, &self.leases))
    }
}

impl Behind for Direct {
    fn serve(&self) -> Served {
        Served {
            store: Arc::clone(&self.store),
            leases: Some(Arc::clone(&self.leases)),
            remote: None,
            passes_on: false,
        }
    }
}

/// A server elsewhere: each client has a connection of its own to it.
///
/// If the addresses on both sides give the same domain ([`Endpoint::with_domains`]), no byte is copied here: what a client writes goes on where it lies,
/// and without a cache what it reads, too. A side that does not take the other side's pool gets a copy.
#[derive(Debug)]
pub struct Forwarding {
    server: Endpoint,
    cache: Option<Arc<Cache>>,
    client: Arc<remote::Client>,
}

impl Forwarding {
    /// Creates a front of this server, with this cache before it.
    #[must_use]
    pub fn new(server: &Endpoint, cache: Option<&Arc<Cache>>) -> Forwarding {
        Forwarding {
            server: server.clone(),
            cache: cache.map(Arc::clone),
            client: remote::Client::new(cache.is_some(), cache),
        }
    }

    /// Returns a store for this process, over a connection of its own.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.cached(Remote::of(&self.server, &self.client))
    }

    fn cached(&self, store: impl Store + 'static) -> Arc<dyn Store> {
        match &self.cache {
            Some(cache) => Arc::new(Cached::new(cache, store)),
            None => Arc::new(store),
        }
    }
}

impl Behind for Forwarding {
    fn serve(&self) -> Served {
        let remote = Remote::of(&self.server, &self.client);
        Served {
            store: self.cached(Arc::clone(&remote)),
            leases: None,
            remote: Some(remote),
            passes_on: self.cache.is_none(),
        }
    }
}

/// A service at an address. Dropping it ends it, and its clients' channels.
///
/// ```
/// # mod tranship { pub use tranship_core::*; pub use tranship_block as block; }
/// use std::sync::Arc;
/// use tranship::block::front::{Direct, Forwarding, Front};
/// use tranship::block::{Blocking, Cache, Disk, DiskOptions, Endpoint, Remote};
/// use tranship::Trust;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// # let new = DiskOptions { size: Some(1 << 20), ..DiskOptions::default() };
/// let disk = Disk::open(&path, &new)?;
/// let at = Endpoint::new("local:blocks", Trust::Producer); // `tcp:HOST:PORT/NAME` for other machines
/// let _server = Front::start(&at, Arc::new(Direct::new(disk)?))?;
///
/// // Nearer to its clients, with a cache of 1 MiB that stays correct, whichever client writes.
/// let near = Endpoint::new("local:near", Trust::Producer);
/// let _proxy = Front::start(&near, Arc::new(Forwarding::new(&at, Some(&Cache::new(1 << 20)))))?;
///
/// let blocks = Blocking(Remote::new(&near));
/// blocks.write_at(0, b"through both", true)?;
/// let mut bytes = [0; 12];
/// blocks.read_at(0, &mut bytes)?;
/// assert_eq!(&bytes, b"through both");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Front {
    stop: Arc<AtomicBool>,
    door: Option<JoinHandle<()>>,
}

impl Front {
    /// Begins to serve; an error if the address cannot be had.
    ///
    /// # Errors
    /// Those of [`Domain::listen`](tranship_core::Domain::listen), and of making a domain.
    pub fn start(at: &Endpoint, behind: Arc<dyn Behind>) -> Result<Front, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door::open(at, behind, &stop)?;
        let thread = std::thread::Builder::new().name("block-door".into());
        let thread = thread.spawn(move || door.run());
        let door = Some(thread.map_err(error::system("starting a thread"))?);
        Ok(Front { stop, door })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Ordering: release, partner: the threads' acquire loads.
        self.stop.store(true, Ordering::Release);
        if let Some(door) = self.door.take() {
            let _ = door.join();
        }
    }
}
