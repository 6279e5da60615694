//! A protection domain: the process's membership with a manager.

mod backlog;
mod call;
mod conn;
mod connect;
mod cut_off;
mod discover;
mod entrust;
mod events;
mod greeting;
mod haste;
mod helper;
mod history;
mod leaks;
mod leave;
mod notes;
mod resume;
mod shell;
mod starter;
mod steer;
mod tasks;
mod trace;

pub(crate) use call::{Asked, NAP, PATIENCE, ROUND, millis};
pub use connect::DomainBuilder;
pub(crate) use events::PoolShape;
pub(crate) use helper::thread;
pub use history::{Did, Trace, TraceEvent};
pub use notes::{Got, HeldBuffer, LeakReport, Leaks, OwnBuffer};
pub use shell::Domain;
pub use steer::Steering;
pub(crate) use tasks::{Key, Tasks, Woken};
pub(crate) use trace::Subject;

use crate::error::{Error, Kind};
use crate::heap::OwnHeap;
use crate::link::LinkShared;
use crate::pool::{ForeignPool, OwnPool};
pub(crate) use backlog::{Backlog, NEWS, Take};
use conn::Conn;
pub(crate) use conn::Parcel;
use haste::Haste;
use std::collections::{BTreeSet, HashMap};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
    id: AtomicU32,
    pub(crate) name: String,
    socket: Option<std::path::PathBuf>,
    /// Where its manager was found, and is looked for when it is gone: another one elsewhere would know nobody of those we know.
    place: std::path::PathBuf,
    /// The root directory under which it was found there.
    root: Option<cut_off::Root>,
    /// The current board. A new manager's is mapped over it, for a thread may be looking at it.
    board: AtomicPtr<BoardRo>,
    /// All that there were: a thread may be looking at an older one.
    boards: Mutex<Vec<Arc<BoardRo>>>,
    /// The board's `wake` up to which events were taken.
    seen: AtomicU32,
    /// The manager's socket. Taken before any other lock, never while one of them is held.
    conn: Mutex<Conn>,
    pub(crate) pools: Mutex<HashMap<PoolId, Arc<OwnPool>>>,
    pub(crate) heaps: Mutex<Vec<Arc<OwnHeap>>>,
    pub(crate) foreign: Mutex<HashMap<PoolId, Arc<ForeignPool>>>,
    pub(crate) links: Mutex<HashMap<ChannelId, Arc<LinkShared>>>,
    pub(crate) haste: Haste,
    /// Whether there may be links whose peers the manager does not watch for us.
    unwatched: AtomicBool,
    /// Rights to forward that this domain gave, for a manager that comes back without them.
    pub(crate) rights: Mutex<BTreeSet<(PoolId, DomainId)>>,
    pub(crate) exports: Mutex<HashMap<ExportId, Export>>,
    /// Threads that wait for an answer to Export; changes under the lock of `exports`.
    pub(crate) exporting: AtomicU32,
    /// Work that events asked for, done by `turn` after the socket's lock is released.
    chores: Mutex<Vec<Chore>>,
    closed: AtomicBool,
    /// Its public handles are gone.
    left: AtomicBool,
    /// Whether a helper thread runs.
    helper: AtomicBool,
    embedded: Mutex<Option<Embedded>>,
    /// Of a manager that we started.
    starter: Option<Arc<starter::Starter>>,
    poller: tranship_sys::epoll::Epoll,
    /// Those that await something of this domain.
    pub(crate) tasks: Tasks,
    high_descriptors: bool,
    /// What is noted of buffers that are had.
    pub(crate) leaks: Option<notes::Notes>,
    trace: trace::Ring,
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

/// Work that an event asks for and that must not run under the socket's lock.
#[derive(Debug)]
pub(crate) enum Chore {
    /// Bring a pool down to so many bytes.
    Shrink(PoolId, u64),
    /// A pool's quota has changed to this.
    Quota(PoolId, u64),
    /// What is done with its buffers is to be recorded, or no longer.
    Traced(PoolId, bool),
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

/// What tells a shared object from every other on this machine; 0 if the kernel does not say.
pub(crate) fn inode(fd: &std::os::fd::OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fd.try_clone()
        .and_then(|fd| std::fs::File::from(fd).metadata())
        .map_or(0, |meta| meta.ino())
}

/// Locks without caring that another thread panicked while it held the lock: every critical
/// section here leaves its data consistent at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl DomainCore {
    fn new(shared: Shared) -> DomainCore {
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
    fn set_board(&self, board: BoardRo) {
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

    /// Takes what the manager has sent, if anything. Errors wait for the next call that needs the manager.
    #[inline]
    pub(crate) fn catch_up(&self) {
        if self.has_news() {
            self.turn_quietly();
        }
    }

    #[cold]
    pub(crate) fn turn_quietly(&self) {
        if let Err(error) = self.turn() {
            tracing::debug!(domain = %self.id(), %error, "turn");
        }
    }

    /// A pool is to be traced, or no longer. Not under the socket's lock.
    fn set_traced(&self, pool: PoolId, on: bool) {
        if on {
            let Some(fd) = self.trace.made() else { return };
            if self.trace.is_to_be_shown() {
                // Who is away is shown it when it is back, and says then what is to be traced.
                let _ = self.tell(&Request::ShowTrace, &[fd.as_fd()]);
            }
        }
        if let Some(own) = lock(&self.pools).get(&pool) {
            own.set_traced(on);
        }
        if let Some(foreign) = lock(&self.foreign).get(&pool) {
            foreign.set_traced(on);
        }
    }

    /// Another connection: what is to be traced will be said anew.
    fn trace_nothing(&self) {
        self.trace.is_new();
        lock(&self.pools).values().for_each(|p| p.set_traced(false));
        lock(&self.foreign)
            .values()
            .for_each(|p| p.set_traced(false));
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

    pub(crate) fn link(&self, channel: ChannelId) -> Option<Arc<LinkShared>> {
        lock(&self.links).get(&channel).cloned()
    }

    fn heap(&self, id: PoolId) -> Option<Arc<OwnHeap>> {
        let heaps = lock(&self.heaps);
        heaps.iter().find(|heap| heap.id() == id).cloned()
    }

    fn chore(&self, chore: Chore) {
        lock(&self.chores).push(chore);
    }

    pub(crate) fn has_helper(&self) -> bool {
        self.helper.load(Ordering::Relaxed)
    }

    fn helped(&self) {
        self.helper.store(true, Ordering::Relaxed);
    }

    /// Bounds the sleeps of links that have no timer.
    fn nudge_links(&self) {
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        links.iter().for_each(|link| link.ring.nudge());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}
