//! A domain's objects, as the manager's events see them. The layer above (`core`) implements these operations for its
//! own kinds; the domain knows nothing else of them. Only the manager's news and claims go this way, no message and no
//! allocation.

use crate::base::retired::Retired;
use crate::error::Error;
use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_proto::{
    BufferId, ChannelClaim, ChannelId, DomainId, Levels, PoolId, PoolShape, Request, Trust,
};
use tranship_region::layout::CountsRw;

/// A pool that a sender wants to send from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The pool.
    pub pool: PoolId,
    /// The domain that writes the pool: the sender, or one whose buffers it forwards.
    pub writer: DomainId,
    /// The pool's largest size: address space that a receiver reserves, bytes.
    pub max_bytes: u64,
    /// The pool's number of buffers: four bytes of counters for each are charged to a receiver, and four more for each
    /// link.
    pub slots: u32,
    /// The pool's chunk size, bytes.
    pub chunk_bytes: u64,
    /// The processes that can write the pool.
    pub trust: Trust,
}

impl Offer {
    /// Offers a pool of this shape.
    #[must_use]
    pub fn new(pool: PoolId, writer: DomainId, shape: PoolShape) -> Offer {
        let PoolShape {
            max_bytes,
            slots,
            chunk_bytes,
            trust,
        } = shape;
        Offer {
            pool,
            writer,
            max_bytes,
            slots,
            chunk_bytes,
            trust,
        }
    }
}

/// A queue that joins a pool's reader set.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    pub channel: ChannelId,
    pub sink: DomainId,
    /// The manager's number of the sink's process.
    pub process: u64,
    pub epoch: u64,
    pub with_sent: bool,
    pub new_reader: bool,
}

/// A slot's buffer, as a report of leaks names it.
#[derive(Clone, Copy, Debug)]
pub struct Had {
    pub id: BufferId,
    pub bytes: u64,
    /// Handles in this domain.
    pub handles: u32,
}

/// A pool that this domain writes.
pub trait OwnMember: Any + Retired {
    fn id(&self) -> PoolId;
    fn shape(&self) -> PoolShape;
    fn name(&self) -> &str;
    fn table_fd(&self) -> &OwnedFd;
    /// Returns the chunks present: index, serial, descriptor.
    fn chunks(&self) -> Vec<(u32, u32, Arc<OwnedFd>)>;
    /// Returns the readers on the reader set, with the inodes of their counters.
    fn readers(&self) -> Vec<(DomainId, u64)>;
    /// Returns the queues on the reader set: channel, sink, number of the sink's process.
    fn queues(&self) -> Vec<(ChannelId, DomainId, u64)>;

    /// Prepares for another control page.
    fn suspend(&self);
    /// Records that no manager can add a reader to the reader set until the next [`suspend`](OwnMember::suspend).
    fn stand_alone(&self);
    /// Sets the pool's place in the new control page.
    fn resume(&self, entry: u32);

    /// Adds a queue. Descriptors: `rcvd`, then `sent`, then `ref` and the reader's pidfd.
    fn queue_joined(&self, queue: Joined, fds: Vec<OwnedFd>);
    fn queue_left(&self, channel: ChannelId, epoch: u64);
    fn reader_left(&self, domain: DomainId, epoch: u64);
    /// Removes readers from the reader set that died before a new manager was told of them. Returns true if there may
    /// be more.
    fn reap_dead_readers(&self) -> bool;

    /// Sets the manager's wish for the pool: at most this many bytes of chunks.
    fn set_shrink_target(&self, bytes: u64);
    /// Ends a wish to shrink, because the quota is now this.
    fn lift_shrink_target(&self, quota_bytes: u64);
    fn set_traced(&self, on: bool);
    /// Does due work. Never under the socket's lock.
    fn tend(&self);

    /// Returns the buffer of a slot.
    fn had(&self, slot: u32) -> Had;
}

/// A pool that another domain writes and this one reads.
pub trait ForeignMember: Any + Retired {
    /// Returns the pool's shape as its writer offers it.
    fn shape(&self) -> Offer;
    /// Returns a number that distinguishes the writer's table from others.
    fn table_inode(&self) -> u64;
    /// Returns this domain's counters.
    fn refs_fd(&self) -> &OwnedFd;
    /// Returns the chunks that are mapped, as (index, serial).
    fn mapped(&self) -> Vec<(u32, u32)>;

    fn attach(&self, index: u32, serial: u32, fd: OwnedFd) -> Result<(), Error>;
    /// Unmaps a chunk. Returns whether it is done; otherwise it is done later, and the manager is told then.
    fn detach(&self, index: u32, serial: u32) -> bool;
    fn detach_all(&self);

    /// Records whether the new manager has mentioned the pool.
    fn set_spoken_of(&self, yes: bool);
    fn is_spoken_of(&self) -> bool;
    /// Gives the pool up; returns true the first time.
    fn give_up(&self) -> bool;
    fn set_traced(&self, on: bool);

    /// Returns the buffers that are held here.
    fn held(&self) -> Vec<Had>;
}

/// Work of a part above `core` that the domain's helper thread does now and then.
pub trait Tended: Send + Sync {
    /// Does what is due. Returns true if more is due within a millisecond.
    fn tend(&self) -> bool;
    /// Says whether there is nothing to do any more.
    fn is_over(&self) -> bool;
}

/// The state of a link's other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Gone {
    /// The other end is there.
    No = 0,
    /// The other end closed in order.
    Closed = 1,
    /// The other end's process ended.
    Died = 2,
    /// This end closed: the other one broke a rule, or sent a buffer that no longer exists.
    Violated = 3,
}

/// The domain's own notes about a link.
#[derive(Debug)]
pub struct Watch {
    /// This end's cursors are gone, but no manager could be told: the next one is.
    leaving: AtomicBool,
    /// Whether the manager watches the peer. A manager that came back does so when both ends are back; until then, only
    /// this domain's own descriptor of the peer's process shows a death.
    watched: AtomicBool,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            leaving: AtomicBool::new(false),
            watched: AtomicBool::new(true),
        }
    }
}

// Relaxed: hints where to look, except `leaving`, which changes under the socket's lock.
impl Watch {
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub(super) fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Relaxed);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    pub(super) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }
}

/// The descriptors that accept an offered pool: this domain's counters of the queue, and those of references if the
/// manager has none.
pub type Taken = (OwnedFd, Option<OwnedFd>);

/// One end of a link.
pub trait LinkMember: Any + Send + Sync {
    fn channel(&self) -> ChannelId;
    fn watch(&self) -> &Watch;
    /// Says whether both ends are in this process, so that no manager made the channel.
    fn is_inside(&self) -> bool;
    /// Returns the claim for a new manager, and this end's half.
    fn claim(&self) -> (ChannelClaim, BorrowedFd<'_>);
    /// Calls `each` for each pool that is to be claimed with the link, with this domain's counters.
    fn claim_pools(
        &self,
        claim: &mut dyn FnMut(PoolId, BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<(), Error>;
    /// Calls `say` with the registration of a channel that no manager made, and both halves, if there is one.
    fn with_registration(&self, say: &mut dyn FnMut(&Request, &[BorrowedFd<'_>]));

    fn gone(&self) -> Gone;
    /// Records that the peer is gone. The first reason stays.
    fn peer_gone(&self, why: Gone);
    /// Looks for the peer's death by this domain's own descriptor of the peer's process, while the manager is away.
    fn look_for_death(&self);
    /// Bounds the sleep of a thread without a timer.
    fn nudge(&self);
    /// Sets the peer's descriptor, by which it is woken.
    fn set_peer_fd(&self, fd: OwnedFd);

    /// Returns the levels whose pools are accepted.
    fn levels(&self) -> Levels;
    /// Takes an offer: the source wants to send from a pool. `known`: the manager has this domain's counters of
    /// references to it.
    fn offered(&self, offer: Offer, known: bool, fds: Vec<OwnedFd>) -> Result<Taken, Error>;
    /// Opens a pool: the manager has raised the writer's epoch for this domain's counters.
    fn open_pool(&self, pool: PoolId);
    /// Ends the assignment of a pool of which nothing is alive any more.
    fn end_pool(&self, pool: PoolId);
    /// Returns this domain's counters of an assigned pool.
    fn counts_of(&self, pool: PoolId) -> Option<Arc<CountsRw>>;
    /// Prepares for a queue's departure from a reader set: takes the buffers that only this queue keeps.
    fn queue_leaves(&self);
    /// Gives back buffers that a carrier has returned, because memory is short.
    fn reclaim(&self);
}
