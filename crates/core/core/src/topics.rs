//! Channels and pools for the crate `topic`. This is no part of the surface: programs use `tranship-topic`.
//!
//! A subscriber's connection is a channel from the publisher to the subscriber. Both ends show more than their halves
//! (`link/beside.rs`): the publisher the lines of its ring and a bell, the subscriber its desk. The channel's own ring
//! carries a few words that both need, and the topic's pool is assigned to the channel as any pool is to any channel.
//!
//! No buffer of such a pool is ever `sent` by the ledger's counters. The publisher keeps a handle of each buffer that a
//! line or a reader may have, and drops it when the rounds say so. The buffer then is free as one that was never sent.
//! A publisher that goes hands what is left to the pool's own collector ([`leave_behind`]).

use crate::aggregate::{self, Aggregate, parse_list};
use crate::base::{checked_name, lock};
use crate::buffer::{Buffer, BufferMut, Home};
use crate::error::{Error, ErrorKind};
use crate::link::{
    Address, Beside, End, LinkShared, Opening, Payload, Receiver, Sender, Within, look_for_named,
};
use crate::membership::Domain;
use crate::options::{ChannelOptions, PoolOptions, TOPIC};
use crate::pool::{OwnPool, Pool};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tranship_ledger::generation;
use tranship_proto::{BufferId, DomainId, PoolId, Role};
use tranship_region::layout::{self, RefsRo};
use tranship_ring::{Behind, Ending, Point, Publish};
use tranship_sys::time::monotonic_ns;

pub use crate::buffer::Reference as Named;
pub use crate::domain::{Gone, Tended};
pub use crate::link::{Bell, Due, Polled, Taken};
pub use holds::Holds;
pub use readers::Readers;
pub use sleep::{AwaitedReaders, Sleep};
pub use writers::Writers;

mod holds;
mod readers;
mod sleep;
mod writers;

/// Kind of a name's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each message to every reader.
    Topic,
    /// Each message to one reader.
    Queue,
}

/// Lines of the two halves: a few words in each direction.
const LINES: u32 = 4;

/// The other end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The domain.
    pub domain: DomainId,
    /// The user of its process.
    pub uid: u32,
    /// The number of its process.
    pub pid: u32,
}

impl Peer {
    fn of(link: &LinkShared) -> Peer {
        Peer {
            domain: link.peer,
            uid: link.peer_uid,
            pid: link.peer_pid,
        }
    }
}

/// A subscriber's counters of references to the topic's pool, as the publisher maps them: the table behind its desk.
#[derive(Clone, Debug)]
pub struct Table(Option<Arc<RefsRo>>);

impl Table {
    /// Returns a counter a slot, or none for a reader of this process, whose handles the pool counts. They are mapped
    /// read-only: relaxed loads and fences only.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU32] {
        let Some(refs) = &self.0 else {
            return &[];
        };
        // SAFETY: `counts_ptr` points to `count` counters, which stay mapped as long as `self`; another process writes
        // them, which atomics allow.
        unsafe { std::slice::from_raw_parts(refs.counts_ptr(), refs.count() as usize) }
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

/// Takes the address of a topic or a queue apart: its name, and the domains of this process that find the name here.
fn address(text: &str) -> Result<(&str, Within), Error> {
    let (name, within) = match Address::parse(text) {
        Address::Named(name) => (name, Within::Domain),
        Address::Local(name) => (name, Within::Process),
        Address::Carried { scheme, .. } => {
            let text = format!(
                "no topic or queue travels by `{scheme}:`; known are `shm:` and `local:`, and a name alone is `shm:`"
            );
            return Err(Error::new(ErrorKind::InvalidEndpoint, text));
        }
    };
    checked_name(name)?;
    Ok((name, within))
}

fn options(beside: Beside, message_type: Option<&str>) -> ChannelOptions {
    let mut options = ChannelOptions::new().lines(LINES);
    options.beside = Some(beside);
    match message_type {
        Some(text) => options.message_type(text),
        None => options,
    }
}

/// Offers a name: a ring of `count` lines, and a bell for each user, or a queue's claims. With `shared`, other domains
/// may have the name too.
///
/// # Errors
/// As [`Domain::listen`]. `NameTaken` also if another domain has the name, and the two do not both share it.
pub fn publish(
    domain: &Domain,
    name: &str,
    (lines, count): (OwnedFd, u32),
    (kind, shared): (Kind, bool),
    bells: impl Fn(u32) -> Result<Arc<OwnedFd>, Error> + Send + Sync + 'static,
) -> Result<Readers, Error> {
    publish_typed(domain, name, (lines, count), (kind, shared), None, bells)
}

/// Offers a name as [`publish`] does, with the type of its messages as a text that its readers must have too.
///
/// # Errors
/// As [`publish`].
pub fn publish_typed(
    domain: &Domain,
    name: &str,
    (lines, count): (OwnedFd, u32),
    (kind, shared): (Kind, bool),
    message_type: Option<&str>,
    bells: impl Fn(u32) -> Result<Arc<OwnedFd>, Error> + Send + Sync + 'static,
) -> Result<Readers, Error> {
    let (name, within) = address(name)?;
    let beside = Beside::Ring {
        queue: kind == Kind::Queue,
        shared,
        lines: Arc::new(lines),
        count,
        bells: Arc::new(bells),
    };
    Readers::new(domain, (name, within), &options(beside, message_type))
}

/// Asks for a topic's messages. The desk is all zeros.
///
/// # Errors
/// `BadArgument` for a name that cannot be.
pub fn subscribe(domain: &Domain, name: &str, desk: OwnedFd) -> Result<Opening<Receiver>, Error> {
    checked_name(name)?;
    let options = reads(desk, Kind::Topic, Vec::new(), None);
    Ok(connect(domain, name, options))
}

/// Returns the options of a reader's connection to a domain that has the name and is none of `have`.
fn reads(
    desk: OwnedFd,
    kind: Kind,
    have: Vec<DomainId>,
    message_type: Option<&str>,
) -> ChannelOptions {
    let beside = Beside::Desk {
        desk: Arc::new(desk),
        queue: kind == Kind::Queue,
        have,
    };
    options(beside, message_type)
}

/// Asks the manager for a connection.
fn connect(domain: &Domain, name: &str, options: ChannelOptions) -> Opening<Receiver> {
    let look = look_for_named(domain.core(), name, Role::Sink, &options);
    Opening::new(domain.core(), look, End::into_receiver)
}

/// Has the domain's helper thread tend a publisher. The thread is started if there is none.
///
/// # Errors
/// `System` if the thread cannot be started.
pub fn tend(domain: &Domain, tended: Arc<dyn Tended>) -> Result<(), Error> {
    let core = domain.core();
    core.register.add_tended(tended);
    core.start_helper()
}

/// Says whether the manager has news for the domain: one load.
#[inline]
pub fn has_news(domain: &Domain) -> bool {
    domain.core().has_news()
}

/// Waits a short while for news of the manager, and takes them.
pub fn idle(domain: &Domain, until: Option<Instant>) {
    if until.is_none_or(|until| Instant::now() < until) {
        domain.core().idle();
    }
}

/// Returns the word that the manager raises when it has news for the domain, to sleep on. A reader looks for itself if
/// the word has changed since it looked last: another thread may have taken the news.
pub fn news(domain: &Domain) -> Point<'_> {
    let domain = domain.core();
    Point::seen(domain.wake_word(), domain.wake())
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

/// Returns a channel's own pool, out of which [`Sender::alloc`] allocates. A service's threads allocate beside each other.
///
/// # Errors
/// As [`Domain::create_pool`](crate::Domain::create_pool).
pub fn own_pool(sender: &mut Sender) -> Result<Pool, Error> {
    sender.pool().cloned()
}

/// Has the next send find that the receiver has ended in order, before the manager says so. It costs one load.
#[inline]
pub fn see_end(sender: &Sender) {
    let link = sender.link();
    if link.their_closed() && !link.domain.fork.is_child() {
        link.peer_gone(Gone::Closed);
    }
}

/// Sends at once, or gives the payload back as it was. The caller then sends in a way that waits, or that says why not.
#[inline(always)]
pub fn send_now<P: Payload>(sender: &mut Sender, payload: P, word: u64) -> Result<(), P> {
    let sent = sender.within(Duration::ZERO, |sender| {
        payload.go(sender, word, Publish::SeqCst)
    });
    match sent {
        Ok(_) => Ok(()),
        Err(failed) => Err(failed.unsent),
    }
}

/// Ends a sender as [`Sender::abandon`] does. What is sent from now on does not arrive.
pub fn give_up(sender: &Sender) {
    let link = sender.link();
    if !link.domain.fork.is_child() {
        link.ring.end(Ending::Abandoned);
    }
}

/// Waits a short time for a message, on its channel alone. That costs less than a wait that other news ends too. Returns
/// whether a message is there.
pub fn await_briefly(receiver: &Receiver, deadline: Option<Instant>) -> bool {
    receiver.wait_briefly(deadline)
}

/// Says whether the receiver sleeps until this sender acts, or is about to. It costs one load.
pub fn is_awaited(sender: &Sender) -> bool {
    sender.link().ring.is_awaited()
}

/// Allocates what can be had without asking the manager. It costs what [`Pool::alloc`] does.
#[inline(always)]
pub fn alloc_now(pool: &Pool, len: usize) -> Option<BufferMut> {
    BufferMut::alloc_now(pool.own_ref(), len)
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

/// Returns the length of the list of so many pieces, bytes.
pub fn list_len(pieces: usize) -> usize {
    layout::aggregate::len(pieces)
}

/// Writes the list of an aggregate's pieces, which an aggregate over a channel has too, into a buffer of
/// [`list_len`] bytes.
pub fn write_list(pieces: &[Named], list: &mut BufferMut) {
    aggregate::write_list(pieces.iter().copied(), list);
}

/// Takes a list of at most `most` pieces apart. It is copied once. None: it is none.
pub fn read_list(list: &Buffer, most: usize) -> Option<Vec<Named>> {
    // The length of the list bounds the bytes that are copied.
    if list.len() > list_len(most) {
        return None;
    }
    parse_list(list).ok()
}

/// Makes an aggregate of pieces that were received.
pub fn aggregate(pieces: Vec<Buffer>) -> Aggregate {
    Aggregate::from_pieces(pieces)
}

/// Returns how many buffers the pool may have.
pub fn slots(pool: &Pool) -> u32 {
    pool.own_ref().slot_count()
}

/// Says how many buffers of the pool this process keeps beside those that a writer has in its books: readers of this
/// process, whose handles show on no desk, and the program. Empty if there are none.
pub fn kept_here(pool: &Pool, booked: usize) -> String {
    match pool.in_use().saturating_sub(booked as u64) {
        0 => String::new(),
        kept => format!(", and this process keeps {kept} others"),
    }
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

/// Returns the counters of references of the domain that reads over this channel. None: the domain is not on the pool's
/// reader set.
pub fn table(pool: &Pool, reader: &Sender) -> Option<Table> {
    let link = reader.link();
    match link.inside {
        Some(_) => Some(Table(None)),
        None => {
            let refs = pool.own_ref().refs_of(link.peer);
            refs.map(|refs| Table(Some(refs)))
        }
    }
}

/// A publisher's operations on its end of a subscriber's channel.
impl Sender {
    /// Returns the other end.
    #[doc(hidden)]
    pub fn topic_peer(&self) -> Peer {
        Peer::of(self.link())
    }

    /// Wakes the reader, if it sleeps on its descriptor, and says whether it did. The caller has fenced after the publish.
    #[doc(hidden)]
    #[inline]
    pub fn topic_wake(&self) -> bool {
        self.link().notify()
    }

    /// Leaves buffers to a reader of this process, for a writer that goes. Such a reader is on no reader set: without
    /// them, lines that it has still to take would name memory of others.
    #[doc(hidden)]
    pub fn topic_leave_to(&self, buffers: impl IntoIterator<Item = Buffer>) {
        self.leave_inside(buffers);
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

    /// Says, for observers, what the subscriber has still to take.
    #[doc(hidden)]
    pub fn topic_says(&self, behind: Behind) {
        self.link().ring.say_behind(behind);
    }

    /// Says, for observers, that the publisher waits for the subscriber, or no longer does.
    #[doc(hidden)]
    #[cold]
    pub fn topic_waits(&self, waits: bool) {
        let (ring, now) = (&self.link().ring, monotonic_ns());
        match waits {
            true => {
                ring.stall();
                ring.wait(now);
            }
            false => ring.wait_no_more(now),
        }
    }

    /// Says whether the subscriber's process has ended.
    #[doc(hidden)]
    pub fn topic_is_dead(&self) -> bool {
        self.link().look_for_death();
        self.link().gone() == Gone::Died || self.link().peer_is_dead()
    }
}

/// A subscriber's operations on its end of the channel.
impl Receiver {
    /// Returns the other end.
    #[doc(hidden)]
    pub fn topic_peer(&self) -> Peer {
        Peer::of(self.link())
    }

    /// Takes the lines of the ring, how many there are, and the bell.
    #[doc(hidden)]
    pub fn topic_ring(&self) -> Option<(OwnedFd, u32, OwnedFd)> {
        let shown = std::mem::take(&mut *lock(&self.link().beside));
        let [lines, bell] = shown.try_into().ok()?;
        Some((lines, self.link().ring_lines, bell))
    }

    /// Says whether there is a reason to ask again for what was not here.
    #[doc(hidden)]
    pub fn topic_is_due(&self, due: &Due) -> bool {
        self.is_due(due)
    }

    /// Asks the manager no more for what was not here.
    #[doc(hidden)]
    pub fn topic_has_done(&mut self) {
        self.forget_resync();
    }

    /// Says whether this domain has a handle of the slot's buffer.
    #[doc(hidden)]
    pub fn topic_holds(&mut self, pool: PoolId, slot: u32) -> bool {
        // Ordering: Acquire pairs with the Release with which a handle went: what was read under it comes before.
        let refs = self.refs(pool).and_then(|refs| refs.get(slot as usize));
        refs.is_some_and(|refs| refs.load(Ordering::Acquire) != 0)
    }

    /// Tells a writer that sleeps ([`AwaitedReaders`]) that this reader has let go of something.
    #[doc(hidden)]
    #[inline(always)]
    pub fn topic_tells(&self) {
        self.link().notify();
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
