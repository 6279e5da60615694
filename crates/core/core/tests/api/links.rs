//! Links: what travels, batches, full rings, control messages, names and waiting for them.

use crate::kit::*;
use std::thread;
use std::time::{Duration, Instant};
use tranship_core::error::{
    Awaited, BadName, OutOfRange, PoolPending, RefusalCode, RingFull, TimedOut,
};
use tranship_core::{
    Body, ChannelOptions, Error, ErrorKind, Outcome, PoolOptions, Receiver, Sender, Wait, WhenFull,
};

fn lines(n: u32) -> ChannelOptions {
    ChannelOptions::new().lines(n)
}

#[test]
fn inline_messages_carry_40_bytes_and_a_word() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 2);
    for len in 0..=40usize {
        let bytes: Vec<u8> = (0..len).map(|i| i.to_le_bytes()[0]).collect();
        sender
            .send((&bytes[..], u64::MAX - len as u64))
            .expect("send");
        let got = receiver.recv().expect("recv");
        assert_eq!((got.word, got.len()), (u64::MAX - len as u64, len));
        assert_eq!(got.is_empty(), len == 0);
        assert!(matches!(&got.body, Body::Inline(inline) if **inline == bytes));
        assert!(got.into_buffer().is_none());
    }
    let error = sender.send(&[0; 41][..]).expect_err("41 bytes");
    assert!(error.to_string().contains("41 bytes"), "{error}");
    assert!(error.to_string().contains("pool.copy"), "{error}");
    assert_eq!(error.error.kind(), ErrorKind::TooLarge);
    // In order with buffers.
    for i in 0..100u64 {
        if i % 3 == 0 {
            sender.send((b"inline", i)).expect("send");
        } else {
            sender.send((filled(&pool, 10, 1), i)).expect("send");
        }
        if i % 7 == 6 {
            for j in i - 6..=i {
                let got = receiver.recv().expect("recv");
                assert_eq!(got.word, j);
                assert_eq!(matches!(got.body, Body::Inline(_)), j % 3 == 0);
            }
        }
    }
}

#[test]
fn every_way_of_waiting_delivers() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 2);
    for (n, wait) in [Wait::Spin, Wait::SpinThenSleep(10), Wait::Sleep]
        .into_iter()
        .enumerate()
    {
        let (mut sender, mut receiver) = link_with(&a, &b, &format!("w{n}"), lines(4).wait(wait));
        thread::scope(|s| {
            s.spawn(move || {
                for i in 0..300u64 {
                    assert_eq!(receiver.recv().expect("recv").word, i);
                }
            });
            for i in 0..300u64 {
                sender.send((filled(&pool, 64, 0), i)).expect("send");
            }
        });
    }
}

/// All that are there come in one call, of every kind and in order; the first is waited for, and the end is told when all are taken.
#[test]
fn many_are_received_at_once() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", lines(8));
    let mut got = Vec::new();
    thread::scope(|s| {
        let waits = s.spawn(|| receiver.recv_many(&mut got, 100).expect("the first"));
        sender.send((filled(&pool, 16, 0), 0)).expect("send");
        assert_eq!(waits.join().expect("no panic"), 1);
    });
    for round in 1..20u64 {
        // As many as the ring has lines.
        for word in [8 * round, 8 * round + 4] {
            sender.send((filled(&pool, 16, 1), word)).expect("room");
            sender.send((b"inline", word + 1)).expect("room");
            let given = pool.copy(&[2; 16]).expect("a buffer");
            sender.send((given, word + 2)).expect("room");
            let pieces = pieces([filled(&pool, 16, 3)]);
            sender.send((pieces, word + 3)).expect("room");
        }
        assert!(sender.try_send(b"").is_err(), "it is full");
        got.clear();
        assert_eq!(receiver.recv_many(&mut got, 0).expect("none"), 0);
        assert_eq!(receiver.recv_many(&mut got, 2).expect("two"), 2);
        assert_eq!(sender.queued(), 6);
        assert_eq!(receiver.recv_many(&mut got, 100).expect("the rest"), 6);
        let words: Vec<u64> = got.iter().map(|message| message.word).collect();
        assert!(words.iter().copied().eq(8 * round..8 * round + 8));
        assert_eq!(sender.queued(), 0);
    }
    sender.send((filled(&pool, 16, 1), 1)).expect("room");
    drop(sender);
    got.clear();
    assert_eq!(receiver.recv_many(&mut got, 100).expect("the last"), 1);
    let error = receiver.recv_many(&mut got, 100).expect_err("closed");
    assert_eq!((error.kind(), got.len()), (ErrorKind::PeerGone, 1));
}

/// Every kind goes in a batch, in order, past a ring that is smaller; without waiting as many go as there is room for.
#[test]
fn many_of_every_kind_are_sent_at_once() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", lines(8).wait(Wait::Sleep));
    let body = |i: u64| {
        let bytes = [u8::try_from(i % 100).expect("small"); 16];
        match i % 5 {
            0 => Body::Buffer(pool.copy(&bytes).expect("a buffer").freeze()),
            1 => Body::BufferMut(pool.copy(&bytes).expect("a buffer")),
            2 => Body::Inline(bytes[..].try_into().expect("short")),
            3 => {
                let mut pieces = tranship_core::Aggregate::new();
                let piece = pool.copy(&bytes).expect("a buffer").freeze();
                pieces.push_back(piece).expect("room");
                Body::Aggregate(pieces)
            }
            _ => {
                let mut pieces = tranship_core::AggregateMut::new();
                pieces
                    .push_back(pool.copy(&bytes).expect("a buffer"))
                    .expect("room");
                Body::AggregateMut(pieces)
            }
        }
    };
    let mut got = Vec::new();
    thread::scope(|s| {
        let bodies: Vec<_> = (0..100).map(|i| (body(i), i)).collect();
        let sends = s.spawn(|| sender.send_many(bodies).expect("room comes"));
        while got.len() < 100 {
            receiver.recv_many(&mut got, 5).expect("they come");
        }
        assert_eq!(sends.join().expect("no panic"), 100);
    });
    for (message, i) in got.drain(..).zip(0u8..) {
        assert_eq!((message.word, message.to_vec()), (i.into(), vec![i; 16]));
    }
    assert_eq!(receiver.try_recv_many(&mut got, 5).expect("open"), 0);
    let failed = sender.try_send_many((0..20).map(|i| (body(i), i)));
    let failed = failed.expect_err("eight lines");
    assert_eq!(failed.kind(), ErrorKind::Full);
    let rest: Vec<u64> = failed.unsent.iter().map(|(_, word)| *word).collect();
    assert!(rest.iter().copied().eq(8..20), "{rest:?}");
    assert_eq!(receiver.try_recv_many(&mut got, 3).expect("some"), 3);
    assert_eq!(receiver.try_recv_many(&mut got, 30).expect("the rest"), 5);
    assert!(got.iter().map(|message| message.word).eq(0..8));
    sender.set_when_full(WhenFull::DropNew);
    let sent = sender.send_many((0..20).map(|i| (body(i), i)));
    assert_eq!((sent.expect("dropped"), sender.status().dropped), (8, 12));
    drop(sender);
    assert_eq!(receiver.try_recv_many(&mut got, 30).expect("the last"), 8);
    let error = receiver.try_recv_many(&mut got, 30).expect_err("closed");
    assert_eq!((error.kind(), got.len()), (ErrorKind::PeerGone, 16));
}

/// A receiver that sleeps is told of a batch whose list of pieces waits for the memory that the batch's first messages hold.
#[test]
fn a_batch_waits_for_no_memory_of_messages_that_nobody_knows_of() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let lists = self::pool(&a, 1);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", lines(8).wait(Wait::Sleep));
    let all = lists.alloc(CHUNK).expect("all of it").freeze();
    let mut pieces = pieces([filled(&pool, 16, 1)]);
    pieces.set_list_pool(&lists);
    thread::scope(|s| {
        let sends = s.spawn(|| sender.send_many([Body::Buffer(all), Body::Aggregate(pieces)]));
        drop(receiver.recv().expect("the first")); // and its memory is free
        assert_eq!(receiver.recv().expect("the pieces").to_vec(), [1; 16]);
        assert_eq!(sends.join().expect("no panic").expect("both"), 2);
    });
}

/// Also where the program's own iterator panics.
#[test]
fn what_was_sent_of_a_batch_that_panics_is_told() {
    let (_dog, a, b) = pair();
    let (mut sender, mut receiver) = link_with(&a, &b, "x", lines(8).wait(Wait::Sleep));
    thread::scope(|s| {
        let receives = s.spawn(|| receiver.recv().expect("the first").to_vec());
        let send = || {
            let words = [&b"0"[..], b"1"].into_iter();
            sender.send_many(words.inspect(|word| assert_eq!(*word, b"0", "as wanted")))
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(send)).is_err());
        assert_eq!(receives.join().expect("no panic"), b"0");
    });
}

#[test]
fn full_is_an_error_that_gives_the_buffer_back() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", lines(4));
    sender.assign(&pool).expect("assign");
    for i in 0..4 {
        sender.send(filled(&pool, 16, i)).expect("room");
    }
    assert_eq!(sender.queued(), 4);
    let error = sender.try_send(filled(&pool, 16, 9)).expect_err("full");
    assert!(matches!(
        error.error.find(),
        Some(&RingFull { lines: 4, .. })
    ));
    assert_eq!(error.error.kind(), ErrorKind::Full);
    let back = error.unsent;
    assert_eq!(back.bytes(), Some(&[9u8; 16][..]));
    assert!(sender.try_send(b"").is_err());
    assert_eq!(receiver.recv().expect("recv").to_vec(), [0; 16]);
    sender.send(back).expect("room for one");
    for _ in 0..2 {
        receiver.recv().expect("recv");
    }
    let foreign = self::pool(&b, 1);
    let many = [10, 11].map(|i| filled(&pool, 16, i));
    let wrong = [12, 13].map(|i| filled(&foreign, 16, i));
    let rest = sender.send_many(many.into_iter().chain(wrong));
    let rest = rest.expect_err("b's");
    let unsent: Vec<_> = rest.unsent.iter().map(|buf| buf.to_vec()[0]).collect();
    assert_eq!(unsent, [12, 13], "in order");
    let got: Vec<_> = (0..4)
        .map(|_| receiver.recv().expect("recv").to_vec()[0])
        .collect();
    assert_eq!(got, [3, 9, 10, 11]);
}

#[test]
fn full_may_wait_a_while_or_drop_the_new_one() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    for (n, wait) in [Wait::Sleep, Wait::Spin].into_iter().enumerate() {
        let (mut sender, mut receiver) = link_with(&a, &b, &format!("x{n}"), lines(2).wait(wait));
        sender.assign(&pool).expect("assign");
        sender.send(b"0").expect("room");
        sender.send((b"1", 1)).expect("room");
        let begun = Instant::now();
        let error = sender.send_timeout(filled(&pool, 16, 2), Duration::from_millis(30));
        let error = error.expect_err("full");
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert!(matches!(error.error.find(), Some(&RingFull { waited_ms, .. }) if waited_ms >= 20));
        sender.set_when_full(WhenFull::DropNew);
        for _ in 0..5 {
            sender.send(filled(&pool, 16, 3)).expect("dropped");
        }
        sender
            .send_many([filled(&pool, 16, 4), filled(&pool, 16, 5)])
            .expect("dropped");
        assert_eq!(sender.status().dropped, 7);
        // What holds for one send holds for no other.
        let now = sender.try_send(filled(&pool, 16, 7)).expect_err("full");
        assert_eq!(now.kind(), ErrorKind::Full);
        let soon = Duration::from_millis(1);
        let soon = sender.send_timeout(filled(&pool, 16, 8), soon);
        assert_eq!(soon.expect_err("full").kind(), ErrorKind::Full);
        sender.send(filled(&pool, 16, 9)).expect("dropped");
        assert_eq!(sender.status().dropped, 8);
        assert_eq!(receiver.recv().expect("recv").word, 0);
        sender.send((filled(&pool, 16, 6), 6)).expect("room");
        assert_eq!(receiver.recv().expect("recv").word, 1);
        assert_eq!(receiver.recv().expect("recv").word, 6);
        assert!(receiver.try_recv().expect("open").is_none());
        assert_eq!(sender.status().dropped, 8);
    }
    // What was dropped is free again.
    drop(pool.alloc_now(4 * CHUNK).expect("all of it"));
}

/// A receiver that is gone would never take a message again.
#[test]
fn nothing_is_dropped_for_a_receiver_that_is_gone() {
    let (_dog, _a, _b, mut sender, receiver) = linked();
    sender.set_when_full(WhenFull::DropNew);
    drop(receiver);
    let mut sent = Ok(Outcome::Sent);
    until(|| {
        sent = sender.send((b"1", 1));
        sent.is_err()
    });
    let error = sent.expect_err("nobody takes it");
    assert!(error.error.kind() == ErrorKind::PeerGone, "{error}");
}

#[test]
fn receiving_with_a_time_limit() {
    let (_dog, a, b) = pair();
    for wait in [Wait::Sleep, Wait::Spin, Wait::SpinThenSleep(5)] {
        let (mut sender, mut receiver) = link_with(&a, &b, "x", lines(256).wait(wait));
        assert!(receiver.try_recv().expect("open").is_none());
        let error = receiver
            .recv_timeout(Duration::from_millis(20))
            .expect_err("nothing");
        assert!(
            matches!(error.find(), Some(&TimedOut { awaited: Awaited::Message, waited_ms }) if waited_ms >= 20),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        sender.send((b"x", 7)).expect("send");
        assert!(receiver.is_ready());
        assert_eq!(
            receiver.recv_timeout(Duration::ZERO).expect("there").word,
            7
        );
    }
}

#[test]
fn both_ends_know_each_other() {
    let (_dog, a, b, sender, receiver) = linked();
    assert_eq!(
        (sender.status().peer, receiver.status().peer),
        (b.id(), a.id())
    );
    assert_eq!(sender.status().channel, receiver.status().channel);
    // SAFETY: no arguments.
    let uid = unsafe { libc::getuid() };
    for status in [sender.status(), receiver.status()] {
        assert_eq!(
            (status.peer_pid, status.peer_uid),
            (std::process::id(), uid)
        );
    }
    assert!(!sender.status().peer_gone);
}

#[test]
fn a_name_may_be_opened_before_it_is_exported() {
    let (_dog, a, b) = pair();
    // Both orders come about, the early one nearly always.
    for round in 0..20 {
        let name = format!("later {round}");
        thread::scope(|s| {
            let early = s.spawn(|| b.open::<Receiver>(&name));
            let soon = ChannelOptions::new().timeout(Duration::from_millis(10));
            a.open_with::<Receiver>("never", soon)
                .expect_err("a while passes");
            assert!(!early.is_finished());
            let listener = a.listen::<Sender>(&name).expect("listen");
            let mut sender = listener.accept().expect("accept");
            let mut receiver = early.join().expect("opener").expect("open");
            sender.send(b"at last").expect("send");
            assert_eq!(receiver.recv().expect("recv").to_vec(), b"at last");
        });
    }
}

#[test]
fn opening_and_accepting_may_time_out_and_leave_nothing() {
    let (_dog, a, b) = pair();
    let soon = ChannelOptions::new().timeout(Duration::from_millis(30));
    let timed_out = |error: &Error, what: Awaited| {
        assert!(
            matches!(error.find(), Some(TimedOut { awaited, waited_ms }) if *awaited == what && *waited_ms >= 20),
            "{error}"
        );
        assert!(error.to_string().ends_with(&what.to_string()), "{error}");
    };
    let error = b.open_with::<Receiver>("never", soon).expect_err("nobody");
    timed_out(&error, Awaited::Offer("never".into()));
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // The request is withdrawn: a domain that exports the name now gets no connection.
    let listener = a.listen::<Sender>("never").expect("listen");
    let error = listener
        .accept_timeout(Duration::from_millis(30))
        .expect_err("nobody");
    timed_out(&error, Awaited::Connection("never".into()));
}

#[test]
fn a_name_serves_many_in_both_roles() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let listener = a.listen::<Receiver>("in").expect("listen");
    thread::scope(|s| {
        for (who, n) in [(&b, 1), (&c, 2), (&b, 3)] {
            s.spawn(move || {
                let mut sender = who.open::<Sender>("in").expect("open");
                sender.send((b"", n)).expect("send");
            });
        }
        let mut seen: Vec<_> = (0..3)
            .map(|_| {
                listener
                    .accept()
                    .expect("accept")
                    .recv()
                    .expect("recv")
                    .word
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3]);
    });
}

#[test]
fn wrong_names_roles_and_numbers_are_refused() {
    let (_dog, a, b) = pair();
    let _taken = a.listen::<Sender>("x").expect("listen");
    let error = b.listen::<Sender>("x").expect_err("taken");
    is_refused(&error, RefusalCode::NameTaken);
    assert_eq!(error.kind(), ErrorKind::NameTaken);
    let error = b.open::<Sender>("x").expect_err("two sources");
    is_refused(&error, RefusalCode::Role);
    let control = |found, at| BadName::Control { found, at };
    for (name, why) in [
        ("", BadName::Length { bytes: 0 }),
        (&"n".repeat(65), BadName::Length { bytes: 65 }),
        ("ab\ncd\t", control('\n', 2)),
        ("\u{e9}\u{85}", control('\u{85}', 2)),
        (
            "a\u{202e}b",
            BadName::Unseen {
                found: '\u{202e}',
                at: 1,
            },
        ),
        (
            "a\u{301}\u{301}\u{301}\u{301}\u{301}",
            BadName::Marks { at: 9 },
        ),
    ] {
        for error in [
            a.listen::<Receiver>(name).expect_err("name"),
            b.open::<Sender>(name).expect_err("name"),
            a.create_pool(PoolOptions::new(1 << 20).name(name))
                .expect_err("name"),
        ] {
            assert_eq!(error.kind(), ErrorKind::BadArgument);
            assert_eq!(error.find(), Some(&why), "{error}");
        }
    }
    assert_eq!(
        control('\n', 2).to_string(),
        r"a name has no control characters, this one has '\n' at byte 2"
    );
    for n in [0, 1, 3, 100, 1 << 17] {
        let error = b.open_with::<Receiver>("x", lines(n)).expect_err("lines");
        assert!(matches!(error.find(), Some(&OutOfRange { value, .. }) if value == u64::from(n)));
    }
}

#[test]
fn who_does_not_wait_is_told_that_the_receiver_has_not_consented_yet() {
    let (_dog, a, b) = bare_pair();
    let pool = pool(&a, 4);
    let (mut sender, mut receiver) = link(&a, &b, "x");
    // Nobody turns for b.
    for byte in 1..=3 {
        let error = sender
            .try_send(filled(&pool, 100, byte))
            .expect_err("consent");
        assert_eq!(error.error.kind(), ErrorKind::PoolPending, "{error}");
        assert!(matches!(error.error.find(), Some(&PoolPending { .. })));
        let back = error.unsent;
        assert_eq!(back.to_vec(), [byte; 100]);
    }
    // The request goes on: with the receiver's answer the pool is assigned, and its buffers come round.
    until(|| {
        let sent = sender.try_send(filled(&pool, 100, 9)).is_ok();
        b.turn().expect("turn");
        sent
    });
    assert_eq!(buf(receiver.recv().expect("recv")).to_vec(), [9; 100]);
    for i in 0..1000u64 {
        sender.send((filled(&pool, CHUNK / 2, 1), i)).expect("send");
        assert_eq!(receiver.recv().expect("recv").word, i);
    }
    // One that is never answered leaves with its end.
    let other = a.create_pool(tranship_core::PoolOptions::new(1 << 20));
    let other = other.expect("pool");
    let error = sender.try_send(filled(&other, 1, 1)).expect_err("consent");
    assert_eq!(error.error.kind(), ErrorKind::PoolPending, "{error}");
    assert!(!sender.try_assign(&other).expect("asked"));
    let late = sender.assign_timeout(&other, Duration::from_millis(1));
    let late = late.expect_err("nobody turns for b");
    assert!(
        matches!(late.find(), Some(TimedOut { awaited: Awaited::Consent(of), .. }) if *of == other.id()),
        "{late}"
    );
    drop(error);
    drop(sender);
    until(|| {
        a.turn().expect("turn");
        receiver
            .try_recv()
            .is_err_and(|error| error == ErrorKind::PeerGone)
    });
}

#[test]
fn a_pool_is_assigned_within_a_time() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 1);
    let long = Duration::from_secs(1000);
    for _ in 0..2 {
        sender
            .assign_timeout(&pool, long)
            .expect("b has a thread that agrees");
    }
    sender.try_send(filled(&pool, 100, 5)).expect("assigned");
    assert_eq!(buf(receiver.recv().expect("recv")).to_vec(), [5; 100]);
    drop(receiver);
    until(|| sender.status().peer_gone);
    let other = self::pool(&a, 1);
    let gone = sender.assign_timeout(&other, long).expect_err("gone");
    assert_eq!(gone.kind(), ErrorKind::PeerGone, "{gone}");
}

#[test]
fn a_receiver_may_refuse_a_pool() {
    let (_dog, a, b) = pair();
    let (small, large) = (pool(&a, 1), pool(&a, 2));
    let writer = a.id();
    let options = ChannelOptions::new()
        .accept_pools(move |offer| offer.writer == writer && offer.max_bytes <= CHUNK as u64);
    let (mut sender, mut receiver) = link_with(&a, &b, "picky", options);
    let error = sender.send(filled(&large, 100, 1)).expect_err("too large");
    is_refused(&error.error, RefusalCode::PeerGone);
    // The link goes on with what is wanted.
    sender.send(filled(&small, 100, 2)).expect("send");
    assert_eq!(buf(receiver.recv().expect("recv")).to_vec(), [2; 100]);
    assert!(sender.assign(&large).is_err());
}

/// Bad options are refused where they are given, with valid values, and not at a client that could not change them.
#[test]
fn bad_options_are_refused_where_they_are_given() {
    let (_dog, a, _b) = pair();
    let own = pool(&a, 1);
    let arrivals = || PoolOptions::new(1 << 20).slots(16);
    let bad = [
        (lines(0), "2 to 65536"),
        (lines(1), "2 to 65536"),
        (lines(3), "2 to 65536"),
        (lines(1 << 17), "2 to 65536"),
        (ChannelOptions::new().arrivals(arrivals().slots(0)), "slots"),
        (
            ChannelOptions::new().arrivals(PoolOptions::new(0)),
            "maximum",
        ),
        (
            ChannelOptions::new().arrivals(arrivals().chunk_bytes(5)),
            "chunk size",
        ),
        (
            ChannelOptions::new().arrivals(arrivals().align(3)),
            "alignment",
        ),
        (
            ChannelOptions::new().arrivals(arrivals().preallocate(1 << 30)),
            "begin with",
        ),
        (ChannelOptions::new().arrivals(arrivals().name("")), "name"),
        (
            ChannelOptions::new()
                .arrivals(arrivals())
                .snapshots(own.id()),
            "not both",
        ),
    ];
    for (options, why) in bad {
        for address in ["x", "local:x"] {
            let refused = [
                a.listen_with::<Receiver>(address, options.clone()).err(),
                a.listen_with::<Sender>(address, options.clone()).err(),
                // Nobody listens: it would wait.
                a.open_with::<Sender>(address, options.clone()).err(),
                a.open_with::<Receiver>(address, options.clone()).err(),
            ];
            for error in refused {
                let error = error.expect("a refusal");
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{options:?}: {error}");
                assert!(error.to_string().contains(why), "{options:?}: {error}");
            }
        }
    }
}

/// Of all that waits the receiver has the last one, and knows how many it has skipped; what it skipped is free again.
#[test]
fn who_wants_the_newest_gets_it() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 8);
    for address in ["x", "local:x"] {
        let to = if address == "x" { &b } else { &a };
        let options = lines(16).when_full(WhenFull::DropOldest);
        let (mut sender, mut receiver) = link_with(&a, to, address, options);
        sender.assign(&pool).expect("assign");
        let mut number = 0;
        let mut send = |sender: &mut Sender, count: u64| {
            for _ in 0..count {
                number += 1;
                let sent = match number % 4 {
                    0 => sender.send((b"few", number)).expect("send"),
                    1 => sender
                        .send((filled(&pool, CHUNK / 4, 1), number))
                        .expect("send"),
                    2 => sender.send((filled(&pool, 16, 1), number)).expect("send"),
                    _ => {
                        let buf = pool.alloc(16).expect("alloc");
                        sender.send((buf, number)).expect("send")
                    }
                };
                assert_eq!(sent, Outcome::Sent);
            }
            number
        };
        let mut skipped = 0;
        for count in [1, 2, 16, 1, 7] {
            let last = send(&mut sender, count);
            assert_eq!(receiver.recv().expect("recv").word, last, "{address}");
            assert!(receiver.try_recv().expect("open").is_none());
            skipped += count - 1;
            assert_eq!(receiver.status().dropped, skipped, "{address}");
        }
        uses(&pool, 0);
        // A full ring refuses the newest, and says so.
        let last = send(&mut sender, 16);
        let refused = sender.send(b"more").expect("dropped");
        assert_eq!((refused, sender.status().dropped), (Outcome::Dropped, 1));
        assert_eq!(receiver.recv().expect("recv").word, last);
        // Nothing is skipped for what was sent otherwise.
        send(&mut sender, 2);
        sender.set_when_full(WhenFull::Wait);
        let first = send(&mut sender, 1);
        send(&mut sender, 1);
        assert_eq!(receiver.recv().expect("recv").word, first);
        assert_eq!(receiver.recv().expect("recv").word, first + 1);
        // The last one before the end is had, too.
        sender.set_when_full(WhenFull::DropOldest);
        let last = send(&mut sender, 5);
        drop(sender);
        assert_eq!(receiver.recv().expect("recv").word, last);
        assert_eq!(
            receiver.recv().expect_err("over").kind(),
            ErrorKind::PeerGone
        );
    }
}

/// A receiver that has still to agree to a pool is not behind: a protocol that counts on its first message would wait
/// for ever.
#[test]
fn the_first_message_of_a_pool_is_not_dropped() {
    let _dog = dog();
    for when_full in [WhenFull::DropNew, WhenFull::DropOldest] {
        let a = embedded();
        // It has no helper thread: it agrees when it receives.
        let b = bare(&a.socket_path().expect("socket"), "b");
        let pool = pool(&a, 1);
        let options = lines(2).when_full(when_full);
        let (mut sender, mut receiver) = link_with(&a, &b, "x", options);
        thread::scope(|s| {
            let sends = s.spawn(|| sender.send((filled(&pool, 16, 1), 7)).expect("send"));
            let got = receiver.recv().expect("recv");
            assert_eq!((got.word, got.to_vec()), (7, vec![1; 16]));
            assert_eq!(sends.join().expect("no panic"), Outcome::Sent);
        });
        assert_eq!(sender.status().dropped, 0);
    }
}
