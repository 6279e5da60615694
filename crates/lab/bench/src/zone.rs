//! `zone`: item zones against the malloc family: one thread, two threads, how much more two do than one beside what the machine
//! allows, and items freed on another thread.
//!
//! Each run is a fresh process of this program with the allocator under test preloaded.

use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::alloc;
use crate::clock;
use crate::options::Common;
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::scaling;
use crate::stats::{Measured, Samples};
use crate::systems::heaps::{self, Heap, HeapEntry};

/// Operations that one sample covers.
const BATCH: u32 = 64;
/// Sizes when none are asked for.
const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16 << 10, 64 << 10];
/// Items that are out at once where several are.
const HELD: usize = 32;
/// Items on their way from one thread to the other.
const RING: usize = 1024;

/// What is done with the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    name: &'static str,
    mode: &'static str,
    buffers: Option<usize>,
    threads: usize,
}

const WORKS: [Work; 5] = [
    Work {
        name: "one",
        mode: "hot",
        buffers: Some(1),
        threads: 1,
    },
    Work {
        name: "many",
        mode: "hot",
        buffers: Some(HELD),
        threads: 1,
    },
    Work {
        name: "two",
        mode: "hot",
        buffers: Some(1),
        threads: 2,
    },
    Work {
        name: "scaling",
        mode: "scaling",
        buffers: Some(1),
        threads: 2,
    },
    Work {
        name: "cross",
        mode: "cross",
        buffers: Some(RING),
        threads: 2,
    },
];

pub fn names() -> Vec<&'static str> {
    heaps::all().iter().map(|entry| entry.name).collect()
}

pub fn bench(common: &Common, sizes: &[usize]) -> Outcome {
    let sizes = if sizes.is_empty() { &SIZES[..] } else { sizes };
    let ready: Vec<_> = heaps::all()
        .into_iter()
        .filter(|entry| common.wants(entry.name))
        .filter_map(|entry| Some((entry, alloc::library(entry.name, entry.preload)?)))
        .collect();
    let mut outcome = Outcome::default();
    for work in WORKS {
        for bytes in &common.some_of(sizes) {
            let cells = ready.iter().map(|(entry, library)| Cell {
                system: entry.name,
                key: Key {
                    mode: work.mode,
                    payload_bytes: Some(*bytes),
                    buffers: work.buffers,
                    threads: Some(work.threads),
                    ..Key::default()
                },
                measure: Box::new(move |_| {
                    let [a, b] = common.cores();
                    let arguments = [
                        "zone-child",
                        entry.name,
                        work.name,
                        &bytes.to_string(),
                        &a.to_string(),
                        &b.to_string(),
                        &common.sample_ms().min(20).to_string(),
                    ]
                    .map(str::to_owned);
                    if work.name == "scaling" {
                        let said: scaling::Said = alloc::run_child(&arguments, library.as_ref())?;
                        return Ok(vec![with_ratios(said)]);
                    }
                    alloc::run_child(&arguments, library.as_ref())
                }),
            });
            outcome.group(common.runs(), cells.collect());
        }
    }
    outcome
}

/// The process's side: measures, and prints what it measured.
pub fn child(system: &str, work: &str, bytes: usize, cores: [usize; 2], ms: u64) -> Result<()> {
    alloc::adopt_clock();
    let entry = heaps::all().into_iter().find(|entry| entry.name == system);
    let entry: HeapEntry = entry.with_context(|| format!("no allocator {system}"))?;
    alloc::check_preload(entry.preload)?;
    let heap = (entry.open)(bytes)?;
    let budget = clock::in_ticks(Duration::from_millis(ms));
    let measured = match work {
        "one" => single(&*heap, cores[0], budget, 1)?,
        "many" => single(&*heap, cores[0], budget, HELD)?,
        "two" => double(&*heap, cores, budget)?,
        "cross" => cross(&*heap, cores, budget)?,
        "scaling" => {
            // A round takes 2 ms.
            let said = scaling::measure(&*heap, &*heaps::raw(bytes), cores, 1 + ms / 2)?;
            println!("{}", serde_json::to_string(&said)?);
            return Ok(());
        }
        _ => bail!("no work {work}"),
    };
    println!("{}", serde_json::to_string(&[measured])?);
    Ok(())
}

fn with_ratios(said: scaling::Said) -> Measured {
    let facts = [
        ("times_one_thread", said.times_one_thread),
        ("raw_times_one_thread", said.raw_times_one_thread),
        ("of_raw", said.of_raw),
    ];
    Measured {
        facts: facts.into_iter().collect(),
        ..said.measured
    }
}

pub fn single(heap: &dyn Heap, core: usize, budget: u64, held: usize) -> Result<Measured> {
    party::pin(core)?;
    let mut samples = Samples::new(1 << 18, BATCH);
    let begun = clock::ticks();
    loop {
        let before = clock::ticks();
        heap.pairs(BATCH as usize, held);
        let now = clock::ticks();
        let warm = now - begun < budget / 4;
        if !warm && !samples.push(now - before) || now - begun > budget * 5 / 4 {
            break;
        }
    }
    samples.finish("").context("no samples")
}

/// Two threads at once, on two cores; what is reported is the time of a pair as the pairs of both are counted.
fn double(heap: &dyn Heap, cores: [usize; 2], budget: u64) -> Result<Measured> {
    let barrier = &Barrier::new(2);
    let both = std::thread::scope(|scope| {
        let threads = cores.map(|core| {
            scope.spawn(move || {
                party::pin(core)?;
                // Both are running before either measures.
                heap.pairs(BATCH as usize, 1);
                barrier.wait();
                single(heap, core, budget, 1)
            })
        });
        threads.map(|thread| thread.join())
    });
    let mut all = Vec::new();
    for one in both {
        all.push(one.map_err(|_| anyhow::anyhow!("a thread panicked"))??);
    }
    // A pair of either thread, every so often.
    let together = |of: fn(&Measured) -> f64| 1.0 / all.iter().map(|m| 1.0 / of(m)).sum::<f64>();
    Ok(Measured {
        op: String::new(),
        median_ns: together(|m| m.median_ns),
        p99_ns: together(|m| m.p99_ns),
        per_second: all.iter().map(|m| m.per_second).sum(),
        facts: Default::default(),
        sampled: None,
    })
}

/// One thread allocates and writes a word, the other reads it and frees.
pub fn cross(heap: &dyn Heap, cores: [usize; 2], budget: u64) -> Result<Measured> {
    let ring = &Ring::new();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let producer = scope.spawn(move || -> Result<()> {
            party::pin(cores[0])?;
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let item = heap.take().context("out of memory")?;
                // SAFETY: ours, of at least 8 bytes, aligned.
                unsafe { item.cast::<u64>().write(number) };
                number += 1;
                ring.push(item);
            }
            ring.end();
            Ok(())
        });
        party::pin(cores[1])?;
        let mut samples = Samples::new(1 << 18, BATCH);
        let (begun, mut before) = (clock::ticks(), clock::ticks());
        let (mut number, mut wrong) = (0, false);
        while let Some(item) = ring.pop() {
            // SAFETY: handed over by the producer, which wrote the word.
            unsafe {
                wrong |= item.cast::<u64>().read() != number;
                heap.give(item);
            }
            number += 1;
            if number % u64::from(BATCH) == 0 && !stop.load(Ordering::Relaxed) {
                let now = clock::ticks();
                let warm = now - begun < budget / 4;
                if !warm && !samples.push(now - before) || now - begun > budget * 5 / 4 {
                    stop.store(true, Ordering::Relaxed);
                }
                before = now;
            }
        }
        ensure!(!wrong, "an item arrived with other bytes");
        producer
            .join()
            .map_err(|_| anyhow::anyhow!("the producer panicked"))??;
        samples.finish("").context("no samples")
    })
}

/// One producer, one consumer, pointers.
struct Ring {
    cells: Vec<AtomicUsize>,
    head: Padded,
    tail: Padded,
    ended: AtomicBool,
}

#[repr(align(128))]
struct Padded(AtomicU64);

impl Ring {
    fn new() -> Self {
        Self {
            cells: (0..RING).map(|_| AtomicUsize::new(0)).collect(),
            head: Padded(AtomicU64::new(0)),
            tail: Padded(AtomicU64::new(0)),
            ended: AtomicBool::new(false),
        }
    }

    fn cell(&self, at: u64) -> &AtomicUsize {
        #[allow(clippy::cast_possible_truncation, reason = "below the ring's length")]
        let at = (at % RING as u64) as usize;
        &self.cells[at]
    }

    /// Waits for room.
    fn push(&self, item: NonNull<u8>) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Ordering: acquire pairs with the release in `pop`: the cell is free.
        while tail - self.head.0.load(Ordering::Acquire) == RING as u64 {
            std::hint::spin_loop();
        }
        self.cell(tail)
            .store(item.as_ptr().expose_provenance(), Ordering::Relaxed);
        // Ordering: release pairs with the acquire in `pop`: the cell and the item's word.
        self.tail.0.store(tail + 1, Ordering::Release);
    }

    fn end(&self) {
        // Ordering: release pairs with the acquire in `pop`: all items before it.
        self.ended.store(true, Ordering::Release);
    }

    /// Waits for an item; `None` once it has ended and is empty.
    fn pop(&self) -> Option<NonNull<u8>> {
        let head = self.head.0.load(Ordering::Relaxed);
        loop {
            // Ordering: acquire pairs with the release in `end`, read before the tail.
            let ended = self.ended.load(Ordering::Acquire);
            // Ordering: acquire pairs with the release in `push`.
            if self.tail.0.load(Ordering::Acquire) > head {
                break;
            }
            if ended {
                return None;
            }
            std::hint::spin_loop();
        }
        let address = self.cell(head).load(Ordering::Relaxed);
        // Ordering: release pairs with the acquire in `push`.
        self.head.0.store(head + 1, Ordering::Release);
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }
}
