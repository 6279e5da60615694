//! Many threads of two domains on one pool.

use crate::kit::*;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;
use tranship_core::{Buffer, ChannelOptions, WhenFull};
use tranship_testkit::{Random, payload};

#[test]
fn threads_of_one_domain_ask_for_the_managers_state_at_once() {
    let (_dog, a, _b) = pair();
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..50).for_each(|_| drop(a.admin().stat().expect("the state"))));
        }
    });
}

#[test]
fn threads_allocate_send_and_drop_clones_and_contents_hold() {
    let random = Random::printed("threads");
    let (_dog, a, b) = pair();
    let pool = pool(&a, 12);
    let rounds = 3000;
    let links: Vec<_> = (0..3).map(|n| link(&a, &b, &format!("t{n}"))).collect();
    // Receivers pass some buffers on to a thread that keeps them for a while and drops them.
    let (keep, keeper) = sync_channel::<(Buffer, u64)>(16);
    thread::scope(|s| {
        for (n, (mut sender, mut receiver)) in (0u64..).zip(links) {
            let (pool, keep) = (&pool, keep.clone());
            let mut random = Random::seeded(random.seed() ^ (n << 32));
            let mut theirs = Random::seeded(random.seed() + 1);
            s.spawn(move || {
                let mut own: Vec<(Buffer, u64)> = Vec::new();
                for i in 0..rounds {
                    let id = (n << 32) | i;
                    let shift = random.below(17);
                    let len = usize::try_from(random.below(1 << shift)).expect("small");
                    let mut buf = pool.alloc(len).expect("alloc");
                    payload::fill(&mut buf, id, i);
                    if random.one_in(5) {
                        continue; // freed without being sent
                    }
                    let buf = buf.freeze();
                    if own.len() < 8 && random.one_in(4) {
                        own.push((buf.clone(), id));
                    }
                    sender.send((buf, id)).expect("send");
                    if random.one_in(3) && !own.is_empty() {
                        let at = random.below(own.len() as u64);
                        let (buf, id) = own.swap_remove(usize::try_from(at).expect("small"));
                        payload::verify(buf.bytes().expect("own"), id).expect("the writer's clone");
                    }
                }
            });
            s.spawn(move || {
                while let Ok(message) = receiver.recv() {
                    let id = message.word;
                    payload::verify(&message.to_vec(), id).expect("at receipt");
                    let got = buf(message);
                    if theirs.one_in(4) {
                        keep.send((got.clone(), id)).expect("keeper");
                    }
                    payload::verify(&got.to_vec(), id).expect("before release");
                }
            });
        }
        drop(keep);
        s.spawn(move || {
            for (buf, id) in keeper {
                payload::verify(&buf.to_vec(), id).expect("kept by another thread");
            }
        });
    });
    assert!(pool.stats().collected > 0);
    until(|| pool.alloc_now(12 * CHUNK).is_ok());
}

#[test]
fn writers_that_block_on_each_other_all_finish() {
    let (_dog, a, b) = pair();
    // Far too little for all at once.
    let pool = pool(&a, 2);
    thread::scope(|s| {
        for n in 0..4 {
            let (mut sender, mut receiver) = link(&a, &b, &format!("t{n}"));
            let pool = &pool;
            s.spawn(move || {
                for i in 0..200u64 {
                    let len =
                        [CHUNK, 100, CHUNK / 2, 2 * CHUNK][usize::try_from(i % 4).expect("small")];
                    sender.send((filled(pool, len, n), i)).expect("send");
                }
            });
            s.spawn(move || {
                for i in 0..200u64 {
                    let got = receiver.recv().expect("recv");
                    assert_eq!(got.word, i);
                    assert!(got.to_vec().iter().all(|byte| *byte == n));
                }
            });
        }
    });
    assert_eq!(pool.stats().waiting, 0);
}

#[test]
fn a_buffer_may_be_filled_frozen_and_dropped_by_different_threads() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let options = ChannelOptions::new().when_full(WhenFull::Wait);
    let (sender, mut receiver) = link_with(&a, &b, "x", options);
    let sender = Mutex::new(sender);
    thread::scope(|s| {
        for n in 0..4u8 {
            let (pool, sender) = (&pool, &sender);
            s.spawn(move || {
                for _ in 0..200 {
                    let mut buf = pool.alloc(3000).expect("alloc");
                    thread::scope(|inner| inner.spawn(|| buf.fill(n)).join()).expect("filler");
                    let part = buf.freeze().slice(1000..);
                    sender.lock().expect("lock").send(part).expect("send");
                }
            });
        }
        for _ in 0..800 {
            let got = receiver.recv().expect("recv").to_vec();
            assert!(got.len() == 2000 && got.iter().all(|byte| *byte == got[0]));
        }
    });
    pool.alloc_now(4 * CHUNK).expect("all free");
}

/// The writer's own buffers come back and go in other threads than the one that collects: nobody looks at a slot after
/// its last handle went, for it may be somebody else's by then.
#[test]
fn own_buffers_that_come_back_go_in_any_thread() {
    let (_dog, a, b) = pair();
    // Few buffers in turn: almost every allocation is a collection.
    let pool = pool(&a, 1);
    pool.allow_forward(b.id()).expect("allow");
    let (mut sender, mut through) = link(&a, &b, "through");
    let (mut onward, mut back) = link(&b, &a, "back");
    thread::scope(|s| {
        let droppers = [0, 1].map(|_| {
            let (to, bufs) = sync_channel::<(Buffer, u64)>(2);
            s.spawn(move || {
                for (buf, id) in bufs {
                    payload::verify(buf.bytes().expect("own"), id).expect("in another thread");
                }
            });
            to
        });
        let kept = droppers[0].clone();
        let pool = &pool;
        s.spawn(move || {
            for id in 0..3000 {
                let mut buf = pool.alloc(6000).expect("alloc");
                payload::fill(&mut buf, id, id);
                let buf = buf.freeze();
                if id % 3 == 0 {
                    kept.send((buf.clone(), id)).expect("dropper");
                }
                sender.send((buf, id)).expect("send");
            }
        });
        s.spawn(move || {
            while let Ok(message) = through.recv() {
                let id = message.word;
                onward.send((buf(message), id)).expect("forward");
            }
        });
        s.spawn(move || {
            while let Ok(message) = back.recv() {
                let id = message.word;
                let got = buf(message);
                for to in &droppers {
                    to.send((got.clone(), id)).expect("dropper");
                }
            }
        });
    });
    until(|| pool.alloc_now(CHUNK).is_ok());
}
