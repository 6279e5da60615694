//! A server's blocks over two channels, one for each direction of the data.
//!
//! Everything that was asked and not answered is asked again when the server is back: reads change nothing, and a write
//! that is done twice leaves what one leaves.

mod lane;
mod link;
mod safety;

pub use lane::Lane;
pub(crate) use link::give;

use crate::leases::random;
use crate::{Data, Endpoint, Fault, Info, Job, LaneKind, Lease, Op, Store};
use safety::Safety;
use std::sync::Arc;
use std::time::Duration;
use tranship_bulk::Domain;

/// A server, or a proxy. Reconnects by itself. Safe to use from many threads; dropping it ends its channels.
#[derive(Debug)]
pub struct Remote {
    lanes: [Arc<Lane>; 2],
}

/// One client of a server: what all its channels know together.
#[derive(Debug)]
pub(crate) struct Client {
    /// Of no other client.
    number: u64,
    /// It wants leases.
    caches: bool,
    safety: Safety,
    lease: Lease,
}

impl Client {
    pub(crate) fn new(caches: bool) -> Arc<Client> {
        Arc::new(Client {
            number: random(),
            caches,
            safety: Safety::default(),
            lease: Lease::of_a_server(),
        })
    }
}

impl Remote {
    /// Begins to connect; requests wait until that is done.
    #[must_use]
    pub fn new(server: &Endpoint) -> Remote {
        Remote::of(server, &Client::new(false))
    }

    /// As [`Remote::new`], with a cache in front ([`Cached`](crate::Cached)): asks the server for leases, for which the writes
    /// of others wait.
    #[must_use]
    pub fn leased(server: &Endpoint) -> Remote {
        Remote::of(server, &Client::new(true))
    }

    /// As one client with others.
    pub(crate) fn of(server: &Endpoint, client: &Arc<Client>) -> Remote {
        let lane = |kind| Lane::start(kind, server, server.domain(), Arc::clone(client), false);
        Remote {
            lanes: LaneKind::ALL.map(lane),
        }
    }

    /// Waits until the server has been reached, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Result<Info, Fault> {
        let until = std::time::Instant::now() + limit;
        let left = || until.saturating_duration_since(std::time::Instant::now());
        self.lanes[1].wait(left())?;
        self.lanes[0].wait(left())
    }

    /// In words, why the server is not there; none: it is, or was not tried yet.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.lanes.iter().find_map(|lane| lane.why())
    }

    /// How often the server was reached.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.connections()).sum()
    }

    fn lane(&self, op: Op) -> &Arc<Lane> {
        &self.lanes[usize::from(op != Op::Read)]
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.stop());
    }
}

impl Store for Remote {
    fn info(&self) -> Result<Info, Fault> {
        self.lanes[0].info()
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn lease(&self) -> Lease {
        self.lanes[0].lease()
    }

    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        self.lane(op).data(op, len)
    }

    fn piece(&self, len: usize) -> usize {
        self.lanes[0].piece(len)
    }

    fn submit(&self, job: Job) {
        self.lane(job.request.op).submit(job);
    }

    fn kick(&self) {}
}

/// A lane of its own in a domain that exists: for a front whose clients' buffers go on to the server as they are.
pub(crate) fn lane_in(
    kind: LaneKind,
    server: &Endpoint,
    domain: &Domain,
    client: &Arc<Client>,
) -> Arc<Lane> {
    Lane::start(kind, server, domain.clone(), Arc::clone(client), true)
}
