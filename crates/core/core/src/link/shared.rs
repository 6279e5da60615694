//! One end of a link: both halves, the peer's fate, the pools assigned.

use crate::base::lock;
use crate::buffer::Buffer;
pub(crate) use crate::domain::Gone;
use crate::domain::{Asked, DomainCore, Offer, Watch};
use crate::error::{self, Error};
use crate::link::beside::Beside;
use crate::link::driver::Driver;
use crate::link::inline::Inline;
use crate::options::{ChannelOptions, Consent};
use crate::pool::{ForeignPool, OwnPool};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;
use tranship_proto::{BufferId, ChannelId, DomainId, Levels, PoolId, Request, Role};
use tranship_region::layout::{CountsRw, Way};
use tranship_ring::{Consumer, Ending, HalfRo, HalfRw, Lines, Publish, Ring, Turns, doorbell};
use tranship_sys::{process, socket};

/// The pool side of an assignment.
#[derive(Clone)]
pub(crate) enum Assigned {
    /// A pool of this domain.
    Own(Arc<OwnPool>),
    /// A pool of another domain that this domain reads.
    Foreign(Arc<ForeignPool>),
}

/// A pool assigned to the channel, with this end's counters of it: `sent` at a source, `rcvd` at a sink.
pub(crate) struct Assignment {
    pub(crate) pool: PoolId,
    pub(crate) side: Assigned,
    pub(crate) counts: Arc<CountsRw>,
    pub(crate) counts_fd: OwnedFd,
    /// At a sink: the manager has put this end's counters on the writer's reader set, so references may be taken. At a
    /// source: the manager has said that the source may send.
    pub(crate) open: AtomicBool,
    /// Nothing of the pool is alive in any domain: the Sender or Receiver gives the assignment back.
    over: AtomicBool,
    /// The sink has removed the pool, as far as this end knows.
    removed: AtomicBool,
}

impl Assignment {
    pub(crate) fn new(
        pool: PoolId,
        side: Assigned,
        (counts_fd, counts): (OwnedFd, CountsRw),
    ) -> Assignment {
        Assignment {
            pool,
            side,
            counts: Arc::new(counts),
            counts_fd,
            open: AtomicBool::new(false),
            over: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed) // only the Sender, or the Receiver, uses it
    }

    pub(super) fn remove(&self) {
        self.removed.store(true, Ordering::Relaxed); // as above
    }

    /// Whether the pool is gone, so that no message names it any more.
    pub(crate) fn is_over(&self) -> bool {
        // Ordering: acquire; partner: the release of `end_pool`.
        self.over.load(Ordering::Acquire)
    }

    /// Whether the assignment is shown to a new manager. A source makes an unconfirmed assignment anew: nothing was
    /// sent by it.
    pub(crate) fn is_claimed(&self, role: Role) -> bool {
        !self.is_over() && (role == Role::Sink || self.open.load(Ordering::Acquire))
    }
}

/// A message to a source over the control ring.
pub(crate) enum Reply {
    Inline(Inline),
    /// A buffer of the source's.
    Returned(Buffer),
    Released(Option<BufferId>),
    Removed(PoolId),
}

/// A source's end of the control ring.
#[derive(Default)]
pub(crate) struct Replies {
    pub(crate) consumer: Consumer,
    /// Replies that were taken as the queue left, before a caller asked, each with its word.
    pub(crate) early: VecDeque<Result<(u64, Reply), Error>>,
    /// Whether no caller will ask any more.
    pub(crate) over: bool,
}

/// The descriptor on which this end may sleep instead of on the futex word, if it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    /// Readable when the peer has rung.
    pub(crate) near: Option<Arc<OwnedFd>>,
    /// The request to the manager, which has still to answer.
    pub(crate) asked: Option<Asked>,
    /// The manager is not asked again before that time.
    pub(crate) again: Option<Instant>,
    /// Whether it shows up on the domain's own descriptor.
    pub(crate) polled: bool,
    /// Whether the reactor watches it, and takes its bytes.
    pub(crate) watched: bool,
}

/// Registration of a channel that no manager has brought about.
#[derive(Debug)]
pub(crate) struct Registered {
    /// Place of its other end, if that is not in this process.
    pub(super) place: Option<String>,
}

/// Data of an end whose other end is in this process.
#[derive(Default)]
pub(crate) struct Inside {
    other: OnceLock<Weak<LinkShared>>,
    /// The carrier to call, if it has the other end.
    pub(super) driver: OnceLock<Arc<dyn Driver>>,
    /// Reason of the other end's end, if it gave one.
    why: OnceLock<Error>,
    /// Pool for carried bytes, if the program names one.
    pub(super) pool: Option<PoolId>,
    /// The channel's registration, at the end by which the manager is shown it.
    pub(super) registered: OnceLock<Registered>,
}

impl Inside {
    pub(crate) fn of(pool: Option<PoolId>) -> Inside {
        Inside {
            pool,
            ..Inside::default()
        }
    }
}

/// One end of a link without its cursors, which belong to `Sender` or `Receiver`.
pub(crate) struct LinkShared {
    pub(crate) domain: DomainCore,
    pub(crate) channel: ChannelId,
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) peer: DomainId,
    pub(crate) peer_pid: u32,
    pub(crate) peer_uid: u32,
    /// Whether the peer may send us signals, as a process of the same user may.
    pub(crate) of_our_user: bool,
    peer_process: Mutex<OwnedFd>,
    pub(crate) ring: Ring,
    /// Turns that a thread that waits here gives to others.
    pub(super) turns: Turns,
    pub(crate) own_fd: OwnedFd,
    /// Inode of the peer's half.
    pub(crate) their_inode: u64,
    gone: AtomicU32,
    /// The manager has said so.
    reported_gone: AtomicBool,
    pub(crate) assigned: Mutex<Vec<Arc<Assignment>>>,
    /// Rises with `assigned`, so that cursors know when to look again.
    pub(crate) assigned_version: AtomicU32,
    /// Whether some assignments are over and not given back yet.
    has_over: AtomicBool,
    /// The newest pool whose assignment is over, as a number: the receiver may still say that it has released its buffers.
    newest_over: AtomicU32,
    /// Descriptor to which this end writes a byte when the peer sleeps on its own.
    peer_fd: Mutex<Option<OwnedFd>>,
    fd_awaited: AtomicBool,
    pub(crate) doorbell: Mutex<Doorbell>,
    pub(super) watch: Watch,
    /// At a source: its end of the control ring. The Sender has it until the queue leaves.
    pub(crate) replies: Mutex<Replies>,
    /// Whether some replies may be early ones.
    pub(crate) early_replies: AtomicBool,
    consent: Option<Consent>,
    pub(crate) inside: Option<Inside>,
    /// Objects that a topic's other end has shown beside its half, until they are taken.
    pub(crate) beside: Mutex<Vec<OwnedFd>>,
    /// At a subscriber: lines of the topic's ring.
    pub(crate) ring_lines: u32,
    /// Whether the channel is a topic's: its publisher serves many readers, and waits for the descriptor of none.
    is_topic: bool,
    /// At a subscriber: whether other domains may have the name too.
    pub(crate) shared: bool,
    /// Levels of the pools that are accepted.
    pub(crate) levels: Levels,
}

impl Assigned {
    pub(crate) fn shape(&self) -> (PoolId, u32) {
        match self {
            Assigned::Own(pool) => (pool.id(), pool.slot_count()),
            Assigned::Foreign(pool) => (pool.shape.pool, pool.shape.slots),
        }
    }
    /// Whether the process that writes the pool has ended.
    pub(crate) fn writer_is_dead(&self) -> bool {
        match self {
            Assigned::Own(_) => false,
            Assigned::Foreign(pool) => pool.writer_is_dead(),
        }
    }
    pub(crate) fn domain_is(&self, domain: &DomainCore) -> bool {
        match self {
            Assigned::Own(pool) => pool.domain().is(domain),
            Assigned::Foreign(pool) => pool.domain.is(domain),
        }
    }
}

impl LinkShared {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        domain: &DomainCore,
        channel: ChannelId,
        role: Role,
        name: &str,
        peer: (DomainId, u32, u32),
        peer_process: OwnedFd,
        own: (OwnedFd, HalfRw),
        (theirs, their_inode): (HalfRo, u64),
        options: &ChannelOptions,
    ) -> LinkShared {
        LinkShared {
            domain: domain.clone(),
            channel,
            role,
            name: name.into(),
            peer: peer.0,
            peer_uid: peer.1,
            of_our_user: peer.1 == process::geteuid() && peer.1 != process::NO_USER,
            peer_pid: peer.2,
            peer_process: Mutex::new(peer_process),
            ring: Ring::new(own.1, theirs),
            turns: Turns::default(),
            own_fd: own.0,
            their_inode,
            gone: AtomicU32::new(Gone::No as u32),
            reported_gone: AtomicBool::new(false),
            assigned: Mutex::new(Vec::new()),
            assigned_version: AtomicU32::new(0),
            has_over: AtomicBool::new(false),
            newest_over: AtomicU32::new(0),
            peer_fd: Mutex::new(None),
            fd_awaited: AtomicBool::new(false),
            doorbell: Mutex::default(),
            watch: Watch::default(),
            replies: Mutex::default(),
            early_replies: AtomicBool::new(false),
            consent: options.consent.clone(),
            inside: None,
            beside: Mutex::default(),
            ring_lines: 0,
            is_topic: options.beside.as_ref().is_some_and(Beside::is_topic),
            shared: false,
            levels: options.levels(),
        }
    }

    /// Makes the end of a topic's channel.
    pub(crate) fn with_beside(
        mut self,
        shown: Vec<OwnedFd>,
        ring_lines: u32,
        shared: bool,
    ) -> LinkShared {
        self.beside = Mutex::new(shown);
        self.ring_lines = ring_lines;
        self.shared = shared;
        self
    }

    /// Whether the channel is a topic's or a queue's.
    pub(super) fn is_topic(&self) -> bool {
        self.is_topic
    }

    /// At a publisher: has a subscriber of this process find the buffers of the pool that lines name.
    pub(super) fn show_inside(&self, pool: &Arc<OwnPool>) -> Result<(), Error> {
        if let Some(other) = self.other().filter(|other| other.is_topic) {
            other.accept_own(pool)?;
            other.open_pool(pool.id());
        }
        Ok(())
    }

    /// Whether the process of the other end has ended.
    pub(crate) fn peer_is_dead(&self) -> bool {
        tranship_sys::pidfd::is_dead(lock(&self.peer_process).as_fd()).unwrap_or(false)
    }

    /// Makes it the end of a channel inside this process.
    pub(crate) fn within(mut self, inside: Inside) -> LinkShared {
        // Bounds the sleeps of waiting threads: only their own timer does.
        self.of_our_user = false;
        self.inside = Some(inside);
        self
    }

    /// Sets the other end.
    pub(crate) fn join(&self, other: &Arc<LinkShared>) {
        if let Some(inside) = &self.inside {
            let _ = inside.other.set(Arc::downgrade(other)); // once
        }
    }

    /// Returns the other end, if it is in this process and still there.
    pub(crate) fn other(&self) -> Option<Arc<LinkShared>> {
        self.inside.as_ref()?.other.get()?.upgrade()
    }

    pub(super) fn driver(&self) -> Option<&dyn Driver> {
        Some(&**self.inside.as_ref()?.driver.get()?)
    }

    /// Notes the reason of this end's end, for the other end.
    pub(crate) fn say_why(&self, why: Error) {
        if let Some(other) = self.other()
            && let Some(inside) = &other.inside
        {
            let _ = inside.why.set(why); // the first reason stays
        }
    }

    /// Returns the reason of the other end's end, if it gave one.
    pub(crate) fn why(&self) -> Option<Error> {
        self.inside.as_ref()?.why.get().cloned()
    }

    /// Tells the other end that this one has ended, if no manager tells it.
    pub(crate) fn tell_other(&self) {
        if let Some(other) = self.other() {
            other.peer_gone(Gone::Closed);
            self.fence_then_notify();
        }
    }

    #[inline]
    pub(crate) fn gone(&self) -> Gone {
        match self.gone.load(Ordering::Acquire) {
            0 => Gone::No,
            1 => Gone::Closed,
            2 => Gone::Died,
            _ => Gone::Violated,
        }
    }

    /// Whether the peer has closed its half: all its messages from before are visible.
    #[inline]
    pub(crate) fn their_closed(&self) -> bool {
        self.ring.their_ending() != Ending::Open
    }

    /// Returns the lines that this end writes, for a cursor that keeps this link alive.
    pub(crate) fn own_lines(&self) -> Lines<'static> {
        // SAFETY: the half is mapped as long as the link, which the cursor's owner holds an Arc of.
        unsafe { self.ring.own_lines().outlive() }
    }

    /// Returns the lines that the peer writes, for a cursor that keeps this link alive.
    pub(crate) fn their_lines(&self) -> Lines<'static> {
        // SAFETY: as above.
        unsafe { self.ring.their_lines().outlive() }
    }

    /// Wakes the peer if it sleeps, after a publish that fenced (or [`Waker::Lazy`](tranship_ring::Waker)). Says whether it
    /// slept on its descriptor.
    #[inline(always)]
    pub(crate) fn notify(&self) -> bool {
        let mut pressed = false;
        self.ring.notify(|| {
            pressed = true;
            self.press_their_doorbell()
        });
        pressed
    }

    /// Wakes the peer if it sleeps, after a publish by [`Ring::how_to_publish`].
    #[inline(always)]
    pub(crate) fn notify_of(&self, how: Publish) {
        self.ring.notify_of(how, || self.press_their_doorbell());
    }

    /// Wakes the peer if it sleeps, after publishes without a fence.
    pub(crate) fn fence_then_notify(&self) {
        self.ring.fence_then_notify(|| self.press_their_doorbell());
    }

    /// Notes that the peer is gone. The first reason stays.
    pub(crate) fn peer_gone(&self, why: Gone) {
        let first = self.gone.compare_exchange(
            Gone::No as u32,
            why as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if first.is_ok() {
            self.domain.tasks.has_news();
        }
    }

    /// Closes the channel from here: nothing more of the peer is taken.
    pub(super) fn hang_up(&self) {
        self.peer_gone(Gone::Violated);
        let channel = self.channel;
        let _ = self.domain.tell(&Request::CloseChannel { channel }, &[]);
    }

    /// Notes that the manager says so: its other news of this channel were taken.
    pub(crate) fn report_gone(&self, why: Gone) {
        self.peer_gone(why);
        self.reported_gone.store(true, Ordering::Release); // partner: `is_reported_gone`
    }

    pub(crate) fn is_reported_gone(&self) -> bool {
        // Ordering: Acquire; partner: `report_gone`: a pool that was opened before is open.
        self.reported_gone.load(Ordering::Acquire)
    }

    /// Whether the other end is gone, as far as can be seen now.
    pub(in crate::link) fn is_over(&self) -> bool {
        if self.domain.fork.is_child() {
            return true;
        }
        self.domain.catch_up();
        self.look_for_death();
        self.gone() != Gone::No
    }

    /// Looks for the peer's death: while the manager is away, only this domain's pidfd of the peer shows it.
    pub(crate) fn look_for_death(&self) {
        if self.gone() == Gone::No && self.their_closed() {
            self.peer_gone(Gone::Closed);
        }
        if self.gone() == Gone::No
            && self.inside.is_none()
            && tranship_sys::pidfd::is_dead(lock(&self.peer_process).as_fd()).unwrap_or(false)
        {
            self.peer_gone(Gone::Died);
        }
    }

    pub(crate) fn set_peer_process(&self, process: OwnedFd) {
        *lock(&self.peer_process) = process;
    }

    pub(crate) fn find(&self, pool: PoolId) -> Option<Arc<Assignment>> {
        lock(&self.assigned)
            .iter()
            .find(|a| a.pool == pool && !a.is_over())
            .cloned()
    }

    pub(crate) fn add(&self, assignment: Assignment) {
        lock(&self.assigned).push(Arc::new(assignment));
        self.assigned_version.fetch_add(1, Ordering::Release);
    }

    /// Opens a pool: the manager has raised the writer's epoch for this end's counters.
    pub(crate) fn open_pool(&self, pool: PoolId) {
        if let Some(assignment) = self.find(pool) {
            assignment.open.store(true, Ordering::Release);
            self.assigned_version.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn shut_pool(&self, pool: PoolId) {
        if let Some(assignment) = self.find(pool) {
            assignment.open.store(false, Ordering::Release);
        }
    }

    pub(crate) fn remove(&self, pool: PoolId) {
        lock(&self.assigned).retain(|a| a.pool != pool);
        self.assigned_version.fetch_add(1, Ordering::Release);
    }

    /// Ends the assignment of a pool of which nothing is alive any more. The Sender, or the Receiver, has pointers to it
    /// and gives it back by itself ([`drop_over`](LinkShared::drop_over)).
    pub(crate) fn end_pool(&self, pool: PoolId) {
        if let Some(assignment) = self.find(pool) {
            self.newest_over.fetch_max(pool.0, Ordering::Relaxed); // a name that is read later
            // Ordering: release; partner: `is_over`. The flag of the link follows, so that a look that finds it finds this.
            assignment.over.store(true, Ordering::Release);
            self.has_over.store(true, Ordering::Release);
        }
    }

    /// Whether the assignment of a pool may be over.
    pub(super) fn was_assigned(&self, pool: PoolId) -> bool {
        pool.0 <= self.newest_over.load(Ordering::Relaxed)
    }

    /// Takes the assignments that are over off the list. Returns whether there were any: then the caller, this end's
    /// Sender or Receiver, drops its own handles of them.
    #[inline]
    pub(super) fn drop_over(&self) -> bool {
        // Relaxed: a hint, which the next look sees.
        self.has_over.load(Ordering::Relaxed) && self.take_over()
    }

    #[cold]
    fn take_over(&self) -> bool {
        // Ordering: acquire; partner: the release of `end_pool`.
        self.has_over.swap(false, Ordering::Acquire);
        let mut assigned = lock(&self.assigned);
        let over: Vec<_> = assigned.extract_if(.., |a| a.is_over()).collect();
        drop(assigned);
        !over.is_empty() // dropped without the lock
    }

    /// At a sink: whether a pool is wanted here.
    pub(crate) fn wants(&self, offer: &Offer) -> bool {
        self.consent
            .as_ref()
            .is_none_or(|consent| consent.to(offer))
    }

    /// At a sink: makes `rcvd` counters for a pool that the source offers.
    pub(crate) fn accept_foreign(&self, pool: &Arc<ForeignPool>) -> Result<OwnedFd, Error> {
        self.accept(
            pool.shape.pool,
            pool.shape.slots,
            Assigned::Foreign(pool.clone()),
        )
    }

    /// At a sink: makes `rcvd` counters for an own pool, whose buffers the source forwards back.
    pub(crate) fn accept_own(&self, pool: &Arc<OwnPool>) -> Result<OwnedFd, Error> {
        self.accept(pool.id(), pool.slot_count(), Assigned::Own(pool.clone()))
    }

    fn accept(&self, pool: PoolId, slots: u32, side: Assigned) -> Result<OwnedFd, Error> {
        // Offered again: the source lost the manager's answer, before it sent anything by this assignment.
        if let Some(known) = self.find(pool).filter(|_| self.role == Role::Sink) {
            return known.counts_fd.try_clone().map_err(error::system("fcntl"));
        }
        if self.role != Role::Sink {
            return Err(error::protocol(format!(
                "pool {pool} offered where it cannot be"
            )));
        }
        let (counts_fd, counts) = CountsRw::create(Way::Rcvd, slots)?;
        if self.is_topic {
            // A topic counts neither `rcvd` nor `sent`. As long as they differ, the manager takes nothing for dead that a
            // publisher which ends has published. It is so before the publisher hears that this end has the pool.
            // Relaxed: the manager reads them when the writer is dead.
            let counts = counts.counts().iter();
            counts.for_each(|count| count.store(1, Ordering::Relaxed));
        }
        let shown = counts_fd.try_clone().map_err(error::system("fcntl"))?;
        self.add(Assignment::new(pool, side, (counts_fd, counts)));
        Ok(shown)
    }

    /// Sets the descriptor that wakes the peer, and wakes it at once, so that it misses no earlier message.
    pub(crate) fn set_peer_fd(&self, fd: OwnedFd) {
        let mut peer_fd = lock(&self.peer_fd);
        doorbell::press(peer_fd.insert(fd));
    }

    /// Waits once, for a bounded time, for the descriptor of a peer that sleeps on it. The peer has sent it through the
    /// manager, and this end may never look again. The ends of a topic look again, and do not wait.
    fn await_peer_fd(&self) {
        if self.inside.is_some()
            || self.is_topic
            || lock(&self.peer_fd).is_some()
            || self.fd_awaited.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let deadline = Instant::now() + crate::domain::ROUND;
        while lock(&self.peer_fd).is_none() && Instant::now() < deadline {
            let seen = self.domain.wake();
            self.domain.turn_quietly();
            if lock(&self.peer_fd).is_none() {
                self.domain.wait_news(seen, Some(deadline));
            }
        }
    }

    /// Presses the peer's doorbell. Without a descriptor it is pressed when one comes.
    fn press_their_doorbell(&self) -> bool {
        if let Some(driver) = self.driver() {
            driver.stir();
            return false; // each time anew
        }
        self.await_peer_fd();
        let mut peer_fd = lock(&self.peer_fd);
        if peer_fd.as_ref().is_some_and(doorbell::press) {
            return true;
        }
        if peer_fd.as_ref().is_some_and(|fd| !socket::is_hung_up(fd)) {
            return false; // for want of memory
        }
        // The peer may have replaced the descriptor. If the new one has come it is pressed in this turn. No thread
        // waits for a peer's word.
        *peer_fd = None;
        drop(peer_fd);
        self.domain.turn_quietly();
        lock(&self.peer_fd).is_some()
    }
}

impl std::fmt::Debug for LinkShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("name", &self.name)
            .field("channel", &self.channel)
            .field("role", &self.role)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
