//! Buffers that travel on: through a third domain, in cycles, back to their writer.

use crate::kit::*;
use std::path::PathBuf;
use tranship_core::error::RefusalCode;
use tranship_core::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Forward};
use tranship_testkit::{Control, child};

#[test]
fn without_the_right_it_is_refused_and_the_buffer_comes_back() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let pool = pool(&a, 2);
    let (mut first, mut inward) = link(&a, &b, "x");
    let (mut outward, mut last) = link(&b, &c, "y");
    first.send(filled(&pool, 100, 3)).expect("send");
    let got = buf(inward.recv().expect("recv"));
    let error = outward.send(got).expect_err("no right");
    is_refused(&error.error, RefusalCode::NotYours);
    assert_eq!(error.error.kind(), ErrorKind::Refused);
    let back = error.unsent;
    assert_eq!(back.to_vec(), [3; 100]);
    assert!(last.try_recv().expect("open").is_none());
    // The right may come later.
    pool.allow_forward(b.id()).expect("allow");
    outward.send(back).expect("forward");
    assert_eq!(last.recv().expect("recv").to_vec(), [3; 100]);
    pool.alloc_now(2 * CHUNK).expect("all free");
    let other = crate::kit::pool(&b, 1);
    // 0 is not a domain, nor all of them.
    for nobody in [u32::MAX, 0] {
        let refused = other.allow_forward(tranship_core::DomainId(nobody));
        assert_eq!(refused.expect_err("nobody").kind(), ErrorKind::Stale);
    }
}

#[test]
fn a_pool_may_be_made_for_its_readers_to_send_on() {
    let (_dog, a, b) = pair();
    let (c, d) = (join(&a, "c"), join(&a, "d"));
    let options = PoolOptions::new(2 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let pool = a.create_pool(options.clone().allow_forward(true));
    let pool = pool.expect("a pool");
    let (mut ab, mut b_in) = link(&a, &b, "ab");
    let (mut bc, mut c_in) = link(&b, &c, "bc");
    let (mut cd, mut d_in) = link(&c, &d, "cd");
    ab.send(filled(&pool, 100, 3)).expect("send");
    bc.send(buf(b_in.recv().expect("recv"))).expect("forward");
    cd.send(buf(c_in.recv().expect("recv"))).expect("and on");
    assert_eq!(d_in.recv().expect("recv").to_vec(), [3; 100]);
    // It is the pool's, not its writer's.
    let other = a.create_pool(options).expect("a pool");
    ab.send(filled(&other, 100, 4)).expect("send");
    let error = bc
        .send(buf(b_in.recv().expect("recv")))
        .expect_err("no right");
    is_refused(&error.error, RefusalCode::NotYours);
}

#[test]
fn the_rules_may_let_every_reader_forward() {
    let _dog = dog();
    let config = Config {
        forward: Forward::Readers,
        ..Config::default()
    };
    let a = embedded_with(config);
    let (b, c) = (join(&a, "b"), join(&a, "c"));
    let pool = pool(&a, 2);
    let (mut first, mut inward) = link(&a, &b, "x");
    let (mut outward, mut last) = link(&b, &c, "y");
    first.send(filled(&pool, 100, 3)).expect("send");
    outward
        .send(buf(inward.recv().expect("recv")))
        .expect("forward");
    assert_eq!(last.recv().expect("recv").to_vec(), [3; 100]);
}

#[test]
fn the_writer_waits_for_the_last_of_the_chain() {
    let (_dog, a, b) = pair();
    let (c, d) = (join(&a, "c"), join(&a, "d"));
    let pool = pool(&a, 1);
    for who in [&b, &c] {
        pool.allow_forward(who.id()).expect("allow");
    }
    let (mut ab, mut b_in) = link(&a, &b, "ab");
    let (mut bc, mut c_in) = link(&b, &c, "bc");
    let (mut cd, mut d_in) = link(&c, &d, "cd");
    for round in 0..20 {
        ab.send(filled(&pool, CHUNK, round)).expect("send");
        let got = buf(b_in.recv().expect("recv"));
        let kept = (round % 2 == 0).then(|| got.clone());
        bc.send(got.slice(100..)).expect("forward");
        drop(got);
        assert!(pool.alloc_now(1).is_err(), "under way to c");
        cd.send(buf(c_in.recv().expect("recv"))).expect("forward");
        assert!(pool.alloc_now(1).is_err(), "under way to d");
        let last = buf(d_in.recv().expect("recv"));
        assert_eq!(last.to_vec(), vec![round; CHUNK - 100]);
        assert_eq!(last.id().pool(), pool.id());
        drop(last);
        assert_eq!(pool.alloc_now(1).is_err(), kept.is_some());
        drop(kept);
        pool.alloc_now(1).expect("free");
    }
}

#[test]
fn a_buffer_that_comes_back_is_the_writers_own() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 1);
    pool.allow_forward(b.id()).expect("allow");
    let (mut there, mut b_in) = link(&a, &b, "there");
    let (mut back, mut a_in) = link(&b, &a, "back");
    let mut travelling = filled(&pool, CHUNK, 1);
    let id = travelling.id();
    for round in 0..100 {
        if round % 3 == 0 {
            there.send(travelling).expect("send");
        } else {
            // Some rounds with a handle that stays at home.
            let home = travelling.clone();
            there.send(travelling).expect("send");
            drop(home);
        }
        back.send(buf(b_in.recv().expect("recv"))).expect("return");
        travelling = buf(a_in.recv().expect("recv"));
        assert_eq!(travelling.id(), id);
        assert!(
            travelling
                .bytes()
                .is_some_and(|b| b.len() == CHUNK && b[0] == 1)
        );
        assert!(pool.alloc_now(1).is_err());
    }
    // It was sent once, so writing means a copy, and there is no memory for it.
    drop(travelling);
    pool.alloc_now(CHUNK).expect("free after the cycle");
}

#[test]
fn only_a_part_may_come_back() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 1);
    pool.allow_forward(b.id()).expect("allow");
    let (mut there, mut b_in) = link(&a, &b, "there");
    let (mut back, mut a_in) = link(&b, &a, "back");
    let bytes: Vec<u8> = (0..200).collect();
    there
        .send(pool.copy(&bytes).expect("alloc").freeze())
        .expect("send");
    back.send(buf(b_in.recv().expect("recv")).slice(50..60))
        .expect("return");
    let part = buf(a_in.recv().expect("recv"));
    assert_eq!(part.bytes(), Some(&bytes[50..60]));
    drop(part);
    pool.alloc_now(CHUNK).expect("free");
}

child!(
    /// Sends one buffer over `x`, and waits.
    fn source(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("source").socket(path).connect();
        let domain = domain.unwrap();
        let options = PoolOptions::new(CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(options.allow_forward(true)).unwrap();
        let listener = domain.listen::<Sender>("x").unwrap();
        ctl.send(&domain.id().0).unwrap();
        let mut sender = listener.accept().unwrap();
        sender.send(filled(&pool, 100, 3)).unwrap();
        let _end: Option<()> = ctl.recv().unwrap();
    }
);

/// The error names the writer, which has ended, and not the receiver.
#[test]
fn a_pool_whose_writer_has_ended_gets_no_further_reader() {
    let (_dog, b, c) = pair();
    let process = source().start().expect("a child");
    let writer = process.ask::<u32>(&b.socket_path());
    let mut inward = b.open::<Receiver>("x").expect("open");
    let (mut outward, mut last) = link(&b, &c, "y");
    let got = buf(inward.recv().expect("recv"));
    process.kill();
    assert_eq!(
        inward.recv().expect_err("the end").kind(),
        ErrorKind::PeerDied
    );
    let error = outward.send(got).expect_err("no further reader");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    let text = error.error.to_string();
    let named = format!("domain {writer} has ended");
    assert!(text.contains(&named), "{text}");
    // A copy goes.
    let copy = pool(&b, 1).copy(&error.unsent.to_vec());
    outward.send(copy.expect("a copy").freeze()).expect("send");
    assert_eq!(last.recv().expect("recv").to_vec(), [3; 100]);
}

/// Messages of two pools take turns, and each arrives: whichever pool is at hand.
#[test]
fn a_receiver_takes_messages_of_several_pools_in_any_order() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let options = PoolOptions::new(2 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let first = a.create_pool(options.allow_forward(true)).expect("a pool");
    let second = pool(&b, 2);
    let (mut ab, mut b_in) = link(&a, &b, "ab");
    let (mut bc, mut c_in) = link(&b, &c, "bc");
    for round in 0..40u8 {
        // Runs of each, and changes at each message.
        let forwards = match round {
            0..20 => round / 5 % 2 == 0,
            _ => round % 2 == 0,
        };
        if forwards {
            ab.send(filled(&first, 100, round)).expect("send");
            bc.send(buf(b_in.recv().expect("recv"))).expect("forward");
        } else {
            bc.send(filled(&second, 100, round)).expect("send");
        }
        assert_eq!(c_in.recv().expect("recv").to_vec(), [round; 100]);
    }
    drop((ab, b_in, bc, c_in));
    for pool in [&first, &second] {
        pool.alloc_now(2 * CHUNK).expect("all free");
    }
}

#[test]
fn another_domain_of_the_process_cannot_send_it() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let pool = pool(&a, 1);
    let (mut sender, _receiver) = link(&b, &c, "x");
    let error = sender
        .send(filled(&pool, 10, 1))
        .expect_err("a's buffer, b's link");
    assert_eq!(error.kind(), ErrorKind::BufferNotOwned);
    drop(error.unsent);
    pool.alloc_now(CHUNK).expect("free");
}
