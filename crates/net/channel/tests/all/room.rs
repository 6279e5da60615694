//! Back-pressure: a receiver that does not receive stops its sender, and nobody's memory grows meanwhile.

use crate::kit::*;
use crate::messages::{check, send};
use std::thread;
use std::time::Duration;
use tranship_core::admin::StatRecord;
use tranship_core::error::RingFull;
use tranship_core::{Aggregate, ChannelOptions, Domain, ErrorKind, PoolOptions, WhenFull};

/// Returns the bytes that pools of that name were granted.
fn granted(domain: &Domain, name: &str) -> u64 {
    let all = domain.admin().stat().expect("stat");
    let of = |record: StatRecord| match record {
        StatRecord::Pool(pool) if pool.name == name => pool.granted_bytes,
        _ => 0,
    };
    all.into_iter().map(of).sum()
}

#[test]
fn a_receiver_that_does_not_receive_stops_its_sender() {
    const LINES: u32 = 8;
    const BYTES: usize = 50_000;
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("slow") {
        let options = || ChannelOptions::new().lines(LINES);
        let (mut to, mut from) = world.channel_with(&address, options(), options());
        let pool = pool(&world.a, 16 << 20);
        to.assign(&pool).expect("the receiver's domain agrees");
        let mut sent = 0u64;
        // Both ends hold so many messages, and not one more: the channel has come to rest once it was full for a while.
        let mut fulls = 0;
        while fulls < 20 {
            let buf = pool.copy(&pattern(sent, BYTES)).expect("alloc");
            match to.try_send((buf.freeze(), sent)) {
                Ok(_) => (sent, fulls) = (sent + 1, 0),
                Err(failed) => {
                    assert_eq!(failed.kind(), ErrorKind::Full, "{address}: {failed}");
                    fulls += 1;
                    // Messages that the carriers have count as taken.
                    let _ = to.wait_taken(Duration::from_millis(20));
                }
            }
        }
        assert!(sent <= 3 * u64::from(LINES), "{address}: {sent} messages");
        // A sender that waits goes on when there is room.
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in sent..sent + 100 {
                    let buf = pool.copy(&pattern(number, BYTES)).expect("alloc");
                    to.send((buf.freeze(), number)).expect("send");
                }
            });
            for number in 0..sent + 100 {
                let message = from.recv().expect("recv");
                assert_eq!(message.word, number, "{address}");
                assert!(message.to_vec() == pattern(number, BYTES), "{address}");
            }
        });
    }
}

/// A sender that would rather lose messages than wait loses whole ones and knows how many. The rest arrives in order.
#[test]
fn what_is_dropped_is_counted() {
    const LINES: u32 = 8;
    const MESSAGES: u64 = 200;
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("drops") {
        let options = || ChannelOptions::new().lines(LINES);
        let drops = options().when_full(WhenFull::DropNew);
        let (mut to, mut from) = world.channel_with(&address, drops, options());
        let pool = pool(&world.a, 16 << 20);
        to.assign(&pool).expect("the receiver's domain agrees");
        for number in 0..MESSAGES {
            send(&mut to, &pool, number); // of every kind
        }
        let dropped = to.status().dropped;
        // The messages that both ends hold were not dropped.
        let most = MESSAGES - u64::from(LINES);
        let least = MESSAGES - 3 * u64::from(LINES);
        assert!(
            (least..=most).contains(&dropped),
            "{address}: {dropped} dropped"
        );
        let closes = thread::spawn(move || drop(to));
        let (mut came, mut next) = (0, 0);
        let end = loop {
            match from.recv() {
                Ok(message) => {
                    assert!(message.word >= next, "{address}: {} late", message.word);
                    check(&address, message.word, &message);
                    (came, next) = (came + 1, message.word + 1);
                }
                Err(end) => break end,
            }
        };
        assert_eq!(end.kind(), ErrorKind::PeerGone, "{address}: {end}");
        assert_eq!(came + dropped, MESSAGES, "{address}");
        closes.join().expect("no panic");
    }
}

/// A sender that waits for some time has its buffer back after it, and not before.
#[test]
fn a_sender_waits_as_long_as_it_says() {
    const LINES: u32 = 8;
    const BYTES: usize = 20_000;
    const TIME: Duration = Duration::from_millis(50);
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("waits") {
        let options = || ChannelOptions::new().lines(LINES);
        let (mut to, mut from) = world.channel_with(&address, options(), options());
        let pool = pool(&world.a, 16 << 20);
        to.assign(&pool).expect("the receiver's domain agrees");
        let mut sent = 0u64;
        let failed = loop {
            let buf = pool.copy(&pattern(sent, BYTES)).expect("alloc");
            match to.send_timeout((buf, sent), TIME) {
                Ok(_) => sent += 1,
                Err(failed) => break failed,
            }
        };
        assert!(sent <= 3 * u64::from(LINES), "{address}: {sent} messages");
        assert_eq!(failed.kind(), ErrorKind::Full, "{address}: {failed}");
        let full = failed.error.find::<RingFull>().expect("the figures");
        assert!(
            full.waited_ms >= 50 && full.lines == LINES,
            "{address}: {full:?}"
        );
        assert!(
            failed.unsent.0.to_vec() == pattern(sent, BYTES),
            "{address}"
        );
        // Within its time it goes.
        thread::scope(|scope| {
            let (to, unsent) = (&mut to, failed.unsent);
            let long = Duration::from_secs(1000);
            scope.spawn(move || to.send_timeout(unsent, long).expect("there is room"));
            for number in 0..=sent {
                let message = from.recv().expect("recv");
                assert_eq!(message.word, number, "{address}");
                assert!(message.to_vec() == pattern(number, BYTES), "{address}");
            }
        });
    }
}

/// A receiver that holds all that it got stops its sender, too: its pool is all that there is.
#[test]
fn a_receiver_that_keeps_everything_stops_its_sender() {
    const BYTES: usize = 100_000;
    let _dog = dog();
    let world = World::new();
    for address in world.carried("keeps") {
        let options = PoolOptions::new(1 << 20).name("kept");
        let copies = world.b.create_pool(options).expect("pool");
        let receives = ChannelOptions::new().snapshots(copies.id());
        let (mut to, mut from) = world.channel_with(&address, ChannelOptions::new(), receives);
        let pool = pool(&world.a, 16 << 20);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..60 {
                    let buf = pool.copy(&pattern(number, BYTES)).expect("alloc");
                    to.send((buf.freeze(), number)).expect("send");
                }
            });
            let mut kept = Vec::new();
            for number in 0..60 {
                let message = match from.recv_timeout(Duration::from_millis(200)) {
                    Ok(message) => message,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TimedOut, "{address}: {error}");
                        let granted = granted(&world.b, "kept");
                        assert!(granted <= copies.max_bytes(), "{address}: {granted} bytes");
                        kept.clear();
                        from.recv().expect("recv")
                    }
                };
                assert!(
                    message.to_vec() == pattern(number, BYTES),
                    "{address}: {number}"
                );
                kept.push(message);
            }
        });
    }
}

/// A sink cannot hold an aggregate of more pieces than its pool has buffers, which only shows when they come.
#[test]
fn an_aggregate_that_never_fits() {
    let _dog = dog();
    let world = World::new();
    for address in world.carried("pieces") {
        let few = PoolOptions::new(1 << 20).slots(64);
        let copies = world.b.create_pool(few).expect("pool");
        let receives = ChannelOptions::new().snapshots(copies.id());
        let (mut to, mut from) = world.channel_with(&address, ChannelOptions::new(), receives);
        let pool = pool(&world.a, 8 << 20);
        let mut pieces = Aggregate::new();
        for _ in 0..200 {
            let piece = pool.copy(b"piece").expect("alloc").freeze();
            pieces.push_back(piece).expect("room");
        }
        to.send(pieces).expect("send");
        let end = from.recv().expect_err("no room");
        assert_eq!(end.kind(), ErrorKind::PeerDied, "{address}: {end}");
        assert!(end.to_string().contains("200 pieces"), "{address}: {end}");
        while !to.status().peer_gone {
            thread::yield_now();
        }
        let why = to.send(b"").expect_err("over").error;
        assert_eq!(why.kind(), ErrorKind::PeerGone, "{address}: {why}");
        assert!(why.to_string().contains("TooLarge"), "{address}: {why}");
    }
}

/// A message that the receiver can never hold is the sender's error, at once, and the channel goes on.
#[test]
fn a_message_larger_than_the_receivers_memory() {
    let _dog = dog();
    let world = World::new();
    for address in world.carried("large") {
        let copies = pool(&world.b, 1 << 20);
        let receives = ChannelOptions::new().snapshots(copies.id());
        let (mut to, mut from) = world.channel_with(&address, ChannelOptions::new(), receives);
        let pool = pool(&world.a, 8 << 20);
        let large = pool.alloc((1 << 20) + 1).expect("alloc").freeze();
        let failed = to.send(large).expect_err("too large");
        assert_eq!(failed.kind(), ErrorKind::TooLarge, "{address}: {failed}");
        assert!(
            failed.to_string().contains("1048577"),
            "{address}: {failed}"
        );
        to.send(pool.copy(&[1; 1000]).expect("alloc").freeze())
            .expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), [1; 1000], "{address}");
    }
}
