//! Blocks that one thread takes and another gives back.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use anyhow::{Context, Result, anyhow, ensure};

use crate::clock;
use crate::party;
use crate::stats::{Measured, Samples};
use crate::systems::allocators::{Allocator, Malloc};

/// Pairs of alloc and free that one sample covers.
pub const BATCH: u32 = 64;
/// Blocks on their way. A null cell is room.
const RING: usize = 1024;
/// The word of the last block.
const END: u64 = u64::MAX;

/// One thread allocates and writes a word, the other reads it and frees.
pub fn measure(bytes: usize, cores: [usize; 2], budget: u64) -> Result<Measured> {
    let ring = &[const { AtomicPtr::<u64>::new(null_mut()) }; RING];
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let producer = scope.spawn(move || -> Result<()> {
            party::pin(cores[0])?;
            let mut malloc = Malloc::open(bytes)?;
            for (number, cell) in (0..).zip(ring.iter().cycle()) {
                let is_last = stop.load(Ordering::Relaxed);
                let item = malloc.alloc()?.cast::<u64>();
                // SAFETY: ours, of at least 8 bytes, aligned.
                unsafe { item.write(if is_last { END } else { number }) };
                // Ordering: acquire; partner: the release that empties the cell.
                while !cell.load(Ordering::Acquire).is_null() {
                    std::hint::spin_loop();
                }
                // Ordering: release, after the item's word; partner: the acquire of the consumer.
                cell.store(item.as_ptr(), Ordering::Release);
                if is_last {
                    break;
                }
            }
            Ok(())
        });
        party::pin(cores[1])?;
        let mut malloc = Malloc::open(bytes)?;
        let mut samples = Samples::new(1 << 18, BATCH);
        let (begun, mut before) = (clock::ticks(), clock::ticks());
        for (number, cell) in (0..).zip(ring.iter().cycle()) {
            let item = loop {
                // Ordering: acquire; partner: the producer's release.
                match NonNull::new(cell.load(Ordering::Acquire)) {
                    Some(item) => break item,
                    None => std::hint::spin_loop(),
                }
            };
            // Ordering: release; partner: the producer's acquire.
            cell.store(null_mut(), Ordering::Release);
            // SAFETY: handed over by the producer, which wrote the word.
            let word = unsafe { item.read() };
            malloc.free(item.cast())?;
            if word == END {
                break;
            }
            ensure!(word == number, "an item arrived with other bytes");
            if (number + 1) % u64::from(BATCH) == 0 && !stop.load(Ordering::Relaxed) {
                let now = clock::ticks();
                let warm = now - begun < budget / 4;
                let is_full = !warm && !samples.push(now - before);
                if is_full || now - begun > budget * 5 / 4 && samples.are_enough() {
                    stop.store(true, Ordering::Relaxed);
                }
                before = now;
            }
        }
        let produced = producer.join();
        produced.map_err(|_| anyhow!("the producer panicked"))??;
        samples.finish("").context("no samples")
    })
}
