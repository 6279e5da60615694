//! `threads`: blocks of one size taken and given back by several threads at once.
//!
//! | mode | work |
//! |---|---|
//! | `own` | each thread gives back its own blocks, 32 or 1024 at a time |
//! | `passed` | the next thread gives them back, 32 at a time |
//! | `moves` | one thread takes nearly all memory of the pool, gives it back, and then another thread takes as much |
//!
//! A thread is pinned to a processor in turn, so more threads than processors share them. `median_ns` is the processor
//! time of an allocation and its release, `per_second` the rate of all threads together. In `moves` both are of all
//! blocks together.

use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};

use super::process::{Given, check_preload, library, run_child};
use crate::bench::Bench;
use crate::clock;
use crate::options::{Common, size};
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::{FASTEST, Key};
use crate::stats::{Measured, median};
use crate::systems::allocators::{Allocator, MALLOCS, Malloc, Preload};
use crate::systems::tranship::Zones;

/// A packet's cluster, and a page.
const SIZES: [usize; 2] = [2048, 4096];
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Blocks that a thread holds at once.
const HELD: [usize; 2] = [LOT, 1024];
/// Blocks that one thread passes to the next at once.
const LOT: usize = 32;
/// Lots under way between two threads.
const UNDER_WAY: usize = 4;
/// Pause before another look whether there is room.
const PAUSE: Duration = Duration::from_micros(50);
/// Blocks of `moves`, and their size.
const MOVED: (usize, usize) = (256, 64 << 10);
/// Turns of `moves` in a run: those to warm up, and the others.
const TURNS: (usize, usize) = (2, 4);
/// Addresses of a zone.
const WINDOW: u64 = 1 << 30;

type Measure = fn(&Given) -> Result<Measured>;

/// An allocator in the list of all.
struct Entry {
    name: &'static str,
    preload: Option<Preload>,
    measure: Measure,
    /// Whether it can be measured in `moves`.
    is_pool: bool,
}

fn systems() -> Vec<Entry> {
    let entry = |name, measure: Measure| Entry {
        name,
        preload: None,
        measure,
        is_pool: false,
    };
    let pool = |name, measure: Measure| Entry {
        is_pool: true,
        ..entry(name, measure)
    };
    let mut all = vec![
        pool("tranship", |given| with(given, one_pool(given)?)),
        pool("tranship-each", |given| with(given, pool_each(given)?)),
        entry("zone", |given| with(given, one_zone(given)?)),
        entry("4.x", |given| with(given, one_list(given))),
    ];
    all.extend(MALLOCS.map(|(name, preload)| Entry {
        preload,
        ..entry(name, |given| with(given, mallocs(given)?))
    }));
    all
}

#[derive(Debug, clap::Args)]
pub struct Threads {
    /// Sizes in bytes [default: 2K,4K].
    #[arg(long, value_delimiter = ',', value_parser = size)]
    payload: Vec<usize>,
    /// Numbers of threads [default: 1,2,4,8].
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
}

impl Bench for Threads {
    const REFERENCES: &'static [&'static str] = &["glibc", FASTEST];

    fn systems(&self) -> Vec<&'static str> {
        systems().iter().map(|entry| entry.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let or = |given: &[usize], usual: &[usize]| match given {
            [] => common.some_of(usual),
            some => some.to_vec(),
        };
        let (sizes, threads) = (or(&self.payload, &SIZES), or(&self.threads, &THREADS));
        let mut outcome = Outcome::default();
        let wanted = systems().into_iter().filter(|e| common.wants(e.name));
        let ready: Vec<_> = wanted
            .filter_map(|entry| {
                let library = library(entry.name, entry.preload)?;
                Some((entry, library))
            })
            .collect();
        let mut group = |mode: &'static str, bytes, held, threads: usize| {
            let processors = common.processors();
            let key = Key::of(mode).payload(bytes).with("buffers", held);
            let key = key
                .with("cores", processors.len().min(threads))
                .with("threads", threads);
            let able = ready.iter().filter(|(e, _)| e.is_pool || mode != "moves");
            let cells = able.map(|(entry, library)| {
                let given = Given {
                    system: entry.name.to_owned(),
                    mode: mode.to_owned(),
                    bytes,
                    buffers: held,
                    threads,
                    cores: processors.clone(),
                    sample_ms: common.sample_ms().min(50),
                    ns_per_tick: clock::ns(1),
                };
                Cell::of(entry.name, key.clone(), move |_| {
                    Ok(vec![run_child(&given, library.as_ref())?])
                })
            });
            outcome.group(common.runs(), cells.collect());
        };
        for &bytes in &sizes {
            for &threads in &threads {
                for held in common.some_of(&HELD) {
                    group("own", bytes, held, threads);
                }
                group("passed", bytes, LOT, threads);
            }
        }
        group("moves", MOVED.1, MOVED.0, 2);
        Ok(outcome)
    }
}

/// The process's side.
pub(super) fn measure(given: &Given) -> Result<Measured> {
    let entry = systems().into_iter().find(|e| e.name == given.system);
    let entry = entry.with_context(|| format!("no allocator {}", given.system))?;
    check_preload(entry.preload)?;
    (entry.measure)(given)
}

/// Measures with an allocator for each thread.
fn with<A: Allocator + Send>(given: &Given, each: Vec<A>) -> Result<Measured> {
    match &*given.mode {
        "own" => rate(given, each, |of, lap| own(of, given.buffers, lap)),
        "passed" => {
            let (mut to, from): (Vec<_>, Vec<_>) =
                each.iter().map(|_| sync_channel(UNDER_WAY)).unzip();
            to.rotate_left(1);
            let ends = to.into_iter().zip(from);
            let each = each.into_iter().zip(ends).collect();
            rate(given, each, |(of, (to, from)), lap| {
                passed(of, to, &from, lap)
            })
        }
        _ => moves(given, each),
    }
}

/// A thread's clock: how long it goes on, and what it has done since it is warm.
struct Lap {
    warm: u64,
    end: u64,
    pairs: u64,
    /// Processor time when it was warm, ns.
    since_ns: Option<u64>,
}

impl Lap {
    /// Counts pairs of allocation and release. Returns whether the time is over, and some were counted.
    fn count(&mut self, pairs: usize) -> bool {
        let now = clock::ticks();
        match self.since_ns {
            Some(_) => self.pairs += pairs as u64,
            None if now >= self.warm => self.since_ns = Some(processor_ns()),
            None => {}
        }
        now >= self.end && self.pairs > 0
    }
}

/// Processor time of this thread, ns.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Runs a thread with each part, and returns the processor time of a pair and the rate of all.
fn rate<P: Send>(
    given: &Given,
    parts: Vec<P>,
    run: impl Fn(P, &mut Lap) -> Result<()> + Sync,
) -> Result<Measured> {
    let budget = clock::in_ticks(Duration::from_millis(given.sample_ms));
    let (start, run) = (&Barrier::new(parts.len()), &run);
    let laps: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let thread = |(core, part): (&usize, P)| {
            let core = *core;
            scope.spawn(move || -> Result<(u64, u64)> {
                party::pin(core)?;
                start.wait();
                let begun = clock::ticks();
                let mut lap = Lap {
                    warm: begun + budget / 4,
                    end: begun + budget * 5 / 4,
                    pairs: 0,
                    since_ns: None,
                };
                run(part, &mut lap)?;
                let since = lap.since_ns.context("no samples")?;
                Ok((lap.pairs, processor_ns() - since))
            })
        };
        let threads: Vec<_> = given.cores.iter().cycle().zip(parts).map(thread).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|lap| lap.map_err(|_| anyhow!("a thread panicked"))?)
            .collect::<Result<_>>()
    })?;
    let pairs: u64 = laps.iter().map(|lap| lap.0).sum();
    let spent: u64 = laps.iter().map(|lap| lap.1).sum();
    let per_second = pairs as f64 / (clock::ns(budget) / 1e9);
    let each_ns = spent as f64 / pairs as f64;
    Ok(Measured {
        median_ns: each_ns,
        p99_ns: each_ns,
        ..Measured::rate(per_second)
    })
}

fn take<A: Allocator>(of: &mut A) -> Result<A::Held> {
    let mut held = of.alloc()?;
    std::hint::black_box(A::address(&mut held));
    Ok(held)
}

fn own<A: Allocator>(mut of: A, held: usize, lap: &mut Lap) -> Result<()> {
    let mut blocks = Vec::with_capacity(held);
    loop {
        for _ in 0..held {
            blocks.push(take(&mut of)?);
        }
        blocks.drain(..).try_for_each(|block| of.free(block))?;
        if lap.count(held) {
            return Ok(());
        }
    }
}

/// A block on its way to another thread.
struct Passed<T>(T);

// SAFETY: every allocator here lets any thread give a block back.
unsafe impl<T> Send for Passed<T> {}

type Lot<T> = [Option<Passed<T>>; LOT];

fn passed<A: Allocator>(
    mut of: A,
    to: SyncSender<Lot<A::Held>>,
    from: &Receiver<Lot<A::Held>>,
    lap: &mut Lap,
) -> Result<()> {
    let free = |of: &mut A, lot: Lot<A::Held>| {
        let mut blocks = lot.into_iter().flatten();
        blocks.try_for_each(|block| of.free(block.0))
    };
    loop {
        let mut lot: Lot<A::Held> = std::array::from_fn(|_| None);
        for place in &mut lot {
            *place = Some(Passed(take(&mut of)?));
        }
        loop {
            while let Ok(came) = from.try_recv() {
                free(&mut of, came)?;
            }
            match to.try_send(lot) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => lot = back,
                // The next thread failed, and says why.
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
            // The next thread is late. It does not wait for this one as long as something is there for it.
            match from.recv_timeout(PAUSE) {
                Ok(came) => free(&mut of, came)?,
                Err(_) => std::thread::yield_now(),
            }
        }
        if lap.count(LOT) {
            break;
        }
    }
    drop(to);
    for came in from {
        free(&mut of, came)?;
    }
    Ok(())
}

/// Two threads take and give back all blocks in turn.
fn moves<A: Allocator + Send>(given: &Given, each: Vec<A>) -> Result<Measured> {
    let turn = &Barrier::new(each.len());
    let count = each.len();
    let times: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
        let thread = |((me, core), mut of): ((usize, &usize), A)| {
            let core = *core;
            scope.spawn(move || -> Result<Vec<f64>> {
                let mut times = Vec::new();
                let mut failed = party::pin(core).err();
                let mut blocks = Vec::with_capacity(given.buffers);
                for number in 0..TURNS.0 + TURNS.1 {
                    if number % count == me && failed.is_none() {
                        let begun = Instant::now();
                        for _ in 0..given.buffers {
                            match take(&mut of) {
                                Ok(block) => blocks.push(block),
                                Err(error) => failed = Some(error),
                            }
                        }
                        if number >= TURNS.0 {
                            times.push(begun.elapsed().as_secs_f64() * 1e9);
                        }
                        blocks.drain(..).try_for_each(|block| of.free(block))?;
                    }
                    turn.wait();
                }
                failed.map_or(Ok(times), Err)
            })
        };
        let cores = given.cores.iter().cycle().enumerate();
        let threads: Vec<_> = cores.zip(each).map(thread).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|times| times.map_err(|_| anyhow!("a thread panicked"))?)
            .collect()
    });
    let times: Vec<f64> = times.into_iter().collect::<Result<Vec<_>>>()?.concat();
    Ok(Measured {
        p99_ns: times.iter().copied().fold(0.0, f64::max),
        ..Measured::rate(1e9 / median(times))
    })
}

/// Memory of a pool in `moves`: what is taken, and an eighth for what is not given out at once.
fn pool_bytes(given: &Given) -> Option<u64> {
    let bytes = (given.bytes * given.buffers) as u64;
    (given.mode == "moves").then_some(bytes + bytes / 8)
}

fn one_pool(given: &Given) -> Result<Vec<Zones>> {
    Zones::shared(given.bytes, given.threads, pool_bytes(given))
}

fn pool_each(given: &Given) -> Result<Vec<Zones>> {
    Zones::each(given.bytes, given.threads, pool_bytes(given))
}

fn mallocs(given: &Given) -> Result<Vec<Malloc>> {
    (0..given.threads)
        .map(|_| Malloc::open(given.bytes))
        .collect()
}

/// A handle of a zone: UMA's allocator in the process's own memory.
#[derive(Clone)]
struct Items(Arc<ItemZone<Bytes>>);

fn one_zone(given: &Given) -> Result<Vec<Items>> {
    let arena = Arc::new(Arena::private(WINDOW)?);
    let keg = ItemKeg::new(&arena, given.bytes as u64, given.bytes as u64)?;
    let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("blocks"));
    Ok(vec![Items(Arc::new(zone)); given.threads])
}

impl Allocator for Items {
    type Held = NonNull<u8>;

    fn open(_: usize) -> Result<Self> {
        Err(anyhow!("threads share a zone"))
    }

    #[inline]
    fn alloc(&mut self) -> Result<Self::Held> {
        self.0.alloc(()).context("out of memory")
    }

    fn address(held: &mut Self::Held) -> *mut u8 {
        held.as_ptr()
    }

    #[inline]
    fn free(&mut self, held: Self::Held) -> Result<()> {
        // SAFETY: it came from this zone, and is given back once.
        unsafe { self.0.free(held) };
        Ok(())
    }
}

/// A handle of the allocator of FreeBSD 4.x, made anew: a list of free blocks under a lock.
#[derive(Clone)]
struct List {
    free: Arc<Mutex<Vec<Passed<NonNull<libc::c_void>>>>>,
    of: usize,
}

fn one_list(given: &Given) -> Vec<List> {
    let list = List {
        free: Arc::default(),
        of: given.bytes,
    };
    vec![list; given.threads]
}

impl Allocator for List {
    type Held = NonNull<libc::c_void>;

    fn open(_: usize) -> Result<Self> {
        Err(anyhow!("threads share a list"))
    }

    fn alloc(&mut self) -> Result<Self::Held> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        match free.pop() {
            Some(block) => Ok(block.0),
            None => Malloc::open(self.of)?.alloc(),
        }
    }

    fn address(held: &mut Self::Held) -> *mut u8 {
        held.as_ptr().cast()
    }

    fn free(&mut self, held: Self::Held) -> Result<()> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(Passed(held));
        Ok(())
    }
}
