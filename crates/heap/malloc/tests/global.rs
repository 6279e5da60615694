//! The allocator of a Rust program that has zones of its own. Their allocations under their locks come from the zones
//! of the heap, the thread that keeps time for them runs beside, and the whole program is forked.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone, reaper};
use tranship_malloc::Tranship;
use tranship_testkit::{Random, Watchdog};

#[global_allocator]
static ALLOCATOR: Tranship = Tranship;

#[test]
fn layouts_are_kept_and_contents_survive_reallocation() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("global");
    for _ in 0..20_000 {
        let large = random.one_in(100);
        let align = 1 << random.below(if large { 18 } else { 8 });
        let most = if random.one_in(200) { 4 << 20 } else { 5000 };
        let bytes = usize::try_from(1 + random.below(most)).expect("small");
        let layout = Layout::from_size_align(bytes, align).expect("a layout");
        let more = usize::try_from(1 + random.below(2 * most)).expect("small");
        // SAFETY: sizes that are not 0; the bytes read and written are inside the blocks.
        unsafe {
            let zeroed = random.one_in(2);
            let block = if zeroed {
                ALLOCATOR.alloc_zeroed(layout)
            } else {
                ALLOCATOR.alloc(layout)
            };
            assert!(
                !block.is_null() && block.addr().is_multiple_of(align),
                "{layout:?}"
            );
            if zeroed {
                assert!(
                    std::slice::from_raw_parts(block, bytes)
                        .iter()
                        .all(|b| *b == 0)
                );
            }
            block.write_bytes(0x5a, bytes);
            let block = ALLOCATOR.realloc(block, layout, more);
            assert!(
                !block.is_null() && block.addr().is_multiple_of(align),
                "{layout:?} to {more}"
            );
            let kept = std::slice::from_raw_parts(block, bytes.min(more));
            assert!(kept.iter().all(|b| *b == 0x5a), "{layout:?} to {more}");
            ALLOCATOR.dealloc(
                block,
                Layout::from_size_align(more, align).expect("a layout"),
            );
        }
    }
}

#[test]
fn what_can_never_be_is_null() {
    let huge = Layout::from_size_align(1 << 48, 1 << 12).expect("a layout");
    // SAFETY: a null pointer is not used.
    unsafe { assert!(ALLOCATOR.alloc(huge).is_null()) };
    let mut vec: Vec<u8> = vec![1; 100];
    assert!(vec.try_reserve_exact(1 << 48).is_err());
    assert_eq!(vec, [1; 100]);
}

#[test]
fn zones_beside_the_heap_and_forks_do_not_wait_for_each_other() {
    let _dog = Watchdog::new();
    static STOP: AtomicBool = AtomicBool::new(false);
    reaper::set_period(Duration::from_millis(1));
    let arena = Arc::new(Arena::private(256 << 20).expect("addresses"));
    let keg = ItemKeg::new(&arena, 256, 16).expect("a keg");
    let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("beside")));
    let threads: Vec<_> = (0..4usize)
        .map(|n| {
            let zone = zone.clone();
            std::thread::spawn(move || {
                while !STOP.load(Ordering::Relaxed) {
                    let short = std::thread::spawn({
                        let zone = zone.clone();
                        move || use_both(&zone, n)
                    });
                    use_both(&zone, n);
                    short.join().expect("short");
                }
            })
        })
        .collect();
    let times = if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        2000
    } else {
        40
    };
    for _ in 0..times {
        // SAFETY: the child uses the zones and the allocator, which survive a fork, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            use_both(&zone, 9);
            reaper::reclaim(tranship_items::Level::All);
            tranship_malloc::trim();
            use_both(&zone, 9);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: a child of ours, and a word of ours.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!((ended, status), (pid, 0));
        tranship_malloc::trim();
    }
    STOP.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("thread"));
}

fn use_both(zone: &ItemZone<Bytes>, n: usize) {
    let mut kept = Vec::new();
    for i in 0..2000 {
        let item = zone.alloc(()).expect("room");
        // SAFETY: an item of 256 bytes, ours.
        unsafe { item.write_bytes(1, 256) };
        kept.push((item, vec![1u8; 1 + (i * 97 + n) % 3000]));
        if i % 3 == 0 {
            let (item, bytes) = kept.swap_remove(kept.len() / 2);
            assert!(bytes.iter().all(|b| *b == 1));
            // SAFETY: allocated above, not used any more.
            unsafe { zone.free(item) };
        }
    }
    for (item, _) in kept {
        // SAFETY: as above.
        unsafe { zone.free(item) };
    }
}
