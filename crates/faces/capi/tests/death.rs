//! C programs are killed in the middle of a transfer: survivors are told, and nothing leaks.

mod common;

use common::{c, start, with_manager};
use facade::admin::StatRecord;
use facade::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tranship_testkit::{Held, Watchdog};

/// How often each is killed; each time at another place.
fn times() -> usize {
    match std::env::var_os("TRANSHIP_TORTURE") {
        Some(_) => 500,
        None => 10,
    }
}

/// One test at a time: what the process holds is counted.
static ALONE: Mutex<()> = Mutex::new(());

fn manager() -> Domain {
    let builder = Domain::builder().name("survivor");
    builder.embedded().expect("a manager")
}

/// Waits until only the survivor holds objects of the manager.
fn wait_until_alone(domain: &Domain) {
    loop {
        domain.turn().expect("turn");
        let all = domain.admin().stat().expect("stat");
        let left = all.iter().any(|record| match record {
            StatRecord::Domain(other) => other.domain != domain.id(),
            StatRecord::Pool(pool) => pool.writer != domain.id() || pool.stranded_bytes > 0,
            // An exported name alone is nobody's channel yet.
            StatRecord::Channel(channel) => channel.exported_as.is_none(),
            StatRecord::Hold(_) => true,
            StatRecord::Manager(_) | StatRecord::Heap(_) => false,
        });
        if !left {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn a_killed_sender_leaves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dog = Watchdog::new();
    let domain = manager();
    let socket = domain.socket_path().expect("a socket");
    let program = c("tests/programs/endless.c");
    let mut held = None;
    for round in 0..times() {
        dog.step(round);
        let sends = start(with_manager(&program, &socket).arg("send"));
        let mut receiver = domain.open::<Receiver>("endless").expect("open");
        let mut kept = Vec::new();
        for word in 0..(round as u64 * 37) % 400 + 1 {
            let message = receiver.recv().expect("recv");
            assert_eq!(message.word, word);
            let first = message.to_vec().first().copied().map(u64::from);
            assert_eq!(first, Some(word % 256));
            kept.push(message);
            if kept.len() > 3 {
                kept.remove(0);
            }
        }
        drop(sends); // kills it
        let end = loop {
            match receiver.recv() {
                Ok(message) => kept.push(message),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(end, ErrorKind::PeerDied);
        drop((kept, receiver));
        wait_until_alone(&domain);
        // What the first round needs for itself stays. The manager's thread may still be closing something.
        let mut now = Held::here().expect("what is held");
        let most = held.get_or_insert((now.fds, now.mappings));
        dog.step(format!(
            "{most:?} descriptors and mappings before, {now:?} after round {round}"
        ));
        while now.fds > most.0 || now.mappings > most.1 {
            thread::yield_now();
            now = Held::here().expect("what is held");
        }
    }
}

#[test]
fn a_killed_receiver_leaves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dog = Watchdog::new();
    let domain = manager();
    let socket = domain.socket_path().expect("a socket");
    let program = c("tests/programs/endless.c");
    let listener = domain.listen::<Sender>("endless").expect("listen");
    let pool = domain.create_pool(PoolOptions::new(1 << 20)).expect("pool");
    for round in 0..times() {
        dog.step(round);
        let receives = start(with_manager(&program, &socket).arg("receive"));
        let mut sender = listener.accept().expect("accept");
        for word in 0..(round as u64 * 37) % 400 + 1 {
            let frame = pool.alloc(10_000).expect("alloc");
            sender.send((frame.freeze(), word)).expect("send");
        }
        drop(receives); // kills it
        let end = loop {
            // The pool is finite: what the dead one had comes back, or this waits for ever.
            let frame = pool.alloc(10_000).expect("alloc");
            match sender.send(frame.freeze()) {
                Ok(_) => {}
                Err(failed) => break failed.error.kind(),
            }
        };
        assert_eq!(end, ErrorKind::PeerGone);
        drop(sender);
        wait_until_alone(&domain);
    }
    // All of it can be had again.
    let all = |_| pool.alloc(10_000).expect("alloc");
    drop((0..64).map(all).collect::<Vec<_>>());
}
