//! Names, and how channels end.

use crate::kit::*;
use std::thread;
use std::time::Duration;
use tranship_core::{Body, ChannelOptions, ErrorKind, Receiver, Sender};

#[test]
fn a_listener_accepts_again_and_again() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("many") {
        let listener = world.b.listen::<Receiver>(&address).expect("listen");
        for round in 0..5 {
            let mut both = thread::scope(|scope| {
                let sender = scope.spawn(|| world.a.open::<Sender>(&address).expect("open"));
                let receiver = listener.accept().expect("accept");
                (sender.join().expect("no panic"), receiver)
            });
            both.0.send(&[round]).expect("send");
            assert_eq!(both.1.recv().expect("recv").to_vec(), [round], "{address}");
        }
        // The name is free when the listener is gone.
        drop(listener);
        drop(listen_again::<Sender>(&world.b, &address));
    }
}

/// Either side may listen, whatever its role.
#[test]
fn a_sender_listens() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("source") {
        let listener = world.a.listen::<Sender>(&address).expect("listen");
        let (mut to, mut from) = thread::scope(|scope| {
            let receiver = scope.spawn(|| world.b.open::<Receiver>(&address).expect("open"));
            let sender = listener.accept().expect("accept");
            (sender, receiver.join().expect("no panic"))
        });
        let pool = pool(&world.a, 1 << 20);
        to.send(pool.copy(&[7; 5000]).expect("alloc").freeze())
            .expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), [7; 5000], "{address}");
    }
}

#[test]
fn opening_waits_for_the_listener() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("later") {
        let options = ChannelOptions::new().timeout(Duration::from_millis(30));
        let nobody = world.a.open_with::<Sender>(&address, options);
        let nobody = nobody.expect_err("nobody listens");
        assert_eq!(nobody.kind(), ErrorKind::TimedOut, "{address}: {nobody}");
        thread::scope(|scope| {
            let sender = scope.spawn(|| world.a.open::<Sender>(&address).expect("open"));
            let listener = world.b.listen::<Receiver>(&address).expect("listen");
            let mut receiver = listener.accept().expect("accept");
            sender.join().expect("no panic").send(b"x").expect("send");
            assert_eq!(receiver.recv().expect("recv").to_vec(), b"x");
        });
    }
}

#[test]
fn both_cannot_have_one_role() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("same") {
        let _listener = world.b.listen::<Sender>(&address).expect("listen");
        let options = ChannelOptions::new().timeout(Duration::from_secs(60));
        let error = world.a.open_with::<Sender>(&address, options);
        let error = error.expect_err("both send");
        assert_eq!(error.kind(), ErrorKind::SameRole, "{address}: {error}");
    }
}

#[test]
fn schemes_that_nobody_knows() {
    let world = World::new();
    let error = world
        .a
        .open::<Sender>("udp:127.0.0.1:1/x")
        .expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::InvalidEndpoint);
    for known in [
        "`udp:`",
        "`shm:`",
        "`local:`",
        "`copy:`",
        "`tcp:`",
        "`tcp+plain:`",
    ] {
        assert!(error.to_string().contains(known), "{error}");
    }
    let wrong = world.a.listen::<Receiver>("tcp+plain:nowhere");
    let wrong = wrong.expect_err("no port");
    assert!(wrong.to_string().contains("HOST:PORT/NAME"), "{wrong}");
}

#[test]
fn a_sender_that_gives_up_is_told_from_one_that_closes() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("gives-up") {
        let (mut to, mut from) = world.channel(&address);
        to.send(b"the first of two").expect("send");
        to.abandon();
        assert_eq!(from.recv().expect("recv").to_vec(), b"the first of two");
        let end = from.recv().expect_err("given up");
        assert_eq!(end.kind(), ErrorKind::PeerDied, "{address}: {end}");
        // The error stays the same for ever.
        assert_eq!(from.recv().expect_err("still").kind(), ErrorKind::PeerDied);
    }
}

#[test]
fn a_receiver_that_goes_is_noticed() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("goes") {
        let (mut to, from) = world.channel(&address);
        let pool = pool(&world.a, 1 << 20);
        drop(from);
        let error = loop {
            let buf = pool.copy(&[1; 100]).expect("alloc");
            match to.send(buf.freeze()) {
                Ok(_) => thread::yield_now(),
                Err(failed) => break failed.error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{address}: {error}");
        assert!(to.status().peer_gone, "{address}");
        drop(to);
        let most = usize::try_from(pool.max_bytes()).expect("small");
        drop(pool.alloc(most).expect("all of it"));
    }
}

/// Messages that were sent before their sender let go arrive, however slowly they are taken.
#[test]
fn what_was_sent_arrives_although_its_sender_is_gone() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("late") {
        let (mut to, mut from) = world.channel(&address);
        let pool = pool(&world.a, 4 << 20);
        for number in 0..50 {
            let bytes = pattern(number, 20_000);
            let buf = pool.copy(&bytes).expect("alloc");
            to.send((buf, number)).expect("move");
        }
        drop((to, pool));
        for number in 0..50 {
            let message = from.recv().expect("recv");
            let is_buffer = matches!(message.body, Body::BufferMut(_) | Body::Buffer(_));
            assert!(is_buffer, "{address}");
            assert!(message.to_vec() == pattern(number, 20_000), "{address}");
        }
        assert_eq!(
            from.recv().expect_err("closed").kind(),
            ErrorKind::PeerGone,
            "{address}"
        );
    }
}

/// Messages that a receiver sent back before it let go arrive.
#[test]
fn the_last_words_of_a_receiver() {
    const WORDS: u64 = 20;
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("last-words") {
        let (mut to, mut from) = world.channel(&address);
        for number in 0..WORDS {
            from.send_back((b"last", number)).expect("say");
        }
        drop(from);
        for number in 0..WORDS {
            let word = loop {
                let gone = to.status().peer_gone;
                if let Some(word) = to.try_recv_back().expect("hear") {
                    break word;
                }
                assert!(!gone, "{address}: {number} words");
                thread::yield_now();
            };
            assert_eq!((word.word, word.to_vec()), (number, b"last".to_vec()));
        }
    }
}

#[test]
fn a_pool_that_is_not_there_is_missed_when_listening() {
    let _dog = dog();
    let world = World::new();
    let elsewhere = pool(&world.a, 1 << 20);
    for address in world.carried("no-pool") {
        let options = ChannelOptions::new().snapshots(elsewhere.id());
        let error = world.b.listen_with::<Receiver>(&address, options);
        let error = error.expect_err("not its pool");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{address}: {error}");
    }
}

#[test]
fn where_the_other_end_is() {
    let _dog = dog();
    let world = World::new();
    let (to, from) = world.channel(&world.plain("place"));
    let places = [to.status().peer_place, from.status().peer_place];
    assert!(
        places
            .iter()
            .all(|place| place.as_ref().is_some_and(|p| p.starts_with("127.0.0.1:"))),
        "{places:?}"
    );
    let (to, _from) = world.channel("shm:place");
    assert_eq!(to.status().peer_place, None);
}
