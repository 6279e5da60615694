//! The collector's state: the counting domains, the buffers that were sent and are alive, and the dead ones that are
//! not used again yet.

use super::counts::{Counts, Refs};
use super::order;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tranship_ledger::{Batch, ReaderSet};
use tranship_proto::{ChannelId, DomainId};
use tranship_sync::{DeferQueue, SlotQueue, Taker};

/// Candidates looked at together: four cache lines of each counter.
pub(super) const LOOK: usize = 64;
/// Slots whose counters are prefetched before they are looked at.
pub(super) const AHEAD: usize = 32;

/// Finds which of the pool's sent buffers are dead.
pub(super) struct Collector {
    /// Sent buffers without a handle in this process.
    pub(super) sent: SlotQueue,
    pub(super) gc: Mutex<Gc>,
    pub(super) counters: Counters,
}

/// Counts of its work.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) collect_ns: AtomicU64,
    pub(super) collections: AtomicU64,
    pub(super) collected: AtomicU64,
    pub(super) collected_bytes: AtomicU64,
    /// Bytes that were dead at the last look.
    pub(super) garbage_bytes: AtomicU64,
}

impl Collector {
    /// Makes the collector of a pool that is new in a control page.
    pub(super) fn new(slots: u32, classes: usize) -> Collector {
        let (sent, taker) = SlotQueue::new(slots);
        let mut gc = Gc::new(taker, classes);
        gc.resume();
        Collector {
            sent,
            gc: Mutex::new(gc),
            counters: Counters::default(),
        }
    }
}

/// The collector's state: one thread at a time.
pub(super) struct Gc {
    pub(super) reader_set: ReaderSet<Refs, Counts>,
    pub(super) taker: Taker,
    /// The senders' defer queues.
    pub(super) deferred: Vec<Arc<DeferQueue>>,
    /// Buffers out of the queue and the defer queues that are looked at next, oldest first: their counters were
    /// prefetched.
    pub(super) ahead: Vec<u32>,
    /// Sent buffers that were alive when last looked at, oldest first.
    pub(super) held: VecDeque<u32>,
    /// Dead buffers by class, for the zones to import.
    pub(super) ready: Box<[Vec<u32>]>,
    pub(super) candidates: Vec<u32>,
    pub(super) batch: Batch,
    /// Readers' processes, to see deaths while the manager is away.
    pub(super) processes: HashMap<DomainId, OwnedFd>,
    /// Inodes of the readers' counters. A new manager is told them, so that it believes no other domain.
    pub(super) refs_inodes: HashMap<DomainId, u64>,
    /// The reader of each queue.
    pub(super) sinks: HashMap<ChannelId, Sink>,
    /// Readers that the present manager has not named yet: only this domain can see that they died.
    pub(super) returning: HashSet<DomainId>,
    pub(super) standing: Standing,
    /// Number of times more that buffers are put in order before they are handed out again.
    pub(super) unordered: u32,
}

/// A pool's epoch in a control page that it is new in.
pub(super) const FIRST_EPOCH: u64 = 1;

/// The proof that the reader set is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// The reader set's epoch is the one that the control page shows.
    Managed,
    /// The reader set is whole whatever the control page says (`OwnMember::stand_alone`).
    Alone,
    /// The reader set is whole as long as the next manager's control page does not have the pool
    /// (`OwnMember::suspend`).
    Unlisted,
}

/// The reading end of a queue on the reader set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sink {
    pub(super) domain: DomainId,
    /// The manager's number of the sink's process, for the next manager.
    pub(super) process: u64,
    /// Whether the present manager has named the queue; else only this domain can see that its sink died.
    pub(super) named: bool,
}

impl Gc {
    fn new(taker: Taker, classes: usize) -> Gc {
        Gc {
            reader_set: ReaderSet::new(0),
            taker,
            deferred: Vec::new(),
            ahead: Vec::with_capacity(AHEAD),
            held: VecDeque::new(),
            ready: (0..classes).map(|_| Vec::new()).collect(),
            candidates: Vec::with_capacity(LOOK),
            batch: Batch::default(),
            processes: HashMap::new(),
            refs_inodes: HashMap::new(),
            sinks: HashMap::new(),
            returning: HashSet::new(),
            standing: Standing::Managed,
            unordered: order::UNORDERED,
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

    /// The readers, with the inodes of their counters.
    pub(super) fn readers(&self) -> Vec<(DomainId, u64)> {
        self.refs_inodes.iter().map(|(d, i)| (*d, *i)).collect()
    }

    /// The queues: channel, sink, number of the sink's process.
    pub(super) fn queues(&self) -> Vec<(ChannelId, DomainId, u64)> {
        let all = self.sinks.iter();
        all.map(|(c, sink)| (*c, sink.domain, sink.process))
            .collect()
    }

    /// Prepares for another control page.
    pub(super) fn suspend(&mut self) {
        self.unname_all();
        self.standing = match self.standing {
            Standing::Alone => Standing::Unlisted,
            Standing::Managed | Standing::Unlisted => Standing::Managed,
        };
    }

    /// Takes the reader set for whole, without regard to a control page.
    pub(super) fn stand_alone(&mut self) {
        self.unname_all();
        self.standing = Standing::Alone;
    }

    /// The pool is new in a control page.
    pub(super) fn resume(&mut self) {
        self.reader_set.reset_epoch(FIRST_EPOCH);
        self.standing = Standing::Managed;
    }

    /// Takes both counters of a queue off the reader set.
    pub(super) fn remove_queue(&mut self, channel: ChannelId) {
        let _ = self.reader_set.remove_queue(channel.0.into());
        self.sinks.remove(&channel);
    }

    /// Takes a reader's references off the reader set.
    pub(super) fn remove_reader(&mut self, domain: DomainId) {
        let _ = self.reader_set.remove_reader(domain.0.into());
        self.processes.remove(&domain);
        self.refs_inodes.remove(&domain);
        self.returning.remove(&domain);
    }

    /// Readers, and sinks of queues, that the present manager has not named: only we can see that they died.
    pub(super) fn unnamed(&self) -> HashSet<DomainId> {
        let sinks = self.sinks.values().filter(|s| !s.named).map(|s| s.domain);
        let others = sinks.filter(|d| self.processes.contains_key(d));
        others.chain(self.returning.iter().copied()).collect()
    }

    /// Returns the readers and sinks of [`unnamed`](Self::unnamed) whose processes have ended.
    pub(super) fn dead(&self) -> Vec<DomainId> {
        let is_dead = |of: &DomainId| {
            let process = self.processes.get(of);
            process.is_some_and(|p| tranship_sys::pidfd::is_dead(p).unwrap_or(false))
        };
        self.unnamed().into_iter().filter(is_dead).collect()
    }

    /// Returns the queues to these sinks.
    pub(super) fn queues_to(&self, sinks: &[DomainId]) -> Vec<ChannelId> {
        let to = self.sinks.iter().filter(|(_, s)| sinks.contains(&s.domain));
        to.map(|(channel, _)| *channel).collect()
    }

    /// Notes that no news of deaths comes, neither of readers nor of the sinks of queues.
    fn unname_all(&mut self) {
        self.returning = self.processes.keys().copied().collect();
        self.sinks.values_mut().for_each(|sink| sink.named = false);
    }

    /// Takes candidates out of the senders' defer queues, as long as there is room. Queues whose sender has ended are
    /// removed.
    pub(super) fn take_deferred(&mut self) {
        for queue in &self.deferred {
            let room = LOOK - self.candidates.len();
            queue.take(&mut self.candidates, room);
        }
        self.deferred.retain(|queue| !queue.is_over());
    }

    /// Takes the oldest `N` buffers that are ahead, or none if there are fewer.
    #[inline(always)]
    pub(super) fn take_ahead<const N: usize>(&mut self) -> Option<[u32; N]> {
        let oldest = *self.ahead.first_chunk()?;
        self.ahead.drain(..N);
        Some(oldest)
    }

    pub(super) fn advance(&mut self, epoch: u64) {
        if let Err(error) = self.reader_set.set_epoch(epoch) {
            tracing::warn!(%error, "reader_set");
        }
    }
}
