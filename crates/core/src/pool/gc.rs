//! The collector's state: who counts, what was sent and is alive, what is dead and not yet asked for.

use super::counts::{Counts, Refs};
use super::trail::Trail;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_ledger::{Batch, Roster};
use tranship_proto::{ChannelId, DomainId};
use tranship_sync::Taker;

/// Candidates looked at together: four cache lines of each counter.
pub(super) const LOOK: usize = 64;

/// The collector's state: one thread at a time.
pub(super) struct Gc {
    pub(super) roster: Roster<Refs, Counts>,
    pub(super) taker: Taker,
    /// What single senders have sent, before it is in the queue.
    pub(super) trails: Vec<Arc<Trail>>,
    /// Sent buffers that were alive when last looked at, oldest first.
    pub(super) held: VecDeque<u32>,
    /// Dead buffers by class, for the zones to import.
    pub(super) ready: Box<[Vec<u32>]>,
    pub(super) candidates: Vec<u32>,
    pub(super) batch: Batch,
    /// Readers' processes, to see deaths while the manager is away.
    pub(super) processes: HashMap<DomainId, OwnedFd>,
    /// Inodes of the readers' counters: what a new manager is told, so that it believes nobody else.
    pub(super) refs_inodes: HashMap<DomainId, u64>,
    /// Who reads each queue.
    pub(super) sinks: HashMap<ChannelId, Sink>,
    /// Readers that the present manager has not named yet: only we can see that they died.
    pub(super) returning: HashSet<DomainId>,
    pub(super) standing: Standing,
}

/// What tells that the roster is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Its epoch is the one that the board shows.
    Managed,
    /// Whatever the board says (`OwnPool::stand_alone`).
    Alone,
    /// That the board of the next manager does not have the pool yet (`OwnPool::suspend`).
    Unlisted,
}

/// The reading end of a queue on the roster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sink {
    pub(super) domain: DomainId,
    /// The manager's number of its process: what the next one is told.
    pub(super) process: u64,
    /// Whether the present manager has named the queue; else only we can see that its sink died.
    pub(super) named: bool,
}

impl Gc {
    pub(super) fn new(taker: Taker, classes: usize) -> Gc {
        Gc {
            roster: Roster::new(0),
            taker,
            trails: Vec::new(),
            held: VecDeque::new(),
            ready: (0..classes).map(|_| Vec::new()).collect(),
            candidates: Vec::with_capacity(LOOK),
            batch: Batch::default(),
            processes: HashMap::new(),
            refs_inodes: HashMap::new(),
            sinks: HashMap::new(),
            returning: HashSet::new(),
            standing: Standing::Managed,
        }
    }

    /// Dead buffers that nobody has asked for yet, by classes.
    pub(super) fn ready(&self) -> Vec<u64> {
        self.ready.iter().map(|ready| ready.len() as u64).collect()
    }

    /// Sent buffers that were alive when last looked at, oldest first.
    pub(super) fn oldest_alive(&self) -> impl Iterator<Item = u32> + '_ {
        self.held.iter().copied()
    }

    /// Nobody tells us of deaths: neither of readers nor of those who take from queues.
    pub(super) fn unname_all(&mut self) {
        self.returning = self.processes.keys().copied().collect();
        self.sinks.values_mut().for_each(|sink| sink.named = false);
    }

    /// Candidates off the senders' trails, as long as there is room. Trails that nobody will add to any more end here.
    pub(super) fn follow_trails(&mut self) {
        for trail in &self.trails {
            let room = LOOK - self.candidates.len();
            trail.take(&mut self.candidates, room);
        }
        self.trails.retain(|trail| !trail.is_over());
    }

    pub(super) fn advance(&mut self, epoch: u64) {
        if let Err(error) = self.roster.set_epoch(epoch) {
            tracing::warn!(%error, "roster");
        }
    }
}
