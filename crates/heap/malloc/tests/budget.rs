//! A size's cache grows with its use, stays within bounds, and shrinks when the size is not used any more.

use std::ptr::NonNull;
use tranship_malloc::{alloc, free, stats};
use tranship_testkit::Watchdog;

fn rounds(count: usize, blocks: usize, bytes: usize) {
    for _ in 0..count {
        let all: Vec<NonNull<u8>> = (0..blocks)
            .map(|_| alloc(bytes, 16).expect("memory"))
            .collect();
        for block in all {
            // SAFETY: ours, of at least a byte; freed once.
            unsafe {
                block.write(1);
                free(block);
            }
        }
    }
}

fn kept() -> u64 {
    let stats = stats();
    stats.used_bytes + stats.spare_bytes
}

#[test]
fn what_a_busy_size_caches_is_bounded_and_goes_back_once_others_work() {
    let _dog = Watchdog::new();
    rounds(1, 1, 100);
    let (bytes, blocks) = (64 << 10, 64);
    rounds(2000, blocks, bytes);
    // The bound: the budget, the caches' first sizes, and free pages.
    assert!(kept() < 32 << 20, "{} bytes", kept());
    assert!(
        stats().used_bytes >= 2 << 20,
        "{} bytes: its caches did not grow",
        stats().used_bytes
    );
    // An unrelated size, which never needs the free items.
    while kept() > 1 << 20 {
        rounds(1, 2000, 48);
    }
    // Far more than any cache: the rest after it is bounded too.
    rounds(1, 400, 1 << 20);
    assert!(kept() < 40 << 20, "{} bytes", kept());
}
