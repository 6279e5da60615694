//! How links end: nothing that was sent is lost, nothing that could not be sent either.

use crate::kit::*;
use std::thread;
use tranship_core::admin::StatRecord;
use tranship_core::{ChannelOptions, ErrorKind, Wait};

#[test]
fn what_was_sent_before_the_sender_went_can_be_received() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 16);
    for i in 0..100 {
        sender.send(filled(&pool, 4096, i)).expect("send");
    }
    sender.send(b"last").expect("send");
    drop(sender);
    let held: Vec<_> = (0..100)
        .map(|_| buf(receiver.recv().expect("recv")))
        .collect();
    assert_eq!(receiver.recv().expect("recv").to_vec(), b"last");
    for _ in 0..3 {
        let error = receiver.recv().expect_err("the end");
        let channel = format!("channel {} ", receiver.status().channel);
        assert!(error.to_string().contains(&channel), "{error}");
        assert_eq!(error.kind(), ErrorKind::PeerGone);
        assert!(receiver.try_recv().is_err());
    }
    drop(receiver);
    // What was taken outlives the link.
    for (i, buf) in (0u8..).zip(&held) {
        assert!(buf.to_vec().iter().all(|b| *b == i));
    }
    assert!(pool.alloc_now(16 * CHUNK).is_err(), "still held");
    drop(held);
    until(|| pool.alloc_now(16 * CHUNK).is_ok());
}

#[test]
fn even_the_pool_may_go_first() {
    let (_dog, a, b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    let id = pool.id();
    for i in 0..20 {
        sender.send(filled(&pool, 1000, i)).expect("send");
    }
    drop(pool);
    drop(sender);
    let known = |who: &tranship_core::Domain| {
        let stat = who.admin().stat().expect("stat");
        stat.iter()
            .any(|r| matches!(r, StatRecord::Pool(p) if p.pool == id))
    };
    a.turn().expect("turn");
    for i in 0..20 {
        assert_eq!(receiver.recv().expect("recv").to_vec(), [i; 1000]);
        assert!(known(&a), "not before the last buffer is dead");
    }
    receiver.recv().expect_err("the end");
    until(|| {
        a.turn().expect("turn");
        b.turn().expect("turn");
        !known(&a)
    });
}

#[test]
fn without_a_receiver_the_buffer_comes_back() {
    let (_dog, a, b, mut sender, receiver) = linked();
    let pool = pool(&a, 4);
    sender.send(filled(&pool, CHUNK, 1)).expect("send");
    drop(receiver);
    until(|| sender.status().peer_gone);
    let error = sender.send(filled(&pool, 100, 2)).expect_err("nobody");
    let channel = format!("channel {} ", sender.status().channel);
    assert!(error.to_string().contains(&channel), "{error}");
    assert_eq!(error.error.kind(), ErrorKind::PeerGone);
    let back = error.unsent;
    assert_eq!(back.bytes(), Some(&[2u8; 100][..]));
    let batch = sender
        .send_many([back.clone(), back.clone()])
        .expect_err("nobody");
    assert_eq!(batch.unsent.len(), 2);
    assert!(sender.send(b"").is_err());
    // It can go elsewhere; and what was on its way is free again.
    let (mut other, mut taker) = link(&a, &b, "y");
    other.send(back).expect("send");
    assert_eq!(taker.recv().expect("recv").to_vec(), [2; 100]);
    drop(batch);
    until(|| pool.alloc_now(4 * CHUNK).is_ok());
}

#[test]
fn a_sender_that_waits_for_room_hears_of_the_end() {
    let (_dog, a, b) = pair();
    for (n, wait) in [Wait::Sleep, Wait::Spin].into_iter().enumerate() {
        let options = ChannelOptions::new().lines(2).wait(wait);
        let (mut sender, receiver) = link_with(&a, &b, &format!("x{n}"), options);
        let failure = thread::scope(|s| {
            let sending = s.spawn(move || {
                loop {
                    if let Err(error) = sender.send(b"") {
                        return error.error;
                    }
                }
            });
            until(|| receiver.is_ready());
            drop(receiver);
            sending.join().expect("sender")
        });
        assert!(failure.kind() == ErrorKind::PeerGone, "{failure}");
    }
}

#[test]
fn a_receiver_that_waits_hears_of_the_end() {
    let (_dog, a, b) = pair();
    for (n, wait) in [Wait::Sleep, Wait::Spin, Wait::default()]
        .into_iter()
        .enumerate()
    {
        let options = ChannelOptions::new().wait(wait);
        let (sender, mut receiver) = link_with(&a, &b, &format!("x{n}"), options);
        thread::scope(|s| {
            let receiving = s.spawn(move || receiver.recv().expect_err("the end").kind());
            drop(sender);
            assert_eq!(receiving.join().expect("receiver"), ErrorKind::PeerGone);
        });
    }
}

#[test]
fn all_memory_returns_when_everything_is_dropped() {
    let (_dog, a, b) = pair();
    for round in 0..5 {
        let pool = pool(&a, 8);
        let (mut sender, mut receiver) = link(&a, &b, "x");
        for i in 0..50 {
            sender.send(filled(&pool, 9000, i)).expect("send");
            if i % 2 == round % 2 {
                drop(receiver.recv().expect("recv"));
            }
        }
        drop((sender, receiver, pool));
    }
    until(|| {
        a.turn().expect("turn");
        b.turn().expect("turn");
        let stat = a.admin().stat().expect("stat");
        let pools = stat
            .iter()
            .filter(|r| matches!(r, StatRecord::Pool(_)))
            .count();
        let granted = stat.iter().find_map(|r| match r {
            StatRecord::Manager(m) => Some(m.granted_bytes + m.stranded_bytes),
            _ => None,
        });
        pools == 0 && granted == Some(0)
    });
}
