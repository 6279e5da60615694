//! Many threads allocate and free, across each other and across their own ends, after the well-known stress programs:
//! `larson` (a server whose threads hand their blocks to the threads that follow them) and `mstress` (blocks that
//! migrate, and a few that stay). Every block carries its own mark, which is looked at before it is freed.

use crate::common::{MIB, Stage, dog, resident};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use tranship_testkit::{Control, Random, child};

/// A block, with its mark in the first and last bytes.
struct Marked(Vec<u8>);

fn mark(len: usize, seed: u64) -> [u8; 8] {
    (seed ^ (len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()
}

impl Marked {
    fn new(random: &mut Random) -> Marked {
        // Mostly small, sometimes pages, rarely a mapping.
        let len = match random.below(1000) {
            0 => 1 + random.below(3 << 20),
            1..=20 => 1 + random.below(200 << 10),
            21..=200 => 1 + random.below(8 << 10),
            _ => 1 + random.below(512),
        };
        let len = usize::try_from(len).expect("small") + 16;
        let zeroed = random.below(4) == 0;
        let mut block = if zeroed {
            vec![0; len]
        } else {
            Vec::with_capacity(len)
        };
        if zeroed {
            assert!(
                block.iter().all(|b| *b == 0),
                "calloc gave {len} bytes that are not 0"
            );
        }
        block.resize(len, 0);
        let seed = random.next();
        let tag = mark(len, seed);
        block[..8].copy_from_slice(&tag);
        block[len - 8..].copy_from_slice(&tag);
        Marked(block)
    }

    fn grow(&mut self, random: &mut Random) {
        self.check();
        let (old, more) = (
            self.0.len(),
            usize::try_from(random.below(4096)).expect("small"),
        );
        let tag = self.0[..8].to_vec();
        self.0.reserve_exact(more);
        assert_eq!(self.0[..8], tag);
        assert_eq!(self.0[old - 8..], tag);
    }

    fn check(&self) {
        let len = self.0.len();
        assert_eq!(
            self.0[..8],
            self.0[len - 8..],
            "a block of {len} bytes was written by somebody else"
        );
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.check();
    }
}

child!(
    /// Each thread works on its blocks for a while, starts its successor with them, and ends.
    fn larson(ctl: Control) -> Result<(), String> {
        fn server(mut blocks: Vec<Marked>, seed: u64, lives: u32) {
            let mut random = Random::seeded(seed);
            for _ in 0..4000 {
                let at = usize::try_from(random.below(blocks.len() as u64)).expect("small");
                match random.below(16) {
                    0 => blocks[at].grow(&mut random),
                    _ => blocks[at] = Marked::new(&mut random),
                }
            }
            if lives > 0 {
                let next = random.next();
                thread::spawn(move || server(blocks, next, lives - 1))
                    .join()
                    .expect("server");
            }
        }
        let (seed, threads, lives): (u64, u64, u32) =
            ctl.recv().map_err(|e| e.to_string())?.ok_or("no task")?;
        let servers: Vec<_> = (0..threads)
            .map(|n| {
                let mut random = Random::seeded(seed + n);
                let blocks: Vec<Marked> = (0..300).map(|_| Marked::new(&mut random)).collect();
                thread::spawn(move || server(blocks, seed ^ n, lives))
            })
            .collect();
        servers.into_iter().for_each(|s| s.join().expect("server"));
        ctl.send(&resident()).map_err(|e| e.to_string())?;
        // Until the books have been looked at.
        ctl.recv::<u8>().map(drop).map_err(|e| e.to_string())
    }
);

child!(
    /// Threads put blocks into shared slots, and take blocks that other threads put there.
    fn mstress(ctl: Control) -> Result<(), String> {
        static SLOTS: [AtomicPtr<Marked>; 512] =
            [const { AtomicPtr::new(std::ptr::null_mut()) }; 512];
        let take = |slot: &AtomicPtr<Marked>, block: *mut Marked| {
            let old = slot.swap(block, Ordering::AcqRel);
            // SAFETY: a slot's contents were leaked from a box, and the thread that swaps it out owns it.
            (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
        };
        let (seed, threads, rounds): (u64, u64, u32) =
            ctl.recv().map_err(|e| e.to_string())?.ok_or("no task")?;
        for round in 0..rounds {
            thread::scope(|scope| {
                for n in 0..threads {
                    scope.spawn(move || {
                        let mut random = Random::seeded(seed + u64::from(round) * 1000 + n);
                        let mut kept: Vec<Marked> = Vec::new();
                        for _ in 0..6000 {
                            match random.below(8) {
                                0 => kept.push(Marked::new(&mut random)),
                                1 => drop(kept.pop()),
                                _ => {
                                    let block = Box::new(Marked::new(&mut random));
                                    let slot =
                                        &SLOTS[usize::try_from(random.below(512)).expect("small")];
                                    drop(take(slot, Box::into_raw(block)));
                                }
                            }
                        }
                    });
                }
            });
        }
        for slot in &SLOTS {
            drop(take(slot, std::ptr::null_mut()));
        }
        ctl.send(&resident()).map_err(|e| e.to_string())?;
        // Until the books have been looked at.
        ctl.recv::<u8>().map(drop).map_err(|e| e.to_string())
    }
);

fn torture() -> bool {
    std::env::var_os("TRANSHIP_TORTURE").is_some()
}

#[test]
fn threads_that_end_leave_their_blocks_to_others() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let seed = Random::printed("stress").next();
    let lives = if torture() { 200 } else { 6 };
    let peer = stage.under(larson()).start().expect("start");
    let resident: u64 = peer.ask(&(seed, 4u64, lives));
    let heap = stage.only_heap();
    assert!(
        heap.admitted_bytes < 400 * MIB,
        "{heap:?} ({resident} resident)"
    );
    drop(peer);
    stage.wait_until_empty();
}

#[test]
fn blocks_that_others_free_come_back() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let seed = Random::printed("stress").next();
    let rounds = if torture() { 100 } else { 4 };
    let peer = stage.under(mstress()).start().expect("start");
    let resident: u64 = peer.ask(&(seed, 4u64, rounds));
    let heap = stage.only_heap();
    // Everything is freed. The rest is in caches, whose size depends on the loads of several threads at once, and in
    // freed pages, 16 MiB at most (docs/malloc.md): 15 to 30 MiB, depending on the interleaving of the threads.
    assert!(
        heap.admitted_bytes < 40 * MIB,
        "{heap:?} ({resident} resident)"
    );
    assert!(resident < 64 * MIB, "{resident}");
    drop(peer);
    stage.wait_until_empty();
}
