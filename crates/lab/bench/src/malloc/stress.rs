//! Mixed loads after well-known stress programs: `larson`, a server whose threads hand their blocks to the threads that
//! follow them, and `mstress`, blocks of all sizes that migrate between threads, and are mostly freed by another.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::party;
use crate::stats::Measured;

/// A thread's part: works until `end` on its core, and counts.
type Work = fn(seed: u64, core: usize, end: Instant) -> Result<u64>;

/// Runs a load on two threads; the time of an operation, as both together count them, and the memory that it took.
pub fn run(work: Work, cores: [usize; 2], time: Duration) -> Result<Measured> {
    let before = status("VmRSS:")?;
    let begun = Instant::now();
    let counts = std::thread::scope(|scope| {
        let threads = [(1, cores[0]), (2, cores[1])]
            .map(|(seed, core)| scope.spawn(move || work(seed, core, begun + time)));
        threads.map(|thread| thread.join())
    });
    let mut operations = 0;
    for count in counts {
        operations += count.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    ensure!(operations > 0, "nothing was done in {time:?}");
    let rate = operations as f64 / begun.elapsed().as_secs_f64();
    let peak = (status("VmHWM:")? - before).max(0.0);
    Ok(Measured {
        facts: [("peak_bytes".into(), peak)].into(),
        ..Measured::rate(rate)
    })
}

/// 5000 blocks of 8 to 1000 bytes; each operation replaces one. Every 100,000 operations a new thread takes over.
pub fn larson(seed: u64, core: usize, end: Instant) -> Result<u64> {
    const BLOCKS: u64 = 5000;
    let mut random = Random(seed);
    let mut blocks: Vec<Block> = (0..BLOCKS)
        .map(|_| Block::new(8 + random.below(993)))
        .collect();
    let mut operations = 0;
    // Once at least, however late it came to run.
    while operations == 0 || Instant::now() < end {
        let life = std::thread::spawn(move || -> Result<_> {
            party::pin(core)?;
            for _ in 0..100_000 {
                blocks[index(random.below(BLOCKS))] = Block::new(8 + random.below(993));
            }
            Ok((blocks, random))
        });
        let ended = life.join();
        (blocks, random) = ended.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        operations += 100_000;
    }
    Ok(operations)
}

/// Each operation puts a new block into one of the slots that all threads share, and frees what was there: four of five up to
/// 512 bytes, one in a thousand up to 1 MiB.
pub fn mstress(seed: u64, core: usize, end: Instant) -> Result<u64> {
    const SLOTS: usize = 2048;
    static SHARED: [AtomicPtr<u8>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
    static USERS: AtomicU64 = AtomicU64::new(0);
    party::pin(core)?;
    USERS.fetch_add(1, Ordering::Relaxed);
    let swap = |slot: &AtomicPtr<u8>, block: *mut u8| {
        // Ordering: whoever takes a block out has seen it made.
        drop(Block(slot.swap(block, Ordering::AcqRel)));
    };
    let mut random = Random(seed);
    let mut operations = 0;
    // Once at least, however late it came to run.
    while operations == 0 || operations % 1000 > 0 || Instant::now() < end {
        let bytes = match random.below(1000) {
            0 => 1 + random.below(1 << 20),
            1..=20 => 1 + random.below(200 << 10),
            21..=200 => 1 + random.below(8 << 10),
            _ => 1 + random.below(512),
        };
        let slot = &SHARED[index(random.below(SLOTS as u64))];
        swap(slot, Block::new(bytes).into_raw());
        operations += 1;
    }
    if USERS.fetch_sub(1, Ordering::AcqRel) == 1 {
        SHARED.iter().for_each(|slot| swap(slot, ptr::null_mut()));
    }
    Ok(operations)
}

/// What malloc returned.
struct Block(*mut u8);

// SAFETY: memory of the heap, which any thread may use and free.
unsafe impl Send for Block {}

impl Block {
    /// A block each of whose pages was written.
    fn new(bytes: u64) -> Block {
        let bytes = index(bytes);
        // SAFETY: no precondition; what is written lies inside, if there is memory.
        unsafe {
            let at = libc::malloc(bytes).cast::<u8>();
            assert!(!at.is_null(), "malloc: out of memory");
            for page in (0..bytes).step_by(4096) {
                at.add(page).write_volatile(1);
            }
            Block(at)
        }
    }

    fn into_raw(self) -> *mut u8 {
        let at = self.0;
        std::mem::forget(self);
        at
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: from malloc, or null; nobody uses it any more.
        unsafe { libc::free(self.0.cast()) };
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // Weyl's sequence, mixed.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed >> 32) * end) >> 32
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("64-bit only")
}

/// A line of this process's status, bytes.
fn status(name: &str) -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<f64> =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    Ok(kib.context("no such line in /proc/self/status")? * 1024.0)
}
