//! Quotas that are set from outside, while what they are for is in use.

use crate::kit::*;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tranship_core::error::{Limit, RefusalCode};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{
    Aggregate, ChannelOptions, Domain, ErrorKind, Pool, PoolId, PoolOptions, Trust,
};
use tranship_testkit::{Between, Keeps};

#[test]
fn a_pool_gets_what_its_quota_says_from_now_on() {
    let (_dog, a, admin) = pair();
    let pool = pool(&a, 8);
    let bytes = |chunks: usize| (chunks * CHUNK) as u64;
    let full = |pool: &tranship_core::Pool| {
        let error = pool.alloc_now(CHUNK).expect_err("the quota");
        assert_eq!(short(&error), Some(Limit::Quota), "{error}");
    };
    let mut held: Vec<_> = (0..4).map(|_| pool.alloc(CHUNK).expect("room")).collect();
    let set = |chunks| {
        admin
            .admin()
            .set_quota(pool.id(), bytes(chunks))
            .expect("set")
    };
    assert_eq!(set(4), bytes(4));
    until(|| pool.stats().quota_bytes == bytes(4));
    full(&pool);
    // Lower than what is out: what is given back is not had again.
    assert_eq!(set(2), bytes(2));
    held.pop();
    until(|| pool.stats().chunk_bytes_present <= bytes(3));
    full(&pool);
    held.truncate(1);
    until(|| pool.stats().chunk_bytes_present <= bytes(2));
    held.push(pool.alloc_now(CHUNK).expect("within it"));
    full(&pool);
    // A caller that waits goes on when the quota is raised.
    thread::scope(|s| {
        let waits = s.spawn(|| pool.alloc(CHUNK).expect("in the end"));
        until(|| pool.stats().waiting == 1);
        set(3);
        held.push(waits.join().expect("a thread"));
    });
    assert_eq!(set(8), bytes(8));
    held.extend((0..5).map(|_| pool.alloc(CHUNK).expect("all of it")));
    assert_eq!(set(0), 0);
    drop(held);
    until(|| pool.stats().chunk_bytes_present == 0);
    full(&pool);
}

/// Whatever the quota is now, it may be another one later: only the maximum is for ever.
#[test]
fn a_quota_below_a_buffer_is_a_reason_to_wait() {
    let (_dog, a, admin) = pair();
    const SEALED: usize = 2 * CHUNK;
    let options = PoolOptions::new(4 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let sealed = options.clone().trust(Trust::None).seal_from(SEALED as u64);
    for options in [options.clone(), options.trust(Trust::Half), sealed] {
        let pool = a.create_pool(options).expect("pool");
        let set = |chunks: usize| {
            let bytes = (chunks * CHUNK) as u64;
            admin.admin().set_quota(pool.id(), bytes).expect("set");
            until(|| pool.stats().quota_bytes == bytes);
        };
        for len in [100, CHUNK, SEALED] {
            set(0);
            // What is there may be had until it is given back.
            until(|| pool.stats().chunk_bytes_present == 0);
            let short = Duration::from_millis(1);
            for error in [pool.alloc_now(len), pool.alloc_timeout(len, short)] {
                let error = error.expect_err("there is no quota");
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                assert!(error.to_string().contains("quota of 0 bytes"), "{error}");
            }
            wait_for_a_quota(&pool, len, set);
        }
        // No quota helps there.
        for chunks in [4, 0] {
            set(chunks);
            let error = pool.alloc(4 * CHUNK + 1).expect_err("the maximum");
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
            assert!(error.to_string().contains("maximum of 262144"), "{error}");
        }
    }
}

/// Callers that come while there is none, and callers that are there already when it goes, get their buffers when it is back.
fn wait_for_a_quota(pool: &Pool, len: usize, set: impl Fn(usize)) {
    let far = Duration::from_secs(1000);
    thread::scope(|s| {
        let waits = [
            s.spawn(|| pool.alloc(len).map(drop)),
            s.spawn(|| pool.alloc_timeout(len, far).map(drop)),
            s.spawn(|| block_on(pool.alloc_async(len)).map(drop)),
        ];
        until(|| pool.stats().waiting == 3);
        set(4);
        for waits in waits {
            waits.join().expect("a thread").expect("memory");
        }
    });
    let all = pool.alloc(4 * CHUNK).expect("all of it");
    thread::scope(|s| {
        let blocked = [
            s.spawn(|| pool.alloc(len).map(drop)),
            s.spawn(|| block_on(pool.alloc_async(len)).map(drop)),
        ];
        until(|| pool.stats().waiting == 2);
        // Nobody is told that it is over; what is released before the quota is back may be given back or handed out.
        set(0);
        set(4);
        drop(all);
        for blocked in blocked {
            blocked.join().expect("a thread").expect("memory");
        }
    });
}

/// The manager tells no pool of memory that others give back. A caller that waits asks for it now and then.
#[test]
fn callers_that_wait_leave_the_manager_in_peace() {
    let _dog = dog();
    let manager = Domain::builder().name("a").embedded().expect("embedded");
    let socket = manager.socket_path().expect("a socket");
    let between = Between::new(&socket, Keeps::Nothing).expect("a socket");
    let domain = Domain::builder().name("short").socket(between.socket());
    let domain = domain.connect().expect("connect");
    let pool = pool(&domain, 4);
    manager.admin().set_quota(pool.id(), 0).expect("set");
    until(|| pool.stats().quota_bytes == 0 && pool.stats().chunk_bytes_present == 0);
    let (before, begun) = (between.passed(), Instant::now());
    for sleeps in [true, false] {
        let end = Instant::now() + Duration::from_millis(300);
        match sleeps {
            true => drop(
                pool.alloc_timeout(100, Duration::from_millis(300))
                    .expect_err("no quota"),
            ),
            false => {
                let mut alloc = pin!(pool.alloc_async(100));
                let mut none = Context::from_waker(Waker::noop());
                while Instant::now() < end {
                    assert!(
                        alloc.as_mut().poll(&mut none).is_pending(),
                        "there is no quota"
                    );
                    domain.turn().expect("turn");
                }
            }
        }
    }
    // 1, 2, 4, 8 ms apart, then 10. Beside: the first look of each caller, and other news.
    let most = 20 + begun.elapsed().as_millis() / 10;
    let asked = between.passed() - before;
    assert!(u128::from(asked) <= most, "{asked} answers, {most} at most");
    // With a quota the next one is asked for at once.
    std::thread::scope(|s| {
        let waits = s.spawn(|| pool.alloc(100).map(drop));
        until(|| pool.stats().waiting == 1);
        manager
            .admin()
            .set_quota(pool.id(), CHUNK as u64)
            .expect("set");
        waits.join().expect("a thread").expect("memory");
    });
}

/// The pool that copies go to has a quota, too.
#[test]
fn copies_wait_for_a_quota() {
    let (_dog, a, b) = pair();
    let copies = pool(&b, 4);
    let receives = ChannelOptions::new().snapshots(copies.id());
    let (mut to, mut from) = link_with(&a, &b, "x", receives);
    let none = pool_of(&a, Trust::None);
    let set = |chunks: usize| {
        let bytes = (chunks * CHUNK) as u64;
        a.admin().set_quota(copies.id(), bytes).expect("set");
        until(|| copies.stats().quota_bytes == bytes);
    };
    to.send(filled(&none, CHUNK, 1)).expect("send");
    let mut pieces = Aggregate::new();
    for _ in 0..2 {
        pieces.push_back(filled(&none, CHUNK, 2)).expect("room");
    }
    to.send(pieces).expect("send");
    // The aggregate has room for one of its pieces only.
    for (less, bytes) in [(0, CHUNK), (1, 2 * CHUNK)] {
        set(less);
        assert!(from.try_recv().expect("there is none yet").is_none());
        let error = from.recv_timeout(Duration::from_millis(1));
        let error = error.expect_err("no room yet");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        set(4);
        assert_eq!(from.recv().expect("recv").len(), bytes);
    }
}

#[test]
fn a_heap_is_asked_to_come_down_to_its_quota() {
    let (_dog, a, admin) = pair();
    const MIB: u64 = 1 << 20;
    let heap = Heap::create(&a, HeapOptions::new(8 * MIB)).expect("heap");
    heap.admit(4 * MIB, 4 * MIB).expect("admitted");
    assert_eq!(
        admin.admin().set_quota(heap.id(), 2 * MIB).expect("set"),
        2 * MIB
    );
    until(|| heap.pressure() == Some(2 * MIB));
    assert_eq!(heap.quota_bytes(), 2 * MIB);
    let error = heap.admit(1, 1).expect_err("over it");
    is_refused(&error, RefusalCode::Quota);
    heap.give_back(3 * MIB);
    assert_eq!(heap.admit(1, 8 * MIB).expect("the rest"), MIB);
    assert_eq!(
        admin.admin().set_quota(heap.id(), 8 * MIB).expect("set"),
        8 * MIB
    );
    heap.admit(6 * MIB, 6 * MIB).expect("raised");
}

#[test]
fn what_cannot_be_set_is_refused() {
    let (_dog, a, admin) = pair();
    let pool = pool(&a, 2);
    let max = pool.max_bytes();
    let error = admin
        .admin()
        .set_quota(pool.id(), max + 1)
        .expect_err("too much");
    is_refused(&error, RefusalCode::BadArgument);
    let error = admin
        .admin()
        .set_quota(PoolId(7777), 1)
        .expect_err("nobody's");
    is_refused(&error, RefusalCode::NoSuchId);
    assert_eq!(pool.stats().quota_bytes, max);
}
