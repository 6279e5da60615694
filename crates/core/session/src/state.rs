//! A domain's state, on which all other code here works.

use super::conn::Conn;
use super::control_pages::ControlPages;
use super::exports::Exports;
use super::home::Home;
use super::notes::Notes;
use super::pressure::MemoryPressure;
use super::register::Register;
use super::residents::LinkMember;
use super::tasks::Tasks;
use super::trace::{self, Subject};
use crate::base::lock;
use crate::error::{Error, ErrorKind};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tranship_proto::{ChannelId, DomainId, PoolId, Request};
use tranship_region::layout::ControlPageRo;
use tranship_region::layout::trace::What;
use tranship_sys::fork::ForkGuard;

/// The longest wait for the manager without a check whether it is still there.
pub const ROUND: Duration = Duration::from_millis(100);
/// How long a manager may be away before a call that needs it fails.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two checks whether the manager is back.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A counted handle of one domain's state. Everything that works with the domain has one: its public handle, pools,
/// links, listeners, heaps, the helper thread. Those that are on the domain's own registers keep it alive until they
/// are taken off.
///
/// A forked child frees nothing of it: another thread may have been changing it when it was copied.
pub struct DomainCore(ManuallyDrop<Arc<Shared>>);

/// One domain's state.
pub struct Shared {
    pub fork: ForkGuard,
    pub(super) id: AtomicU32,
    pub name: String,
    pub home: Home,
    pub(super) control_pages: ControlPages,
    /// Held while records of the manager's state come: a manager sends a client one survey at a time. Taken before `conn`.
    pub(super) surveys: Mutex<()>,
    /// The manager's socket. Taken before any other lock but `surveys`, never while one of them is held.
    pub(super) conn: Mutex<Conn>,
    /// The domain's objects.
    pub register: Register,
    pub pressure: MemoryPressure,
    pub exports: Exports,
    pub(super) life: Life,
    pub(super) poller: tranship_sys::epoll::Epoll,
    /// The tasks that await something of this domain.
    pub tasks: Tasks,
    /// Notes about buffers in use.
    pub leaks: Option<Notes>,
    pub(super) trace: trace::Ring,
    /// How long to wait for a manager that does not answer.
    pub(super) manager_timeout: Duration,
}

/// A domain's progress through its life.
pub(super) struct Life {
    pub(super) closed: AtomicBool,
    /// The domain's public handles are gone.
    pub(super) left: AtomicBool,
    /// Whether a helper thread runs.
    helper: AtomicBool,
    pub(super) embedded: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Life {
    pub(super) fn new(embedded: Option<Box<dyn Any + Send>>) -> Life {
        Life {
            closed: AtomicBool::new(false),
            left: AtomicBool::new(false),
            helper: AtomicBool::new(false),
            embedded: Mutex::new(embedded),
        }
    }
}

impl Clone for DomainCore {
    fn clone(&self) -> DomainCore {
        DomainCore(ManuallyDrop::new(Arc::clone(&self.0)))
    }
}

impl Drop for DomainCore {
    fn drop(&mut self) {
        if !self.fork.is_child() {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl Deref for DomainCore {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl std::fmt::Debug for DomainCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("id", &self.id())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl DomainCore {
    pub(super) fn new(shared: Shared) -> DomainCore {
        DomainCore(ManuallyDrop::new(Arc::new(shared)))
    }

    /// Says whether both handles are of the same domain.
    #[inline]
    pub fn is(&self, other: &DomainCore) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[inline]
    pub fn id(&self) -> DomainId {
        DomainId(self.id.load(Ordering::Relaxed)) // changes only at a resume that was not granted
    }

    /// Returns the control page of the present manager.
    #[inline]
    pub fn control_page(&self) -> &ControlPageRo {
        self.control_pages.now()
    }

    /// Returns the control page's `wake` now.
    #[inline]
    pub fn wake(&self) -> u32 {
        self.control_pages.wake()
    }

    /// Returns the word as an address for a futex.
    pub fn wake_word(&self) -> &AtomicU32 {
        self.control_pages.wake_word()
    }

    pub fn seen(&self) -> u32 {
        self.control_pages.seen()
    }

    /// Says whether the manager has news for this domain. Cost: one load of a line that rarely changes.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.control_pages.has_news()
    }

    /// Switches the tracing of a pool on or off. Not under the socket's lock.
    pub(super) fn set_traced(&self, pool: PoolId, on: bool) {
        if on {
            let Some(fd) = self.trace.made() else { return };
            // This is sent each time: no answer says whether it was taken, and there may be room now. A manager that is
            // away is shown it when it is back, and then says which pools are to be traced.
            let _ = self.tell(&Request::ShowTrace, &[fd.as_fd()]);
        }
        if let Some(own) = self.register.own(pool) {
            own.set_traced(on);
        }
        self.register.with_foreign(|all| {
            if let Some(foreign) = all.get(&pool) {
                foreign.set_traced(on);
            }
        });
    }

    /// Ends all tracing, after a new connection: the manager says again which pools are to be traced.
    pub(super) fn trace_nothing(&self) {
        let own = self.register.all_own();
        own.iter().for_each(|pool| pool.set_traced(false));
        self.register
            .with_foreign(|all| all.values().for_each(|pool| pool.set_traced(false)));
    }

    /// Records an operation on a buffer.
    #[cold]
    pub fn note(&self, what: What, of: Subject) {
        self.note_on(what, of, (ChannelId(0), DomainId(0)), (false, 0));
    }

    /// Records an operation on a buffer over a channel, with the other domain: whether it is moved, and the word that goes along.
    #[cold]
    pub fn note_on(&self, what: What, of: Subject, over: (ChannelId, DomainId), how: (bool, u64)) {
        // A child no longer has its parent's mapping.
        if !self.fork.is_child() {
            self.trace.note(what, of, over, how);
        }
    }

    #[inline]
    pub fn check_fork(&self) -> Result<(), Error> {
        if self.fork.is_child() {
            Err(ErrorKind::Forked.into())
        } else {
            Ok(())
        }
    }

    /// Sends a request that has no answer.
    pub fn tell(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.check_fork()?;
        lock(&self.conn).send(request, fds)
    }

    /// Says that this end leaves the link. Returns false if no manager could be told: then the next manager is told.
    pub fn say_closed(&self, link: &dyn LinkMember) -> bool {
        // One critical section, so that a resume either finds the mark or is announced after it.
        let mut conn = lock(&self.conn);
        let channel = link.channel();
        let told = conn.send(&Request::CloseChannel { channel }, &[]).is_ok();
        link.watch().set_leaving(!told);
        told
    }

    /// Shows the manager a channel that no manager made, if the message can be sent now.
    pub fn show_channel(&self, link: &dyn LinkMember) {
        let mut conn = lock(&self.conn);
        link.with_registration(&mut |request, halves| conn.offer(request, halves));
    }

    pub fn link(&self, channel: ChannelId) -> Option<Arc<dyn LinkMember>> {
        self.register.link(channel)
    }

    pub fn has_helper(&self) -> bool {
        self.life.helper.load(Ordering::Relaxed)
    }

    /// Records that a helper thread runs. Returns whether one did.
    pub(super) fn helped(&self) -> bool {
        self.life.helper.swap(true, Ordering::Relaxed)
    }

    pub(super) fn not_helped(&self) {
        self.life.helper.store(false, Ordering::Relaxed);
    }

    /// Bounds the sleeps of links that have no timer.
    pub(super) fn nudge_links(&self) {
        let links = self.register.all_links();
        links.iter().for_each(|link| link.nudge());
    }

    /// Gives back buffers that carriers have received, because memory is short.
    pub fn reclaim_from_carriers(&self) {
        if self.pressure.is_carried() {
            let links = self.register.all_links();
            links.iter().for_each(|link| link.reclaim());
        }
    }

    pub fn is_closed(&self) -> bool {
        self.life.closed.load(Ordering::Relaxed)
    }
}
