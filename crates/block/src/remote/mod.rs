//! A server's blocks over two channels, one for each direction of the data.
//!
//! Everything that was asked and not answered is asked again when the server is back: reads change nothing, and a write
//! that is done twice leaves what one leaves.

mod lane;
mod link;
mod safety;

pub use lane::Lane;
pub(crate) use link::give;
pub(crate) use safety::Safety;

use crate::{Data, Endpoint, Fault, Info, Job, Kind, Op, Store};
use std::sync::Arc;
use std::time::Duration;
use tranship_bulk::Domain;

/// A server, or a proxy. Reconnects by itself. Safe to use from many threads; dropping it ends its channels.
#[derive(Debug)]
pub struct Remote {
    lanes: [Arc<Lane>; 2],
}

impl Remote {
    /// Begins to connect; requests wait until that is done.
    #[must_use]
    pub fn new(server: &Endpoint) -> Remote {
        Remote::sharing(server, &Arc::new(Safety::default()))
    }

    /// As [`Remote::new`], and keeps account of what is not flushed together with others.
    pub(crate) fn sharing(server: &Endpoint, safety: &Arc<Safety>) -> Remote {
        let lane = |kind| Lane::start(kind, server, server.domain(), Arc::clone(safety), false);
        Remote {
            lanes: Kind::ALL.map(lane),
        }
    }

    /// Waits until the server has been reached, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Result<Info, Fault> {
        let until = std::time::Instant::now() + limit;
        let left = || until.saturating_duration_since(std::time::Instant::now());
        self.lanes[1].wait(left())?;
        self.lanes[0].wait(left())
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
    kind: Kind,
    server: &Endpoint,
    domain: &Domain,
    safety: &Arc<Safety>,
) -> Arc<Lane> {
    Lane::start(kind, server, domain.clone(), Arc::clone(safety), true)
}
