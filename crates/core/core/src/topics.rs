//! What the crate `topic` needs of channels and pools. It is no part of the surface: programs use `tranship-topic`.
//!
//! A subscriber's connection is a channel from the publisher to the subscriber. Both ends show more than their halves
//! (`link/beside.rs`): the publisher the lines of its ring and a bell, the subscriber its desk. The channel's own ring
//! carries a few words that both need, and the topic's pool is assigned to the channel as any pool is to any channel.
//!
//! No buffer of such a pool is ever `sent` by the ledger's counters. The publisher keeps a handle of each buffer that a
//! line or a reader may have, and drops it when the rounds say so. The buffer then is free as one that was never sent.
//! A publisher that goes hands what is left to the pool's own collector ([`leave_behind`]).

use crate::base::{checked_name, lock};
use crate::buffer::{Buffer, Home, Reference};
use crate::error::Error;
use crate::link::{Accepts, Beside, End, Listener, Opening, Receiver, Sender, look_for_named};
use crate::membership::Domain;
use crate::options::{ChannelOptions, PoolOptions, TOPIC};
use crate::pool::{OwnPool, Pool};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tranship_ledger::generation;
use tranship_proto::{BufferId, DomainId, PoolId, Role};
use tranship_region::layout::RefsRo;

pub use crate::domain::Gone;

/// Lines of the two halves: a few words in each direction.
const LINES: u32 = 4;

/// What a line of a topic's ring says of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The buffer's name.
    pub id: BufferId,
    /// Where its bytes begin in the pool's window.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The sum of the serials of the chunks that they lie in.
    pub serial: u32,
}

/// The other end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The domain.
    pub domain: DomainId,
    /// The user as whom its process runs.
    pub uid: u32,
    /// The number of its process.
    pub pid: u32,
}

/// A subscriber's counters of references to the topic's pool, as the publisher maps them: the table behind its desk.
#[derive(Clone, Debug)]
pub struct Table(Arc<RefsRo>);

impl Table {
    /// Returns a counter a slot. They are mapped read-only: relaxed loads and fences only.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: `counts_ptr` points to `count` counters, which stay mapped as long as `self`; another process writes
        // them, which atomics allow.
        unsafe { std::slice::from_raw_parts(self.0.counts_ptr(), self.0.count() as usize) }
    }
}

/// Makes a topic's own pool.
///
/// # Errors
/// As [`Domain::create_pool`].
pub fn pool(domain: &Domain, mut options: PoolOptions) -> Result<Pool, Error> {
    options.only_over = Some(TOPIC);
    domain.create_pool(options)
}

fn options(beside: Beside) -> ChannelOptions {
    let mut options = ChannelOptions::new().lines(LINES);
    options.beside = Some(beside);
    options
}

/// Offers a topic's name: a ring of `count` lines, and a bell for each user.
///
/// # Errors
/// As [`Domain::listen`].
pub fn publish(
    domain: &Domain,
    name: &str,
    (lines, count): (OwnedFd, u32),
    bells: impl Fn(u32) -> Result<Arc<OwnedFd>, Error> + Send + Sync + 'static,
) -> Result<Listener<Sender>, Error> {
    let beside = Beside::Ring {
        lines: Arc::new(lines),
        count,
        bells: Arc::new(bells),
    };
    let accepts = Accepts::new(domain.core(), name, Role::Source, options(beside))?;
    Ok(Listener::new(accepts))
}

/// Asks for a topic's messages. The desk is all zeros.
///
/// # Errors
/// `BadArgument` for a name that cannot be.
pub fn subscribe(domain: &Domain, name: &str, desk: OwnedFd) -> Result<Opening<Receiver>, Error> {
    checked_name(name)?;
    let beside = options(Beside::Desk(Arc::new(desk)));
    let look = look_for_named(domain.core(), name, Role::Sink, &beside);
    Ok(Opening::new(domain.core(), look, End::into_receiver))
}

/// Waits a short while for news of the manager, and takes them.
pub fn idle(domain: &Domain, until: Option<Instant>) {
    if until.is_none_or(|until| Instant::now() < until) {
        domain.core().idle();
    }
}

/// Takes the manager's news, if there are any.
pub fn catch_up(domain: &Domain) {
    domain.core().catch_up();
}

/// Says whether this process is a forked child, which inherited the domain.
///
/// # Errors
/// `Forked` if it is.
#[inline]
pub fn check_fork(domain: &Domain) -> Result<(), Error> {
    domain.core().check_fork()
}

/// Returns what a buffer of the pool is named in a line. None: it is of another pool.
#[inline]
pub fn named(pool: &Pool, buffer: &Buffer) -> Option<Named> {
    let handle = buffer.handle();
    let own: *const OwnPool = pool.own_ref();
    match handle.home() {
        Home::Own(home) if std::ptr::eq(home.as_ptr(), own) => {}
        _ => return None,
    }
    let (offset, serial) = handle.place();
    let slot = handle.slot();
    // Relaxed: a word of our own.
    let now = pool.own_ref().generation_word(slot).load(Ordering::Relaxed);
    Some(Named {
        id: BufferId::new(pool.id(), slot, generation::published(now)),
        offset,
        length: buffer.len() as u64,
        serial,
    })
}

/// Returns how many buffers the pool may have.
pub fn slots(pool: &Pool) -> u32 {
    pool.own_ref().slot_count()
}

/// Drops the handle of a buffer that no line names and no reader holds. The slot's next buffer has another name.
#[inline]
pub fn let_go(pool: &Pool, buffer: Buffer) {
    let (own, slot) = (pool.own_ref(), buffer.handle().slot());
    if own.is_private(slot) {
        let word = own.generation_word(slot);
        // Relaxed: nobody else has the buffer, and the word is written here alone.
        let now = generation::published(word.load(Ordering::Relaxed));
        word.store(generation::next_free(now), Ordering::Relaxed);
    }
    drop(buffer);
}

/// Drops the handle of a buffer that readers may still hold, for a publisher that goes. The pool's collector has it from here on: it is free when no
/// subscriber that has still to leave, and no reference, can have it.
pub fn leave_behind(pool: &Pool, buffer: Buffer) {
    let word = pool.own_ref().generation_word(buffer.handle().slot());
    // Relaxed: the word is written here alone; the drop puts the slot into the collector's queue, which orders both.
    let now = word.load(Ordering::Relaxed);
    word.store(generation::published(now), Ordering::Relaxed);
    drop(buffer);
}

/// Returns a reading domain's counters of references. None: the domain is not on the pool's reader set.
pub fn table(pool: &Pool, domain: DomainId) -> Option<Table> {
    pool.own_ref().refs_of(domain).map(Table)
}

/// What a publisher asks of its end of a subscriber's channel.
impl Sender {
    /// Returns the other end.
    #[doc(hidden)]
    pub fn topic_peer(&self) -> Peer {
        let link = self.link();
        Peer {
            domain: link.peer,
            uid: link.peer_uid,
            pid: link.peer_pid,
        }
    }

    /// Takes the desk that the subscriber has shown.
    #[doc(hidden)]
    pub fn topic_desk(&self) -> Option<OwnedFd> {
        lock(&self.link().beside).pop()
    }

    /// Returns what has become of the subscriber.
    #[doc(hidden)]
    #[inline]
    pub fn topic_gone(&self) -> Gone {
        self.link().gone()
    }

    /// Says whether the subscriber's process has ended.
    #[doc(hidden)]
    pub fn topic_is_dead(&self) -> bool {
        self.link().look_for_death();
        self.link().gone() == Gone::Died || self.link().peer_is_dead()
    }
}

/// What a subscriber asks of its end of the channel.
impl Receiver {
    /// Returns the other end.
    #[doc(hidden)]
    pub fn topic_peer(&self) -> Peer {
        let link = self.link();
        Peer {
            domain: link.peer,
            uid: link.peer_uid,
            pid: link.peer_pid,
        }
    }

    /// Takes the lines of the ring, how many there are, and the bell.
    #[doc(hidden)]
    pub fn topic_ring(&self) -> Option<(OwnedFd, u32, OwnedFd)> {
        let shown = std::mem::take(&mut *lock(&self.link().beside));
        let [lines, bell] = shown.try_into().ok()?;
        Some((lines, self.link().ring_lines, bell))
    }

    /// Says whether buffers of the pool can be received. Until the manager has put this domain's counters on the
    /// writer's reader set they cannot.
    #[doc(hidden)]
    pub fn topic_has(&mut self, pool: PoolId) -> bool {
        self.has_pool(pool)
    }

    /// Has nothing that is on its way be taken for dead before this end leaves, if the publisher dies.
    #[doc(hidden)]
    pub fn topic_await_all(&mut self, pool: PoolId) {
        self.await_all(pool);
    }

    /// Takes the buffer that a line names, and counts it in this domain's references. None: its memory is not here.
    ///
    /// # Errors
    /// `PeerViolation` for a line that names what the pool cannot have; it ends the channel.
    #[doc(hidden)]
    #[inline]
    pub fn topic_take(&mut self, named: Named) -> Result<Option<Buffer>, Error> {
        let Named {
            id,
            offset,
            length,
            serial,
        } = named;
        self.take_line(Reference {
            id,
            offset,
            length,
            serial,
        })
    }

    /// Says whether this domain has a handle of the slot's buffer.
    #[doc(hidden)]
    pub fn topic_holds(&mut self, pool: PoolId, slot: u32) -> bool {
        // Ordering: Acquire pairs with the Release with which a handle went: what was read under it comes before.
        let refs = self.refs(pool).and_then(|refs| refs.get(slot as usize));
        refs.is_some_and(|refs| refs.load(Ordering::Acquire) != 0)
    }

    /// Looks whether the publisher's process has ended, for the manager may be away.
    #[doc(hidden)]
    pub fn topic_look(&self) {
        self.link().look_for_death();
    }

    /// Returns what has become of the publisher, after the manager's news.
    #[doc(hidden)]
    pub fn topic_gone(&self) -> Gone {
        self.peer_gone()
    }
}
