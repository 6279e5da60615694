//! Waiting for many things at once: `poll`, and one descriptor for any epoll loop.

use crate::kit::*;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use tranship_core::admin::StatRecord;
use tranship_core::topics::Bell;
use tranship_core::{
    ChannelOptions, Domain, ErrorKind, PollItem, Receiver, Sender, poll as poll_set,
};

fn readable(domain: &Domain, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(domain, PollFlags::IN)];
    let time = Timespec::try_from(timeout).expect("short");
    matches!(poll(&mut fds, Some(&time)), Ok(1))
}

/// Until the domain's descriptor is quiet.
fn settle(domain: &Domain, links: &mut [&mut Receiver]) {
    loop {
        domain.turn().expect("turn");
        links.iter_mut().for_each(|link| link.disarm());
        if !readable(domain, Duration::ZERO) {
            return;
        }
    }
}

fn may_sleep(receiver: &mut Receiver) -> bool {
    receiver.arm().expect("pollable")
}

/// Beside a channel alone it is waited for on words, beside a descriptor on descriptors.
#[test]
fn a_bell_ends_a_wait_until_it_is_taken() {
    let (_dog, a, b) = pair();
    let (_sender, mut receiver) = link(&a, &b, "quiet");
    let (here, _there) = UnixStream::pair().expect("a pair");
    let bell = Bell::new().expect("a bell");
    let mut wait = |on_words: bool, timeout| {
        let mut items = vec![PollItem::receiver(&mut receiver), PollItem::bell(&bell)];
        if !on_words {
            items.push(PollItem::readable(&here));
        }
        poll_set(&mut items, timeout).expect("poll")
    };
    for on_words in [true, false, true] {
        thread::scope(|s| {
            s.spawn(|| bell.ring());
            assert_eq!(wait(on_words, None), [1]);
        });
        // It stays rung.
        assert_eq!(wait(!on_words, None), [1]);
        assert!(bell.take() && !bell.take());
        let brief = Some(Duration::from_millis(1));
        assert!(wait(true, brief).is_empty() && wait(false, brief).is_empty());
    }
}

#[test]
fn poll_finds_the_one_that_has_something() {
    let (_dog, a, b) = pair();
    let mut links: Vec<_> = (0..5).map(|n| link(&a, &b, &format!("s{n}"))).collect();
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = links.drain(..).unzip();
    let mut all: Vec<_> = receivers.iter_mut().collect();
    let begun = Instant::now();
    assert_eq!(first_ready(&mut all, Some(Duration::from_millis(20))), None);
    assert!(begun.elapsed() >= Duration::from_millis(20));
    for round in 0..100usize {
        let at = (round * 7) % 5;
        thread::scope(|s| {
            let sender = &mut senders[at];
            s.spawn(move || sender.send((b"", round as u64)).expect("send"));
            assert_eq!(first_ready(&mut all, None), Some(at));
            let got = all[at].try_recv().expect("open").expect("there");
            assert_eq!(got.word, round as u64);
        });
    }
    // The first of several; and the end of a link counts.
    senders[3].send(b"").expect("send");
    senders.remove(1);
    assert_eq!(first_ready(&mut all, None), Some(1));
    assert!(all[1].try_recv().is_err());
    all.remove(1);
    assert_eq!(first_ready(&mut all, None), Some(2));
}

/// What it has sent is still to be taken, and then its end.
#[test]
fn a_link_whose_sender_has_left_with_its_domain_is_pollable() {
    let (_dog, a, b) = pair();
    let other = join(&a, "other");
    let (mut sender, mut receiver) = link(&other, &b, "x");
    let id = other.id();
    sender.send((b"last", 7)).expect("send");
    drop((sender, other));
    let known = |domains: Vec<StatRecord>| {
        let is = |r: &StatRecord| matches!(r, StatRecord::Domain(d) if d.domain == id);
        domains.iter().any(is)
    };
    until(|| !known(a.admin().stat().expect("stat")));
    let may_sleep = receiver.arm().expect("nobody is there to wake it");
    assert!(!may_sleep);
    receiver.disarm();
    assert_eq!(receiver.recv().expect("a message").word, 7);
    assert!(!receiver.arm().expect("pollable"));
    receiver.disarm();
    assert!(
        receiver
            .try_recv()
            .is_err_and(|error| error == ErrorKind::PeerGone)
    );
}

#[test]
fn poll_serves_the_links_of_several_domains() {
    // Without helper threads: only `poll` itself can hear that the other domain's link has ended.
    let (_dog, a, b) = bare_pair();
    let socket = a.socket_path().expect("socket");
    let c = Domain::builder().name("c").socket(socket).connect();
    let c = c.expect("connect");
    let (_keep, mut first) = link(&a, &b, "first");
    let (mut sender, mut second) = link(&a, &c, "second");
    thread::scope(|s| {
        s.spawn(|| {
            for round in 0..100u64 {
                let mut buf = pool(&a, 1).alloc(100).expect("alloc");
                buf[..8].copy_from_slice(&round.to_le_bytes());
                sender.send(buf.freeze()).expect("send");
            }
        });
        for round in 0..100u64 {
            assert_eq!(first_ready(&mut [&mut first, &mut second], None), Some(1));
            let got = second.recv().expect("recv").to_vec();
            assert_eq!(got[..8], round.to_le_bytes());
        }
    });
}

#[test]
fn poll_serves_more_links_than_the_kernel_waits_on() {
    let (_dog, a, b) = pair();
    let listener = a.listen::<Sender>("many").expect("listen");
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..140 {
        thread::scope(|s| {
            let opening = s.spawn(|| {
                let options = ChannelOptions::new().lines(2);
                b.open_with::<Receiver>("many", options).expect("open")
            });
            senders.push(listener.accept().expect("accept"));
            receivers.push(opening.join().expect("opener"));
        });
    }
    let mut all: Vec<_> = receivers.iter_mut().collect();
    for at in [139, 0, 127, 126, 70] {
        thread::scope(|s| {
            let sender = &mut senders[at];
            s.spawn(move || sender.send((b"", at as u64)).expect("send"));
            assert_eq!(first_ready(&mut all, None), Some(at));
            assert_eq!(all[at].recv().expect("recv").word, at as u64);
        });
    }
}

#[test]
fn one_descriptor_tells_of_every_pollable_link() {
    let (_dog, a, b) = bare_pair();
    let (mut s1, mut r1) = link(&a, &b, "x");
    let (mut s2, mut r2) = link(&a, &b, "y");
    r1.arm().expect("pollable");
    r1.arm().expect("twice does no harm");
    r2.arm().expect("pollable");
    let wait = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let data = epoll::EventData::new_u64(42);
    epoll::add(&wait, b.as_fd(), data, epoll::EventFlags::IN).expect("add");
    // The sender may still be about to learn of the descriptor.
    a.turn().expect("turn");
    settle(&b, &mut [&mut r1, &mut r2]);
    for round in 0..200u64 {
        assert!(may_sleep(&mut r1) && may_sleep(&mut r2), "nothing is there");
        thread::scope(|s| {
            let sender = if round % 2 == 0 { &mut s1 } else { &mut s2 };
            s.spawn(move || sender.send((b"", round)).expect("send"));
            let mut events = Vec::with_capacity(4);
            let n = epoll::wait(&wait, rustix::buffer::spare_capacity(&mut events), None);
            assert!(n.expect("wait") == 1 && events[0].data.u64() == 42);
        });
        b.turn().expect("turn");
        r1.disarm();
        r2.disarm();
        let receiver = if round % 2 == 0 { &mut r1 } else { &mut r2 };
        assert_eq!(
            receiver.try_recv().expect("open").expect("there").word,
            round
        );
    }
    settle(&b, &mut [&mut r1, &mut r2]);
    // A message that came before arming is said at once.
    s1.send(b"").expect("send");
    assert!(!may_sleep(&mut r1) && may_sleep(&mut r2));
    r2.disarm();
    r1.recv().expect("recv");
    // So is the end of a link.
    assert!(may_sleep(&mut r1));
    drop(s1);
    while !readable(&b, Duration::from_secs(1)) {}
    r1.disarm();
    b.turn().expect("turn");
    r1.try_recv().expect_err("the end");
    drop((r1, r2, s2));
}

#[test]
fn the_descriptor_tells_when_a_turn_is_due() {
    let (_dog, a, b) = bare_pair();
    let listener = a.listen::<Sender>("x").expect("listen");
    settle(&a, &mut []);
    thread::scope(|s| {
        let opening = s.spawn(|| b.open::<Receiver>("x").expect("open"));
        while !readable(&a, Duration::from_secs(1)) {}
        let _sender = listener
            .accept_timeout(Duration::ZERO)
            .or_else(|_| listener.accept())
            .expect("accept");
        opening.join().expect("opener");
    });
    settle(&a, &mut []);
}

#[test]
fn one_set_of_channels_listeners_domains_and_descriptors() {
    let (_dog, a, b) = bare_pair();
    let (mut sender, mut receiver) = link_with(&a, &b, "x", ChannelOptions::new().lines(2));
    let (mut other, mut unused) = link(&a, &b, "y");
    let listener = b.listen::<Receiver>("z").expect("listen");
    let (mut near, mut far) = UnixStream::pair().expect("a socket");
    let short = Some(Duration::from_millis(20));
    let set = |receiver: &mut Receiver, unused: &mut Receiver, near: &UnixStream, timeout| {
        let mut items = [
            PollItem::receiver(unused),
            PollItem::receiver(receiver),
            PollItem::listener(&listener),
            PollItem::readable(near),
        ];
        poll_set(&mut items, timeout).expect("poll")
    };
    assert!(poll_set(&mut [], short).expect("poll").is_empty());
    let begun = Instant::now();
    assert!(set(&mut receiver, &mut unused, &near, short).is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    // Each item wakes, whatever the other items are.
    for round in 0..100u64 {
        thread::scope(|s| {
            let (sender, far) = (&mut sender, &mut far);
            s.spawn(move || match round % 2 {
                0 => sender.send((b"", round)).map(drop).expect("send"),
                _ => far.write_all(b"x").expect("write"),
            });
            let at = set(&mut receiver, &mut unused, &near, None);
            assert_eq!(at, [if round % 2 == 0 { 1 } else { 3 }]);
        });
        match round % 2 {
            0 => assert_eq!(
                receiver.try_recv().expect("open").expect("there").word,
                round
            ),
            _ => near.read_exact(&mut [0]).expect("read"),
        }
    }
    let opened = thread::scope(|s| {
        let opening = s.spawn(|| a.open::<Sender>("z").expect("open"));
        assert_eq!(set(&mut receiver, &mut unused, &near, None), [2]);
        let _accepted = listener.accept().expect("accept");
        opening.join().expect("opener")
    });
    // All that is ready is said; the end of a link counts, and a hang-up.
    drop((sender, far));
    other.send((b"", 7)).expect("send");
    until(|| set(&mut receiver, &mut unused, &near, None) == [0, 1, 3]);
    assert_eq!(
        receiver.recv().expect_err("the end").kind(),
        ErrorKind::PeerGone
    );
    drop(opened);
}

#[test]
fn a_set_waits_for_room_and_for_news() {
    let (_dog, a, b) = pair();
    let (mut sender, mut receiver) = link_with(&a, &b, "x", ChannelOptions::new().lines(2));
    let wait = |sender: &mut Sender, timeout| {
        let mut items = [PollItem::sender(sender)];
        poll_set(&mut items, timeout).expect("poll")
    };
    for round in 0..100 {
        assert_eq!(wait(&mut sender, None), [0]);
        while sender.try_send((b"", round)).is_ok() {}
        assert!(wait(&mut sender, Some(Duration::from_millis(1))).is_empty());
        thread::scope(|s| {
            let receiver = &mut receiver;
            s.spawn(move || while receiver.try_recv().expect("open").is_some() {});
            assert_eq!(wait(&mut sender, None), [0]);
        });
        while receiver.try_recv().expect("open").is_some() {}
    }
    drop(receiver);
    assert_eq!(wait(&mut sender, None), [0]);
    until(|| sender.status().peer_gone);
    assert_eq!(wait(&mut sender, None), [0]);
    // A descriptor that can be written is; what the manager has to say is taken, and said.
    let (near, _far) = UnixStream::pair().expect("a socket");
    let mut items = [PollItem::domain(&b), PollItem::writable(&near)];
    assert!(poll_set(&mut items, None).expect("poll").contains(&1));
    let (_bare_dog, bare, _) = bare_pair();
    let listener = bare.listen::<Sender>("l").expect("listen");
    let socket = bare.socket_path().expect("socket");
    thread::scope(|s| {
        s.spawn(|| {
            let domain = Domain::builder().socket(socket).connect().expect("join");
            domain.open::<Receiver>("l").map(drop)
        });
        let ready = poll_set(&mut [PollItem::domain(&bare)], None);
        assert_eq!(ready.expect("poll"), [0]);
        let _sender = listener.accept().expect("accept");
    });
}

/// A receiver may be waited for in every way, one after the other: none takes another's wake-ups.
#[test]
fn ways_to_wait_do_not_disturb_each_other() {
    let (_dog, _a, b, mut sender, mut receiver) = linked();
    for round in 0..200u64 {
        thread::scope(|s| {
            let sender = &mut sender;
            s.spawn(move || sender.send((b"", round)).expect("send"));
            match round % 4 {
                0 => assert_eq!(block_on(receiver.recv_async()).expect("recv").word, round),
                1 => {
                    let ready = poll_set(&mut [PollItem::receiver(&mut receiver)], None);
                    assert_eq!(ready.expect("poll"), [0]);
                }
                2 => assert_eq!(first_ready(&mut [&mut receiver], None), Some(0)),
                _ => {
                    while may_sleep(&mut receiver) {
                        readable(&b, Duration::from_secs(1));
                    }
                    receiver.disarm();
                }
            }
        });
        if round % 4 != 0 {
            assert_eq!(
                receiver.try_recv().expect("open").expect("there").word,
                round
            );
        }
    }
}
