//! The process's arena, and the arenas of the processes that it was forked from.

use crate::descriptors;
use crate::environment::{self, Wishes};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tranship_sys::ForkGuard;
use zcopy::{Arena, Options, Piece, Sender};

/// Arenas of this process and its ancestors; the last one is this process's own. A forked child adds one.
static ARENAS: [AtomicPtr<Arena>; DEPTH] = [const { AtomicPtr::new(std::ptr::null_mut()) }; DEPTH];
/// Generations of forks that can be told apart; deeper ones use the program's own allocator.
const DEPTH: usize = 8;

static WISHES: std::sync::OnceLock<Wishes> = std::sync::OnceLock::new();
static MAKING: Mutex<()> = Mutex::new(());
/// Bytes that went by reference, bytes of such memory that were copied, sends.
pub(crate) static DONE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

thread_local! {
    static SENDER: RefCell<Option<Ours>> = const { RefCell::new(None) };
}

/// A thread's sender, whose descriptors the program cannot close.
struct Ours {
    sender: Sender,
    /// Pieces of the send that is under way.
    pieces: Vec<Piece<'static>>,
    kept: Vec<RawFd>,
    guard: ForkGuard,
}

impl Ours {
    fn new() -> Option<Ours> {
        let mut sender = Sender::new().ok()?;
        if let Some(bytes) = wishes().send {
            sender.refer_from(bytes);
        }
        let kept = sender.descriptors().ok()?;
        kept.iter().copied().for_each(descriptors::keep);
        Some(Ours {
            sender,
            pieces: Vec::new(),
            kept,
            guard: ForkGuard::new().ok()?,
        })
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.kept.iter().copied().for_each(descriptors::give_up);
    }
}

pub(crate) fn wishes() -> &'static Wishes {
    WISHES.get_or_init(environment::wishes)
}

/// Returns the arena that an address belongs to.
pub(crate) fn arena_of(at: *const u8) -> Option<&'static Arena> {
    for arena in &ARENAS {
        // Ordering: acquire, partner of the release in `own`.
        let arena = arena.load(Ordering::Acquire);
        if arena.is_null() {
            return None;
        }
        // SAFETY: arenas here are never freed.
        let arena = unsafe { &*arena };
        if arena.owns(at) {
            return Some(arena);
        }
    }
    None
}

/// Returns this process's arena, if it was made.
pub(crate) fn made() -> Option<&'static Arena> {
    last().filter(|arena| !arena.is_inherited())
}

/// Returns this process's arena, and makes it when it is first needed. To be called inside.
pub(crate) fn own() -> Option<&'static Arena> {
    if let Some(arena) = made() {
        return Some(arena);
    }
    let _making = MAKING.try_lock().ok().or_else(|| {
        // Another thread makes it. A forked child may have no thread that does.
        last()
            .is_none()
            .then(|| MAKING.lock().unwrap_or_else(PoisonError::into_inner))
    })?;
    if let Some(arena) = made() {
        return Some(arena);
    }
    let place = ARENAS
        .iter()
        .find(|arena| arena.load(Ordering::Acquire).is_null())?;
    let wishes = wishes();
    let mut options = Options::new();
    if let Some(max) = wishes.max {
        options = options.max(max);
    }
    if let Some(pages) = wishes.block_pages {
        options = options.block_pages(pages);
    }
    if let Some(large) = wishes.large {
        options = options.large_threshold(large);
    }
    let arena = Box::leak(Box::new(Arena::with(&options).ok()?));
    descriptors::keep(arena.descriptor().as_raw_fd());
    // Ordering: release, partner of the acquire in `arena_of`.
    place.store(arena, Ordering::Release);
    report_at_exit();
    Some(arena)
}

/// Prints the report at exit, if that is wished for, once.
fn report_at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if wishes().stats {
        // SAFETY: a function that is always there.
        ONCE.call_once(|| unsafe {
            libc::atexit(report);
        });
    }
}

fn last() -> Option<&'static Arena> {
    let arenas = ARENAS.iter().map(|arena| arena.load(Ordering::Acquire));
    let last = arenas.take_while(|arena| !arena.is_null()).last()?;
    // SAFETY: arenas here are never freed.
    Some(unsafe { &*last })
}

/// Returns whether this thread has a sender.
pub(crate) fn has_sender() -> bool {
    let has = |sender: &RefCell<Option<Ours>>| sender.try_borrow().is_ok_and(|ours| ours.is_some());
    SENDER.try_with(has).unwrap_or(false)
}

/// Runs with this thread's sender and a list for its pieces; none while the thread ends, or if the kernel refuses.
pub(crate) fn with_sender<T>(
    work: impl FnOnce(&mut Sender, &mut Vec<Piece<'static>>) -> T,
) -> Option<T> {
    SENDER
        .try_with(|sender| {
            let mut sender = sender.try_borrow_mut().ok()?;
            // A forked child has pipes of its own.
            sender.take_if(|ours| ours.guard.is_child());
            let sender = match &mut *sender {
                Some(sender) => sender,
                none => {
                    report_at_exit();
                    none.insert(Ours::new()?)
                }
            };
            // Removes pieces of a send that a signal's handler jumped out of.
            sender.pieces.clear();
            let done = work(&mut sender.sender, &mut sender.pieces);
            sender.pieces.clear();
            Some(done)
        })
        .ok()?
}

extern "C" fn report() {
    // Relaxed: counts.
    let [referred, copied, sends] =
        [0, 1, 2].map(|which: usize| DONE[which].load(Ordering::Relaxed));
    environment::say(&format!(
        "{sends} sends of its memory, {referred} bytes by reference, {copied} bytes copied"
    ));
}
