//! One end of a link: both halves, the peer's fate, the pools assigned.

use crate::domain::{DomainCore, lock};
use crate::error::DomainError;
use crate::options::{Consent, Offer};
use crate::pool::{ForeignPool, OwnPool};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tranship_proto::{ChannelId, DomainId, PoolId, Role};
use tranship_region::layout::{CountsRw, LinkHalfRo, LinkHalfRw, Way};
use tranship_sync::{Line, Lines};
use tranship_sys::{futex, process, socket};

/// What became of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Gone {
    /// It is there.
    No = 0,
    /// It closed in order.
    Closed = 1,
    /// Its process ended.
    Died = 2,
    /// We closed: it broke a rule, or sent what nobody has any more.
    Violated = 3,
}

/// What an end says of itself in `closed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Nothing yet.
    Open,
    /// It was closed in order: nothing more was to be sent.
    Closed,
    /// It was given up before it had sent everything.
    Abandoned,
    /// It was never used: its domain did not hear that the connection was made.
    Never,
}

pub(crate) const CLOSED: u32 = 1;
pub(crate) const ABANDONED: u32 = 2;
pub(crate) const NEVER: u32 = 3;

/// The pool side of an assignment.
#[derive(Clone)]
pub(crate) enum Assigned {
    /// One's own pool.
    Own(Arc<OwnPool>),
    /// Another's pool that this domain reads.
    Foreign(Arc<ForeignPool>),
}

/// A pool assigned to the channel, with this end's counters of it: `sent` at a source, `rcvd` at a sink.
pub(crate) struct Assignment {
    pub(crate) pool: PoolId,
    pub(crate) side: Assigned,
    pub(crate) counts: Arc<CountsRw>,
    pub(crate) counts_fd: OwnedFd,
    /// Sink: the manager has put our counters on the writer's roster, so references may be taken.
    /// Source: it has said that we may send.
    pub(crate) open: AtomicBool,
}

impl Assignment {
    /// Whether it is shown to a new manager. A source makes one that was not confirmed anew; nothing was sent by it.
    pub(crate) fn is_claimed(&self, role: Role) -> bool {
        role == Role::Sink || self.open.load(Ordering::Acquire)
    }
}

/// Everything of one end of a link but its cursors, which belong to `Sender` or `Receiver`.
pub(crate) struct LinkShared {
    pub(crate) domain: DomainCore,
    pub(crate) channel: ChannelId,
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) peer: DomainId,
    pub(crate) peer_pid: u32,
    pub(crate) peer_uid: u32,
    /// Whether the peer may send us signals, as who runs as the same user may.
    pub(crate) of_our_user: bool,
    peer_process: Mutex<OwnedFd>,
    pub(crate) own: LinkHalfRw,
    pub(crate) own_fd: OwnedFd,
    pub(crate) theirs: LinkHalfRo,
    /// Of the memory behind `theirs`.
    pub(crate) their_inode: u64,
    gone: AtomicU32,
    pub(crate) assigned: Mutex<Vec<Arc<Assignment>>>,
    /// Grows with `assigned`, so that cursors know when to look again.
    pub(crate) assigned_version: AtomicU32,
    /// Where we write a byte when the peer sleeps on its descriptor.
    peer_fd: Mutex<Option<OwnedFd>>,
    fd_awaited: AtomicBool,
    /// Our end of that, when we asked for one.
    pub(crate) own_wake: Mutex<Option<OwnedFd>>,
    /// Our cursors are gone, but no manager was there to hear it: the next one is told.
    pub(crate) leaving: AtomicBool,
    /// Whether the manager watches the peer for us. One that came back does so when both ends are back; until then a
    /// peer that dies is seen by our own descriptor of its process only.
    pub(crate) watched: AtomicBool,
    consent: Option<Consent>,
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
            Assigned::Own(pool) => pool.domain.is(domain),
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
        own: (OwnedFd, LinkHalfRw),
        (theirs, their_inode): (LinkHalfRo, u64),
        consent: Option<Consent>,
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
            own: own.1,
            own_fd: own.0,
            theirs,
            their_inode,
            gone: AtomicU32::new(Gone::No as u32),
            assigned: Mutex::new(Vec::new()),
            assigned_version: AtomicU32::new(0),
            peer_fd: Mutex::new(None),
            fd_awaited: AtomicBool::new(false),
            own_wake: Mutex::new(None),
            leaving: AtomicBool::new(false),
            watched: AtomicBool::new(true),
            consent,
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

    /// The peer's futex word, which we sleep on.
    pub(crate) fn their_wake(&self) -> &AtomicU32 {
        // SAFETY: in the peer's half, mapped as long as `self`; we only load it.
        unsafe { &*self.theirs.wake().as_ptr() }
    }

    /// The peer's flag that says how it sleeps.
    #[inline]
    pub(crate) fn their_asleep(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.theirs.asleep().as_ptr() }
    }

    /// Lines of the peer that we have not to fear: how many the peer took of ours.
    #[inline]
    pub(crate) fn their_head(&self) -> u64 {
        // Ordering: Acquire pairs with the peer's Release of its head: it has read the lines.
        self.theirs.head().load(Ordering::Acquire)
    }

    /// What the peer has said about its end. Ordering: as below.
    pub(crate) fn their_ending(&self) -> Ending {
        match self.theirs.closed().load(Ordering::Acquire) {
            0 => Ending::Open,
            CLOSED => Ending::Closed,
            NEVER => Ending::Never,
            _ => Ending::Abandoned,
        }
    }

    /// Says what is said about our own end, once. Ordering: Release: who sees it sees all lines before it (its Acquire).
    pub(crate) fn say_ending(&self, closed: u32) {
        let said = self.own.closed();
        if said.load(Ordering::Relaxed) == 0 {
            said.store(closed, Ordering::Release);
        }
    }

    /// Whether the peer has said that it sends nothing more. Ordering: Acquire: all it sent before is visible.
    #[inline]
    pub(crate) fn their_closed(&self) -> bool {
        self.theirs.closed().load(Ordering::Acquire) != 0
    }

    /// The lines that we write, for a cursor that keeps this link alive.
    pub(crate) fn own_lines(&self) -> Result<Lines<'static>, DomainError> {
        lines(self.own.lines_ptr(), self.own.count())
    }

    /// The lines that the peer writes.
    pub(crate) fn their_lines(&self) -> Result<Lines<'static>, DomainError> {
        lines(self.theirs.lines_ptr(), self.theirs.count())
    }

    /// The first reason stays.
    pub(crate) fn peer_gone(&self, why: Gone) {
        let _ = self.gone.compare_exchange(
            Gone::No as u32,
            why as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// While the manager is away deaths are seen by our own descriptor of the peer's process.
    pub(crate) fn look_for_death(&self) {
        if self.gone() == Gone::No && self.their_closed() {
            self.peer_gone(Gone::Closed);
        }
        if self.gone() == Gone::No
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
            .find(|a| a.pool == pool)
            .cloned()
    }

    pub(crate) fn add(&self, assignment: Assignment) {
        lock(&self.assigned).push(Arc::new(assignment));
        self.assigned_version.fetch_add(1, Ordering::Release);
    }

    /// The manager has raised the writer's epoch for our counters.
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

    /// Sink: whether a pool is wanted here.
    pub(crate) fn wants(&self, offer: &Offer) -> bool {
        self.consent
            .as_ref()
            .is_none_or(|consent| consent.to(offer))
    }

    /// Sink: makes `rcvd` counters for a pool that the source offers.
    pub(crate) fn accept_foreign(&self, pool: &Arc<ForeignPool>) -> Result<OwnedFd, DomainError> {
        self.accept(
            pool.shape.pool,
            pool.shape.slots,
            Assigned::Foreign(pool.clone()),
        )
    }

    /// Sink: the same for one of our own pools, whose buffers the source forwards back to us.
    pub(crate) fn accept_own(&self, pool: &Arc<OwnPool>) -> Result<OwnedFd, DomainError> {
        self.accept(pool.id(), pool.slot_count(), Assigned::Own(pool.clone()))
    }

    fn accept(&self, pool: PoolId, slots: u32, side: Assigned) -> Result<OwnedFd, DomainError> {
        // Offered again: the source lost the manager's answer, before it sent anything by this assignment.
        if let Some(known) = self.find(pool).filter(|_| self.role == Role::Sink) {
            return known
                .counts_fd
                .try_clone()
                .map_err(DomainError::system("fcntl"));
        }
        if self.role != Role::Sink {
            return Err(DomainError::Protocol(format!(
                "pool {pool} offered where it cannot be"
            )));
        }
        let (counts_fd, counts) = CountsRw::create(Way::Rcvd, slots)?;
        let shown = counts_fd
            .try_clone()
            .map_err(DomainError::system("fcntl"))?;
        self.add(Assignment {
            pool,
            side,
            counts: Arc::new(counts),
            counts_fd,
            open: AtomicBool::new(false),
        });
        Ok(shown)
    }

    /// The peer's descriptor to wake it by; a byte now, so that nothing published before is missed.
    pub(crate) fn set_peer_fd(&self, fd: OwnedFd) {
        let _ = socket::sendmsg(fd.as_fd(), b"!", &[], true);
        *lock(&self.peer_fd) = Some(fd);
    }

    /// A peer that sleeps on its descriptor has sent us the other end, through the manager. It may still be on its
    /// way, and we may never look again; so once, and for a bounded time, we wait for it.
    fn await_peer_fd(&self) {
        if lock(&self.peer_fd).is_some() || self.fd_awaited.swap(true, Ordering::Relaxed) {
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

    /// Ends a sleep of our own that no timer bounds (`sleep::Kernel`). Called by the helper thread, now and then.
    pub(crate) fn nudge(&self) {
        if self.own.asleep().load(Ordering::Relaxed) != 0 {
            let _ = futex::wake(self.their_wake(), u32::MAX >> 1);
        }
    }

    /// The second half of a wake-up, when the peer's flag said that it sleeps.
    #[cold]
    pub(crate) fn wake_peer(&self, how: tranship_sync::Asleep) {
        match how {
            tranship_sync::Asleep::Descriptor => {
                self.await_peer_fd();
                if let Some(fd) = &*lock(&self.peer_fd) {
                    // Full means that a wake-up is queued already.
                    let _ = socket::sendmsg(fd.as_fd(), b"!", &[], true);
                }
            }
            _ => {
                let _ = futex::wake(self.own.wake(), u32::MAX >> 1);
            }
        }
    }
}

/// Lines in a half that the caller keeps mapped (every cursor holds its link).
fn lines(first: NonNull<Line>, count: u32) -> Result<Lines<'static>, DomainError> {
    // SAFETY: the half is mapped as long as the link, which the cursor's owner holds an Arc of; lines are
    // reached only through atomics.
    unsafe { Lines::from_raw(first, count as usize) }
        .map_err(|e| DomainError::Protocol(e.to_string()))
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
