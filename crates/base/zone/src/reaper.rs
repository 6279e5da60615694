//! Timekeeping for reclamation, the list of all managed zones, and the effects of a fork on them.
//!
//! Every [`period`](set_period) (a quarter of a second) each managed zone gives back three kinds of memory:
//!
//! - Items that lay in its depot untouched for two periods, beyond the working set: the most that was lately taken out
//!   of it.
//! - Items cached by threads that did nothing for four periods.
//! - The memory of its arena that has been free through a whole period.
//!
//! By default a thread of this process does it. The thread is started when a zone first caches something, and sleeps
//! without waking while no zone does. It has a small stack, and all signals are blocked. If it cannot be started, or
//! the program forbids it, the allocations and frees that leave their thread's cache keep time instead.
//!
//! **Fork.** The locks of all managed zones, kegs and arenas are taken before a fork and released after it, so the child
//! finds them whole. Private memory is copied with its contents, and both processes continue alone. Items that the
//! parent's other threads had cached go back in the child after a period. A cache whose thread was in the middle of an
//! allocation or free is lost to the child. Memory of a memfd is not inherited: the child must not touch items in it.

use crate::backend::Backend;
use crate::config::Level;
use crate::local::Reclaiming;
use crate::lock::Lock;
use crate::own_work::OwnWork;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::Duration;
use tranship_sys::{fork, futex, signals, time};

/// The component that keeps time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// A thread of this process.
    Thread,
    /// Allocations and frees that leave their thread's cache, on any thread. An idle process gives nothing back.
    Calls,
    /// No thread keeps time: the program calls [`period_over`].
    Nobody,
}

/// A backend whose zone takes part.
pub trait Managed: Backend {
    /// Runs actions that wait for a moment without locks.
    fn act(&self);
    /// Gives all free memory behind the zone to the system; returns the number of bytes.
    fn purge(&self) -> u64;
    /// Returns what other zones may share: the keg, and the arena, whose locks are taken after those of all kegs.
    fn shared(&self) -> [Arc<dyn Shared>; 2];
    /// Takes the backend's locks of a phase, before a fork.
    fn hold_for_fork(&self, phase: Phase);
    /// Releases them. `child`: this is the new process.
    ///
    /// # Safety
    /// `hold_for_fork` was called with this phase.
    unsafe fn release_after_fork(&self, phase: Phase, child: bool);
}

/// A part that several zones may share.
pub trait Shared: Send + Sync {
    /// Takes the part's locks before a fork.
    fn hold(&self);
    /// Releases them.
    ///
    /// # Safety
    /// `hold` was called.
    unsafe fn release(&self);
}

/// Order in which locks are taken: all zones' locks of a phase before any of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The backend's lock, under which it sets the zone's pressure.
    Pressure,
    /// The zone's lock of a thread that takes other threads' caches.
    Thief,
    /// The locks of the zone's caches.
    Caches,
    /// The lock of the zone's depot.
    Depot,
    /// The lock of the backend's limit.
    Limit,
}

/// A zone with its backend, whatever that is.
pub(crate) trait Member: Send + Sync {
    fn period(&self) -> bool;
    /// Says whether the program's allocator consists of the zone.
    fn is_allocator(&self) -> bool;
    fn drain(&self, level: Level);
    fn backend(&self) -> &dyn Managed;
    fn hold(&self, phase: Phase);
    /// # Safety
    /// `hold` was called with this phase.
    unsafe fn release(&self, phase: Phase, child: bool);
}

const PHASES: [Phase; 5] = [
    Phase::Pressure,
    Phase::Thief,
    Phase::Caches,
    Phase::Depot,
    Phase::Limit,
];

static ZONES: Lock<Vec<Weak<dyn Member>>> = Lock::new(Vec::new());
static DRIVER: AtomicU32 = AtomicU32::new(THREAD);
const THREAD: u32 = 0;
const CALLS: u32 = 1;
const NOBODY: u32 = 2;
static PERIOD_NS: AtomicU64 = AtomicU64::new(250_000_000);
/// Periods that are over.
static PERIODS: AtomicU64 = AtomicU64::new(0);
/// Whether items may be cached, so that a thread has to keep time. That thread sleeps on this word.
static ARMED: AtomicU32 = AtomicU32::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);
/// If calls keep time: when the period ends.
static DUE_NS: AtomicU64 = AtomicU64::new(0);
/// Changes when an action is wanted.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Set while a thread keeps time: one at a time.
static KEEPING: AtomicBool = AtomicBool::new(false);

/// Sets the component that keeps time from now on. A thread that was started already goes on sleeping until it is
/// needed again.
pub fn set_driver(driver: Driver) {
    let driver = match driver {
        Driver::Thread => THREAD,
        Driver::Calls => CALLS,
        Driver::Nobody => NOBODY,
    };
    DRIVER.store(driver, Ordering::Relaxed);
    ARMED.store(0, Ordering::Relaxed);
}

/// Changes the length of a period; at least a millisecond.
pub fn set_period(period: Duration) {
    let ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    PERIOD_NS.store(ns.max(1_000_000), Ordering::Relaxed);
}

/// Ends a period, for all zones. Returns whether there may be more to do after the next one.
pub fn period_over() -> bool {
    // Ordering: Acquire pairs with the release below.
    if KEEPING.swap(true, Ordering::Acquire) {
        return true;
    }
    PERIODS.fetch_add(1, Ordering::Relaxed);
    let work = OwnWork::begin();
    let reclaiming = Reclaiming::begin();
    let mut more = false;
    for zone in zones().iter().filter(|zone| !zone.is_allocator()) {
        more |= zone.period();
    }
    drop(reclaiming);
    drop(work);
    // Ordering: as any lock; pairs with the acquire above.
    KEEPING.store(false, Ordering::Release);
    more
}

/// Drains all managed zones of this process, and gives all free memory of their arenas back. It serves a process that is
/// short of memory now. Returns the number of bytes that went back to the system.
pub fn reclaim(level: Level) -> u64 {
    let _work = OwnWork::begin();
    let zones = zones();
    zones.iter().for_each(|zone| zone.drain(level));
    zones.iter().map(|zone| zone.backend().purge()).sum()
}

fn zones() -> Vec<Arc<dyn Member>> {
    let mut all = ZONES.lock();
    all.retain(|zone| zone.strong_count() > 0);
    all.iter().filter_map(Weak::upgrade).collect()
}

/// Returns the number of the present period.
#[must_use]
pub fn now() -> u64 {
    PERIODS.load(Ordering::Relaxed)
}

/// Makes later forks find the zones' common locks free, and those of zones that take part.
pub(crate) fn survive_forks() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // Without memory for the handlers a forked child may hang; the parent is as before.
        let _ = fork::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
    });
}

/// Lets a zone begin to take part.
pub(crate) fn join(zone: Weak<dyn Member>) {
    ZONES.lock().push(zone);
}

/// Makes sure that a thread keeps time, because something is cached. Called in slow paths, without locks.
#[inline]
pub(crate) fn arm() {
    if ARMED.load(Ordering::Relaxed) == 0 || DRIVER.load(Ordering::Relaxed) == CALLS {
        keep_time();
    }
}

#[cold]
fn keep_time() {
    match DRIVER.load(Ordering::Relaxed) {
        // Ordering: AcqRel pairs with the thread's loads and stores of the word.
        THREAD if ARMED.swap(1, Ordering::AcqRel) == 0 => {
            let _ = futex::private::wake(&raw const ARMED, 1);
            if !STARTED.swap(true, Ordering::Relaxed) && start().is_err() {
                set_driver(Driver::Calls);
            }
        }
        CALLS => {
            let (now, due) = (time::monotonic_ns(), DUE_NS.load(Ordering::Relaxed));
            let next = now + PERIOD_NS.load(Ordering::Relaxed);
            let mine = now >= due
                && DUE_NS
                    .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if mine && due > 0 {
                period_over();
            }
        }
        _ => {}
    }
}

fn start() -> std::io::Result<()> {
    signals::thread("tranship-zone", 128 << 10, run).map(drop)
}

fn run() {
    loop {
        let period = Duration::from_nanos(PERIOD_NS.load(Ordering::Relaxed));
        // Ordering: Acquire pairs with the swap in `keep_time`.
        if ARMED.load(Ordering::Acquire) == 0 {
            let _ = futex::private::wait(&raw const ARMED, 0, None);
            continue;
        }
        rest(period);
        if !period_over() {
            // A thread that caches something from here on finds the word 0 and sets it; items that were cached before
            // are found below.
            // Ordering: SeqCst: before the second look; its locks order it against the threads that cache (partner:
            // the swap in `keep_time`).
            ARMED.store(0, Ordering::SeqCst);
            if period_over() {
                ARMED.store(1, Ordering::SeqCst);
            }
        }
    }
}

/// Waits for a period, and acts whenever a thread asks for it.
fn rest(period: Duration) {
    let begun = std::time::Instant::now();
    loop {
        let wanted = WANTED.load(Ordering::Relaxed);
        act();
        let left = period.saturating_sub(begun.elapsed());
        if left.is_zero() {
            break;
        }
        let _ = futex::private::wait(&raw const WANTED, wanted, Some(left));
    }
}

/// Runs the zones' actions that need a thread without locks.
fn act() {
    zones().iter().for_each(|zone| zone.backend().act());
}

/// Asks for a zone's action soon. The caller holds no lock of a zone.
pub fn wake_to_act() {
    if DRIVER.load(Ordering::Relaxed) == THREAD {
        keep_time();
    }
    // The thread may not exist after all.
    if DRIVER.load(Ordering::Relaxed) == THREAD {
        WANTED.fetch_add(1, Ordering::Relaxed);
        let _ = futex::private::wake(&raw const WANTED, 1);
    } else {
        act();
    }
}

/// The locks that are held over a fork. Only the forking thread touches it, between `before_fork` and the release.
static HELD: Lock<Held> = Lock::new(Held {
    zones: Vec::new(),
    parts: Vec::new(),
});

struct Held {
    zones: Vec<Arc<dyn Member>>,
    /// Each shared part once.
    parts: Vec<Arc<dyn Shared>>,
}

/// Takes the locks of some zones, and of the parts that they share and that are not held yet.
fn hold_all(zones: &[Arc<dyn Member>], parts: &mut Vec<Arc<dyn Shared>>) {
    for phase in PHASES {
        zones.iter().for_each(|zone| zone.hold(phase));
    }
    // All kegs before any arena.
    for kind in 0..2 {
        for zone in zones {
            let part = zone.backend().shared()[kind].clone();
            if !parts
                .iter()
                .any(|held| std::ptr::addr_eq(Arc::as_ptr(held), Arc::as_ptr(&part)))
            {
                part.hold();
                parts.push(part);
            }
        }
    }
}

extern "C" fn before_fork() {
    let _work = OwnWork::begin();
    let mut held = HELD.lock();
    // No allocation from here on but these two, before any lock of a zone is held.
    let mut zones = zones();
    // Zones of an allocator come last: other zones allocate under their own locks.
    zones.sort_by_key(|zone| zone.is_allocator());
    let mut parts = Vec::with_capacity(2 * zones.len());
    let others = zones.partition_point(|zone| !zone.is_allocator());
    ZONES.hold();
    crate::registry::hold();
    crate::front::hold();
    hold_all(&zones[..others], &mut parts);
    hold_all(&zones[others..], &mut parts);
    *held = Held { zones, parts };
    std::mem::forget(held);
}

extern "C" fn after_fork_in_parent() {
    after_fork(false);
}

extern "C" fn after_fork_in_child() {
    STARTED.store(false, Ordering::Relaxed);
    ARMED.store(0, Ordering::Relaxed);
    KEEPING.store(false, Ordering::Relaxed);
    after_fork(true);
}

fn after_fork(child: bool) {
    let _work = OwnWork::begin();
    // SAFETY: `before_fork` left these locks held, and this is the thread that ran it, or its copy.
    let held = unsafe {
        let held = std::mem::replace(
            HELD.held(),
            Held {
                zones: Vec::new(),
                parts: Vec::new(),
            },
        );
        held.parts.iter().rev().for_each(|part| part.release());
        for phase in PHASES.into_iter().rev() {
            held.zones
                .iter()
                .for_each(|zone| zone.release(phase, child));
        }
        crate::front::release();
        crate::registry::release();
        ZONES.release();
        HELD.release();
        held
    };
    // The last of a zone or keg may go here, which takes locks.
    drop(held);
}
