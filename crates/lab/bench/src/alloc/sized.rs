//! Blocks of one size: taken and given back by one thread, and taken by one thread and given back by another.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};

use crate::clock;
use crate::party;
use crate::stats::{Measured, Samples, hot};

/// Operations that one sample covers.
const BATCH: u32 = 64;

/// Items on their way from one thread to the other.
const RING: usize = 1024;

/// Blocks of one size, of whichever malloc this process has.
struct Blocks {
    bytes: usize,
}

impl Blocks {
    fn take(&self) -> Option<NonNull<u8>> {
        // SAFETY: no precondition. The size is shown as unknown, or the compiler might drop the pair.
        NonNull::new(unsafe { libc::malloc(std::hint::black_box(self.bytes)) }.cast())
    }

    /// # Safety
    /// It came from `take`, of any thread, and is given back once.
    unsafe fn give(&self, block: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { libc::free(block.as_ptr().cast()) };
    }

    /// Takes and gives back, `count` times in all, `held` at once.
    fn pairs(&self, count: usize, held: usize) {
        let mut blocks = [NonNull::dangling(); 64];
        let blocks = &mut blocks[..held.min(64)];
        for _ in 0..count / blocks.len() {
            let take = || std::hint::black_box(self.take().expect("malloc: out of memory"));
            blocks.iter_mut().for_each(|block| *block = take());
            for block in blocks.iter() {
                // SAFETY: each was taken just now.
                unsafe { self.give(*block) };
            }
        }
    }
}

/// One thread takes and gives back, `held` at once.
pub fn single(bytes: usize, budget: u64, held: usize) -> Result<Measured> {
    let blocks = Blocks { bytes };
    hot(budget, BATCH, || {
        blocks.pairs(BATCH as usize, held);
        Ok(())
    })
}

/// One thread allocates and writes a word, the other reads it and frees.
pub fn cross(bytes: usize, cores: [usize; 2], budget: u64) -> Result<Measured> {
    let blocks = &Blocks { bytes };
    let ring = &Ring::new();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let producer = scope.spawn(move || -> Result<()> {
            party::pin(cores[0])?;
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let item = blocks.take().context("out of memory")?;
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
                blocks.give(item);
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
