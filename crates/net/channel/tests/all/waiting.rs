//! Waiting for channels, listeners and foreign descriptors together, and awaiting them.

use crate::kit::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tranship_core::{ChannelOptions, ErrorKind, PollItem, Receiver, Sender, poll};

#[test]
fn a_channel_and_a_socket_together() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("poll") {
        let (mut to, mut from) = world.channel(&address);
        let (near, mut far) = UnixStream::pair().expect("pair");
        let mut items = [PollItem::receiver(&mut from), PollItem::readable(&near)];
        let none = poll(&mut items, Some(Duration::from_millis(10))).expect("poll");
        assert_eq!(none, [0usize; 0], "{address}");
        thread::scope(|scope| {
            scope.spawn(|| to.send(b"x").expect("send"));
            assert_eq!(poll(&mut items, None).expect("poll"), [0], "{address}");
        });
        assert_eq!(
            from.try_recv()
                .expect("recv")
                .expect("it is there")
                .to_vec(),
            b"x"
        );
        let mut items = [PollItem::receiver(&mut from), PollItem::readable(&near)];
        thread::scope(|scope| {
            scope.spawn(|| far.write_all(b"y").expect("write"));
            assert_eq!(poll(&mut items, None).expect("poll"), [1], "{address}");
        });
        let mut items = [PollItem::receiver(&mut from)];
        thread::scope(|scope| {
            scope.spawn(|| drop(to));
            assert_eq!(poll(&mut items, None).expect("poll"), [0], "{address}");
        });
        assert_eq!(
            from.try_recv().expect_err("closed").kind(),
            ErrorKind::PeerGone,
            "{address}"
        );
    }
}

#[test]
fn listeners_and_receivers_of_all_addresses_together() {
    let _dog = dog();
    let world = World::new();
    let addresses = world.addresses("together");
    let listen = |address: &String| world.b.listen::<Receiver>(address).expect("listen");
    let listeners: Vec<_> = addresses.iter().map(listen).collect();
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for (at, address) in addresses.iter().enumerate() {
        thread::scope(|scope| {
            let sender = scope.spawn(|| world.a.open::<Sender>(address).expect("open"));
            let mut items: Vec<_> = listeners.iter().map(PollItem::listener).collect();
            assert_eq!(poll(&mut items, None).expect("poll"), [at], "{address}");
            receivers.push(listeners[at].accept().expect("accept"));
            senders.push(sender.join().expect("no panic"));
        });
    }
    for (at, sender) in senders.iter_mut().enumerate() {
        sender.send(&[1]).expect("send");
        let mut all: Vec<_> = receivers.iter_mut().map(PollItem::receiver).collect();
        assert_eq!(
            poll(&mut all, None).expect("poll"),
            [at],
            "{}",
            addresses[at]
        );
        assert_eq!(receivers[at].recv().expect("recv").to_vec(), [1]);
    }
}

#[test]
fn awaiting() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("await") {
        let listener = world.b.listen::<Receiver>(&address).expect("listen");
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let opened = world
                    .a
                    .open_async::<Sender>(&address, ChannelOptions::new());
                let mut to = block_on(opened).expect("open");
                let pool = pool(&world.a, 1 << 20);
                block_on(async {
                    // More messages than fit at once.
                    for number in 0..1000 {
                        let buf = pool.copy(&pattern(number, 500)).expect("alloc");
                        to.send_async((buf.freeze(), number)).await.expect("send");
                    }
                    to.wait_taken_async().await.expect("taken");
                });
            });
            block_on(async {
                let mut from = listener.accept_async().await.expect("accept");
                for number in 0..1000 {
                    let message = from.recv_async().await.expect("recv");
                    assert_eq!(message.word, number, "{address}");
                    assert!(message.to_vec() == pattern(number, 500), "{address}");
                }
                let end = from.recv_async().await.expect_err("closed");
                assert_eq!(end.kind(), ErrorKind::PeerGone, "{address}: {end}");
            });
            sender.join().expect("no panic");
        });
    }
}

/// Threads of this process that open.
fn openers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| task.ok().and_then(|task| name(task).ok()));
    names.filter(|name| name.trim() == "tranship-open").count()
}

/// No process listens, and no caller waits for it any more: no thread goes on trying.
#[test]
fn an_opening_that_is_dropped_ends() {
    let _dog = dog();
    let world = World::new();
    for address in world.carried("unwanted") {
        let mut opening = world
            .a
            .open_async::<Sender>(&address, ChannelOptions::new());
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(&mut opening).poll(&mut context).is_pending());
        while openers() == 0 {
            thread::yield_now();
        }
        drop(opening);
        while openers() > 0 {
            thread::yield_now();
        }
    }
}
