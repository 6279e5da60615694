//! Every kind of message arrives in its form, in order, with its word.

use crate::kit::*;
use std::thread;
use tranship_core::{
    Aggregate, Body, ChannelOptions, ErrorKind, Message, Pool, Receiver, Sender, Trust,
};

#[test]
fn shared_buffers_of_any_size() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("shared") {
        let (mut to, mut from) = world.channel(&address);
        let pool = pool(&world.a, 8 << 20);
        for (number, len) in (0u64..).zip([0, 1, 40, 4096, 5000, 65_537, 1 << 20, 3 << 20]) {
            let bytes = pattern(number, len);
            let buf = pool.copy(&bytes).expect("alloc").freeze();
            to.send((buf, number)).expect("send");
            let message = from.recv().expect("recv");
            assert_eq!(message.word, number, "{address}");
            assert!(
                matches!(message.body, Body::Buffer(_)),
                "{address}: {message:?}"
            );
            assert!(message.to_vec() == bytes, "{address}: {len} bytes");
        }
        to.wait_taken(None).expect("all taken");
        drop(to);
        let end = from.recv().expect_err("closed");
        assert_eq!(end.kind(), ErrorKind::PeerGone, "{address}: {end}");
    }
}

/// Sends message `number`, whose kind changes with each.
pub(crate) fn send(to: &mut Sender, pool: &Pool, number: u64) {
    let bytes = expected(number);
    let buf = |bytes: &[u8]| pool.copy(bytes).expect("alloc");
    match number % 4 {
        0 => to.send((&bytes[..], number)).expect("inline"),
        1 => to.send((buf(&bytes).freeze(), number)).expect("shared"),
        2 => to.send((buf(&bytes), number)).expect("moved"),
        _ => {
            let mut all = Aggregate::new();
            for piece in bytes.chunks(1 + bytes.len() / 5) {
                all.push_back(buf(piece).freeze()).expect("room");
            }
            // Two pieces of one buffer, of which the second has no bytes.
            let same = buf(&bytes).freeze();
            all.push_back(same.slice(..7)).expect("room");
            all.push_back(same.slice(3..3)).expect("room");
            all.set_list_pool(pool);
            to.send((all, number)).expect("aggregate")
        }
    };
}

fn expected(number: u64) -> Vec<u8> {
    let len = match number % 4 {
        0 => usize::try_from(number % 41).expect("small"),
        _ => 8 + usize::try_from(number * 7919 % 40_000).expect("small"),
    };
    pattern(number, len)
}

pub(crate) fn check(address: &str, number: u64, message: &Message) {
    assert_eq!(message.word, number, "{address}");
    let mut bytes = expected(number);
    match (&message.body, number % 4) {
        (Body::Inline(_), 0) | (Body::Buffer(_), 1 | 2) | (Body::BufferMut(_), 2) => {}
        (Body::Aggregate(all), 3) => {
            let pieces = bytes.len().div_ceil(1 + bytes.len() / 5) + 2;
            assert_eq!(all.pieces().len(), pieces, "{address}: message {number}");
            bytes.extend_from_within(..7);
        }
        (body, _) => panic!("{address}: message {number} is {body:?}"),
    }
    assert!(message.to_vec() == bytes, "{address}: message {number}");
}

#[test]
fn all_kinds_mixed_on_one_channel() {
    const MESSAGES: u64 = 400;
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("mixed") {
        let options = || ChannelOptions::new().lines(16);
        let (mut to, mut from) = world.channel_with(&address, options(), options());
        let pool = pool(&world.a, 8 << 20);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..MESSAGES {
                    send(&mut to, &pool, number);
                }
                to.wait_taken(None).expect("all taken");
                drop(to);
            });
            for number in 0..MESSAGES {
                check(&address, number, &from.recv().expect("recv"));
            }
            let end = from.recv().expect_err("closed");
            assert_eq!(end.kind(), ErrorKind::PeerGone, "{address}: {end}");
        });
        drop(from);
        // Nothing is left behind: all of the pool can be had at once.
        let most = usize::try_from(pool.max_bytes()).expect("small");
        drop(pool.alloc(most).expect("all of it"));
    }
}

#[test]
fn at_every_level_of_trust() {
    let _dog = dog();
    let world = World::new();
    for trust in [Trust::None, Trust::Producer, Trust::Half, Trust::Full] {
        for address in world.addresses(&format!("level-{}", trust.name())) {
            let copies = pool(&world.b, 8 << 20);
            let receives = ChannelOptions::new().snapshots(copies.id());
            let (mut to, mut from) = world.channel_with(&address, ChannelOptions::new(), receives);
            let pool = pool_of(&world.a, 4 << 20, trust);
            for number in 0..8u64 {
                let bytes = pattern(number, 10_000);
                let mut buf = pool.alloc(bytes.len()).expect("alloc");
                buf.write(0, &bytes).expect("inside");
                match number % 2 {
                    0 => to.send((buf.freeze(), number)).expect("send"),
                    _ => to.send((buf, number)).expect("move"),
                };
                let message = from.recv().expect("recv");
                assert!(message.to_vec() == bytes, "{address}: {number}");
            }
        }
    }
}

/// A moved message is the receiver's to write, wherever no memory of another domain is under it.
#[test]
fn what_was_carried_is_ones_own() {
    let _dog = dog();
    let world = World::new();
    let mut addresses = world.carried("own");
    addresses.push("local:own".to_owned());
    for address in addresses {
        let (mut to, mut from) = world.channel(&address);
        let pool = pool(&world.a, 4 << 20);
        let buf = pool.copy(&pattern(1, 9000)).expect("alloc");
        to.send(buf).expect("move");
        let mut moved = from.recv().expect("recv").into_buffer_mut().expect("moved");
        moved.write(0, b"mine").expect("ours to write");
        assert_eq!(&moved.to_vec()[..4], b"mine", "{address}");
        let passed = from.send_back(moved);
        if address.starts_with("local:") {
            passed.expect("it goes back as it is");
            let back = to.try_recv_back().expect("no lie").expect("it is back");
            assert_eq!(&back.to_vec()[..4], b"mine");
        } else {
            let failed = passed.expect_err("it came as bytes");
            assert_eq!(failed.kind(), ErrorKind::BufferNotOwned, "{address}");
            assert_eq!(&failed.unsent.to_vec()[..4], b"mine");
        }
    }
}

/// A message that came over one channel goes on over another, and its holder is charged.
#[test]
fn what_was_carried_is_forwarded() {
    let _dog = dog();
    let world = World::new();
    for address in world.carried("first") {
        let copies = pool(&world.b, 4 << 20);
        let receives = ChannelOptions::new().snapshots(copies.id());
        let (mut to, mut from) = world.channel_with(&address, ChannelOptions::new(), receives);
        let listener = world.a.listen::<Receiver>("shm:second");
        let listener = listener.expect("listen");
        let (mut on, mut end) = thread::scope(|scope| {
            let on = scope.spawn(|| world.b.open::<Sender>("shm:second").expect("open"));
            let end = listener.accept().expect("accept");
            (on.join().expect("no panic"), end)
        });
        let bytes = pattern(3, 300_000);
        let buf = pool(&world.a, 4 << 20).copy(&bytes).expect("alloc");
        to.send(buf.freeze()).expect("send");
        let came = from.recv().expect("recv").into_buffer().expect("shared");
        assert_eq!(came.id().pool(), copies.id(), "{address}");
        on.send(came).expect("send on");
        assert!(end.recv().expect("recv").to_vec() == bytes, "{address}");
    }
}

fn control(to: &mut Sender) -> Message {
    loop {
        if let Some(message) = to.try_recv_back().expect("no lie") {
            return message;
        }
        thread::yield_now();
    }
}

#[test]
fn words_go_back() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("back") {
        let (mut to, mut from): (Sender, Receiver) = world.channel(&address);
        for number in 0..1000u64 {
            let bytes = pattern(number, usize::try_from(number % 41).expect("small"));
            from.send_back((&bytes[..], number)).expect("room");
            let message = control(&mut to);
            assert_eq!(
                (message.word, message.to_vec()),
                (number, bytes),
                "{address}"
            );
        }
        // With no program that takes the messages there is an end to them.
        let full = (0..).find_map(|n| from.send_back((b"more", n)).err());
        assert_eq!(
            full.map(|failed| failed.kind()),
            Some(ErrorKind::Full),
            "{address}"
        );
        to.send(b"still there").expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), b"still there");
    }
}
