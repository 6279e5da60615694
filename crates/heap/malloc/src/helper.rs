//! The thread that gives back the free memory of a program that fell silent.
//!
//! Memory goes back while the program allocates and frees. A program that does neither would keep its caches. This
//! thread looks once a second whether the heap was used since the last look. If not, it gives back all free memory, and
//! sleeps until a call leaves a thread's cache again.
//!
//! A small heap has no thread: the thread starts when the heap is larger than [`LEAST_BYTES`], and ends when it finds a
//! smaller one.
//!
//! The C library starts the thread, not Rust's: the standard library may be the caller, in the middle of a change of
//! its thread-local lists. Only an allocation starts it: the C library frees memory under its lock of the stacks.

use crate::environment;
use crate::inside::Inside;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tranship_sys::{futex, process, signals, time};

/// The heap, as the thread sees it.
pub(crate) trait Idle: Sync {
    /// Returns a number that differs after any use.
    fn activity(&self) -> u64;
    /// Returns the bytes of pages that have memory.
    fn held_bytes(&self) -> u64;
    /// Gives back all free memory.
    fn give_back_idle(&self);
}

/// The process's heap, once a thread was to be started.
static HEAP: OnceLock<&'static dyn Idle> = OnceLock::new();

/// The size from which on a heap has a thread.
const LEAST_BYTES: u64 = 8 << 20;
/// The time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// The time before a forked child starts a thread: most children end or call `exec` sooner.
const CHILD_NS: u64 = 1_000_000_000;
/// Only touched pages of the stack have memory. The C library takes the thread-local variables of all libraries from
/// it.
const STACK_BYTES: usize = 256 << 10;

/// What the thread does. It sleeps on this word.
static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const ASLEEP: u32 = 1;
const LOOKING: u32 = 2;
/// There is to be none, or it could not be started.
const NEVER: u32 = 3;

/// The process that may start a thread, or 0. A child of `vfork` has another number, and shares this memory.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// No thread is started earlier.
static NOT_BEFORE_NS: AtomicU64 = AtomicU64::new(0);

/// Records that a thread allocated beyond its cache.
#[inline]
pub(crate) fn allocated(heap: &'static dyn Idle) {
    // Ordering: Relaxed, here and in `freed`: a thread that goes to sleep looks once more (partner: the store in
    // `serve`). Memory that both miss goes back after the next call.
    match STATE.load(Ordering::Relaxed) {
        NONE if heap.held_bytes() > LEAST_BYTES => start(heap),
        ASLEEP => wake(),
        _ => {}
    }
}

/// Records that a thread freed beyond its cache.
#[inline]
pub(crate) fn freed() {
    if STATE.load(Ordering::Relaxed) == ASLEEP {
        wake();
    }
}

/// Lets this process start a thread. It may be a forked child, which has none.
pub(crate) fn begin(is_child: bool) {
    if is_child {
        NOT_BEFORE_NS.store(time::coarse_ns() + CHILD_NS, Ordering::Relaxed);
        let _ = change(LOOKING, NONE) || change(ASLEEP, NONE);
    }
    PROCESS.store(process::getpid(), Ordering::Relaxed);
}

/// Changes the state, if it is `from`.
fn change(from: u32, to: u32) -> bool {
    // Ordering: SeqCst: the looks at the heap stay on their sides of it.
    STATE
        .compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok()
}

#[cold]
fn wake() {
    if change(ASLEEP, LOOKING) {
        let _ = futex::private::wake(&raw const STATE, 1);
    }
}

#[cold]
fn start(heap: &'static dyn Idle) {
    if time::coarse_ns() < NOT_BEFORE_NS.load(Ordering::Relaxed)
        || process::getpid() != PROCESS.load(Ordering::Relaxed)
        || !change(NONE, LOOKING)
    {
        return;
    }
    HEAP.get_or_init(|| heap);
    if environment::keeps_idle_memory() || signals::bare_thread(STACK_BYTES, run).is_err() {
        STATE.store(NEVER, Ordering::Relaxed);
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let _inside = Inside::enter();
    process::name_thread(c"tranship-heap");
    if let Some(heap) = HEAP.get() {
        serve(*heap);
    }
    ptr::null_mut()
}

fn serve(heap: &dyn Idle) {
    let mut seen = heap.activity();
    loop {
        if !sleeps(LOOKING, Some(LOOK)) {
            return;
        }
        let now = heap.activity();
        if now != seen {
            seen = now;
            continue;
        }
        heap.give_back_idle();
        let rest = match heap.held_bytes() {
            0..=LEAST_BYTES => NONE,
            _ => ASLEEP,
        };
        // Ordering: SeqCst: the look at the heap comes after it.
        STATE.store(rest, Ordering::SeqCst);
        if heap.activity() == seen || !change(rest, LOOKING) {
            if rest == NONE {
                // If the heap grew meanwhile, its next thread was started.
                return;
            }
            while STATE.load(Ordering::Acquire) == ASLEEP {
                if !sleeps(ASLEEP, None) {
                    return;
                }
            }
        }
        seen = heap.activity();
    }
}

/// Sleeps while the state is `state`, at most `time`. Returns `false` if a lock-down of the program forbids that: the
/// thread ends.
fn sleeps(state: u32, time: Option<Duration>) -> bool {
    let slept = futex::private::wait(&raw const STATE, state, time).is_ok();
    if !slept {
        STATE.store(NEVER, Ordering::Relaxed);
    }
    slept
}
