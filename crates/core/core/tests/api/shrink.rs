//! What a pool has follows what it needed lately; what it is to keep, or to begin with; what the manager wants back.

use crate::kit::*;
use std::time::{Duration, Instant};
use tranship_core::error::Limit;
use tranship_core::{Domain, ErrorKind, Pool, PoolOptions};
use tranship_manager::{Config, PressureConfig};

fn options(chunks: usize) -> PoolOptions {
    PoolOptions::new((chunks * CHUNK) as u64).chunk_bytes(CHUNK as u64)
}

fn present(pool: &Pool) -> usize {
    usize::try_from(pool.stats().chunk_bytes_present).expect("small") / CHUNK
}

/// For so long, so often as it can be done.
fn all_the_time(time: Duration, mut what: impl FnMut()) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        what();
    }
}

/// Longer than a pool keeps what it does not need.
const LONG: Duration = Duration::from_secs(2);

/// Makes a domain without a helper thread: only the test turns. Its manager does not look at the machine's memory, which
/// other programs can make short.
fn alone() -> Domain {
    let pressure = PressureConfig {
        watch: false,
        ..PressureConfig::default()
    };
    let config = Config {
        pressure,
        ..Config::default()
    };
    let builder = Domain::builder().config(config);
    builder.embedded().expect("embedded")
}

#[test]
fn turning_between_frames_throws_no_memory_away() {
    let _dog = dog();
    let a = alone();
    // Larger than a chunk, and smaller.
    for (len, frames) in [(5 * CHUNK + 100, 2), (CHUNK / 2, 24)] {
        let pool = a.create_pool(options(64)).expect("pool");
        let burst = || {
            let frames: Vec<_> = (0..frames)
                .map(|_| pool.alloc(len).expect("alloc"))
                .collect();
            drop(frames);
        };
        burst();
        let had = present(&pool);
        assert!(had >= 12, "{had} chunks");
        all_the_time(LONG, || {
            a.turn().expect("turn");
            assert_eq!(present(&pool), had);
            burst();
        });
    }
}

#[test]
fn what_was_not_needed_for_a_while_goes_back() {
    let _dog = dog();
    let a = alone();
    let pool = a.create_pool(options(64)).expect("pool");
    // Of all sizes; some of it is in this thread's caches afterwards.
    let sizes = [CHUNK / 8, CHUNK / 2, CHUNK, 3 * CHUNK];
    let held: Vec<_> = (0..24)
        .map(|i| pool.alloc(sizes[i % 4]).expect("alloc"))
        .collect();
    assert!(present(&pool) > 20);
    drop(held);
    until(|| {
        a.turn().expect("turn");
        // It goes on with little: as much as a thread caches at once.
        drop(pool.alloc(CHUNK / 2).expect("alloc"));
        present(&pool) <= 6
    });
}

#[test]
fn a_pool_keeps_what_it_is_told_to_and_begins_with_what_it_is_to_have() {
    let _dog = dog();
    let a = alone();
    let kept = a
        .create_pool(options(16).keep(5 * CHUNK as u64))
        .expect("pool");
    let begun = a
        .create_pool(options(16).preallocate(7 * CHUNK as u64 - 1))
        .expect("pool");
    assert_eq!((present(&kept), present(&begun)), (0, 7));
    for pool in [&kept, &begun] {
        drop(pool.alloc(12 * CHUNK).expect("alloc"));
    }
    until(|| {
        a.turn().expect("turn");
        (present(&kept), present(&begun)) == (5, 7)
    });
    all_the_time(LONG, || {
        a.turn().expect("turn");
        assert_eq!((present(&kept), present(&begun)), (5, 7));
    });
}

#[test]
fn a_pool_that_cannot_begin_with_what_it_is_to_have_is_none() {
    let _dog = dog();
    let config = Config {
        total: Some(8 * CHUNK as u64),
        ..Config::default()
    };
    let builder = Domain::builder().config(config);
    let a = builder.embedded().expect("embedded");
    let first = a.create_pool(options(6).preallocate(6 * CHUNK as u64));
    let first = first.expect("there is room");
    let second = || a.create_pool(options(6).preallocate(6 * CHUNK as u64));
    let error = second().expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let limit = short(&error);
    assert!(matches!(limit, Some(Limit::Total { .. })), "{error}");
    let error = a.create_pool(options(2).preallocate(3 * CHUNK as u64));
    assert_eq!(error.expect_err("nonsense").kind(), ErrorKind::BadArgument);
    drop(first);
    until(|| second().is_ok());
}

/// What it keeps against its own tidiness it does not keep against the manager's need; buffers larger than what is left of the
/// total are no exception.
#[test]
fn what_others_need_a_pool_gives_back() {
    let _dog = dog();
    let config = Config {
        total: Some(20 * CHUNK as u64),
        ..Config::default()
    };
    let a = embedded_with(config);
    let b = join(&a, "b");
    let (rich, poor) = (
        a.create_pool(options(18).preallocate(18 * CHUNK as u64)),
        pool(&b, 18),
    );
    let rich = rich.expect("pool");
    // Little of it is in use, and that lies apart.
    let all: Vec<_> = (0..18).map(|i| filled(&rich, CHUNK, i)).collect();
    let held: Vec<_> = all.into_iter().step_by(6).collect();
    let large = poor.alloc(8 * CHUNK).expect("half is for each");
    assert!(present(&rich) <= 10);
    for (i, held) in (0u8..).zip(&held) {
        assert_eq!(held.to_vec(), vec![6 * i; CHUNK]);
    }
    drop(large);
}
