//! A domain's state, which everything else here works on.

use super::backlog::Backlog;
use super::conn::Conn;
use super::cut_off::Root;
use super::haste::Haste;
use super::notes::Notes;
use super::register::Register;
use super::residents::LinkMember;
use super::starter::Starter;
use super::tasks::Tasks;
use super::trace::{self, Subject};
use crate::base::lock;
use crate::error::{Error, Kind};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tranship_manager::Embedded;
use tranship_proto::{ChannelId, DomainId, ExportId, PoolId, Request};
use tranship_region::layout::BoardRo;
use tranship_region::layout::trace::What;
use tranship_sys::fork::ForkGuard;

/// A counted handle of one domain's state. Whatever works with the domain has one: its public handle, pools, links, listeners,
/// heaps, the helper thread. What of them is on the domain's own registers keeps it alive until it is taken off.
///
/// A forked child frees nothing of it: another thread may have been at work on it when it was copied.
pub(crate) struct DomainCore(ManuallyDrop<Arc<Shared>>);

/// One domain's state.
pub(crate) struct Shared {
    pub(crate) fork: ForkGuard,
    pub(super) id: AtomicU32,
    pub(crate) name: String,
    pub(crate) socket: Option<std::path::PathBuf>,
    /// Where its manager was found, and is looked for when it is gone: another one elsewhere would know nobody of those we know.
    pub(super) place: std::path::PathBuf,
    /// The root directory under which it was found there.
    pub(super) root: Option<Root>,
    /// The current board. A new manager's is mapped over it, for a thread may be looking at it.
    pub(super) board: AtomicPtr<BoardRo>,
    /// All that there were: a thread may be looking at an older one.
    pub(super) boards: Mutex<Vec<Arc<BoardRo>>>,
    /// The board's `wake` up to which events were taken.
    pub(super) seen: AtomicU32,
    /// The manager's socket. Taken before any other lock, never while one of them is held.
    pub(super) conn: Mutex<Conn>,
    /// What lives in it.
    pub(crate) register: Register,
    pub(crate) haste: Haste,
    pub(crate) exports: Mutex<HashMap<ExportId, Export>>,
    /// Threads that wait for an answer to Export; changes under the lock of `exports`.
    pub(crate) exporting: AtomicU32,
    pub(super) closed: AtomicBool,
    /// Its public handles are gone.
    pub(super) left: AtomicBool,
    /// Whether a helper thread runs.
    pub(super) helper: AtomicBool,
    pub(super) embedded: Mutex<Option<Embedded>>,
    /// Of a manager that we started.
    pub(super) starter: Option<Arc<Starter>>,
    pub(super) poller: tranship_sys::epoll::Epoll,
    /// Those that await something of this domain.
    pub(crate) tasks: Tasks,
    pub(super) high_descriptors: bool,
    /// What is noted of buffers that are had.
    pub(crate) leaks: Option<Notes>,
    pub(super) trace: trace::Ring,
}

/// An exported name and who has connected to it.
#[derive(Default)]
pub(crate) struct Export {
    /// Name and role (none where sockets are connected); `None` until the thread that exports has the manager's answer.
    pub(crate) what: Option<(String, Option<tranship_proto::Role>)>,
    /// Its id under the present manager, as the listener knows it too.
    pub(crate) id: Arc<AtomicU32>,
    pub(crate) incoming: Backlog,
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

    /// Whether both are of the same domain.
    pub(crate) fn is(&self, other: &DomainCore) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn id(&self) -> DomainId {
        DomainId(self.id.load(Ordering::Relaxed)) // changes only at a resume that was not granted
    }

    /// The board of the manager that we know.
    #[inline]
    pub(crate) fn board(&self) -> &BoardRo {
        let board = self.board.load(Ordering::Acquire);
        // SAFETY: one of `boards`, of which none is taken away as long as the state lives; the manager writes the page, which
        // `BoardRo` reads only through atomics.
        unsafe { &*board }
    }

    /// The board's `wake` now.
    #[inline]
    pub(crate) fn wake(&self) -> u32 {
        // Ordering: Acquire pairs with the manager's Release after its datagram went into our socket.
        self.board().wake().load(Ordering::Acquire)
    }

    /// The same word, for a futex.
    pub(crate) fn wake_word(&self) -> &AtomicU32 {
        // SAFETY: boards stay mapped as long as the domain's state lives; the manager writes the word, we only load it.
        unsafe { &*self.board().wake_ptr() }
    }

    pub(crate) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// The new board takes the old one's place; one of another size is put beside it.
    pub(super) fn set_board(&self, board: BoardRo) {
        if let Err(board) = self.board().show_instead(board) {
            let board = Arc::new(board);
            let at = Arc::as_ptr(&board).cast_mut();
            lock(&self.boards).push(board);
            // Ordering: Release here pairs with the Acquire in `board`.
            self.board.store(at, Ordering::Release);
        }
    }

    /// Whether the manager has something for us. One load of a line that rarely changes.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.wake() != self.seen.load(Ordering::Acquire)
    }

    /// A pool is to be traced, or no longer. Not under the socket's lock.
    pub(super) fn set_traced(&self, pool: PoolId, on: bool) {
        if on {
            let Some(fd) = self.trace.made() else { return };
            if self.trace.is_to_be_shown() {
                // Who is away is shown it when it is back, and says then what is to be traced.
                let _ = self.tell(&Request::ShowTrace, &[fd.as_fd()]);
            }
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

    /// Another connection: what is to be traced will be said anew.
    pub(super) fn trace_nothing(&self) {
        self.trace.is_new();
        let own = self.register.all_own();
        own.iter().for_each(|pool| pool.set_traced(false));
        self.register
            .with_foreign(|all| all.values().for_each(|pool| pool.set_traced(false)));
    }

    /// Records what is done with a buffer now.
    #[cold]
    pub(crate) fn note(&self, what: What, of: Subject) {
        self.note_on(what, of, (ChannelId(0), DomainId(0)), false);
    }

    /// The same over a channel, with whom.
    #[cold]
    pub(crate) fn note_on(
        &self,
        what: What,
        of: Subject,
        over: (ChannelId, DomainId),
        moved: bool,
    ) {
        // A child has its parent's mapping no more.
        if !self.fork.is_child() {
            self.trace.note(what, of, over, moved);
        }
    }

    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        if self.fork.is_child() {
            Err(Kind::Forked.into())
        } else {
            Ok(())
        }
    }

    pub(crate) fn link(&self, channel: ChannelId) -> Option<Arc<dyn LinkMember>> {
        self.register.link(channel)
    }

    pub(crate) fn has_helper(&self) -> bool {
        self.helper.load(Ordering::Relaxed)
    }

    pub(super) fn helped(&self) {
        self.helper.store(true, Ordering::Relaxed);
    }

    /// Bounds the sleeps of links that have no timer.
    pub(super) fn nudge_links(&self) {
        let links = self.register.all_links();
        links.iter().for_each(|link| link.nudge());
    }

    /// Memory is short: what has arrived by carriers is given back now.
    pub(crate) fn hasten_carriers(&self) {
        if self.haste.is_carried() {
            let links = self.register.all_links();
            links.iter().for_each(|link| link.hasten());
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}
