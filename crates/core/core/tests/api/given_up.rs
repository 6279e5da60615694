//! What is given up before the manager, or the other end, has heard of it.

use crate::kit::*;
use crate::played::*;
use std::os::fd::OwnedFd;
use tranship_core::{Domain, PollItem, Receiver, Sender, poll};
use tranship_proto::Role;
use tranship_proto::{ChannelId, DomainId, Event, ExportId, Request};
use tranship_ring::{HalfRo, HalfRw, Ring, Side, doorbell};
use tranship_sys::{pidfd, socket};

const LINES: u32 = 64;
const CHANNEL: ChannelId = ChannelId(1);

/// Its answer is for nobody: what it exports it is told to export no more.
#[test]
fn a_name_whose_listener_goes_while_the_next_manager_has_still_to_answer() {
    let _dog = dog();
    let (_dir, path) = place();
    let first = a_manager(&path);
    let domain = Domain::builder().socket(&path).connect().expect("connect");
    let listener = domain.listen::<Sender>("name").expect("listen");
    drop(first);
    let next = hang(&path);
    let back = comes_back(&domain, &next);
    let Request::Export { req, name, .. } = back.hears() else {
        panic!("it is not exported again");
    };
    assert_eq!(name, "name");
    drop(listener);
    // By the name's id under the manager that is gone, which says nothing to this one.
    let told = back.hears();
    assert!(matches!(told, Request::Unexport { .. }), "{told:?}");
    let export = ExportId(1000);
    back.say(&Event::Exported { req, export }, None);
    domain.turn().expect("turn");
    assert_eq!(back.heard(), Some(Request::Unexport { export }));
    assert_eq!(back.heard(), None);
}

/// A listener that goes refuses nobody: the next one is waited for.
#[test]
fn who_is_connected_to_a_name_whose_listener_goes_waits_for_the_next() {
    let (_dog, a, b) = bare_pair();
    let listener = a.listen::<Sender>("name").expect("listen");
    std::thread::scope(|s| {
        let opens = s.spawn(|| b.open::<Receiver>("name").expect("a sender"));
        let ready = poll(&mut [PollItem::listener(&listener)], None);
        assert_eq!(ready.expect("a connection"), [0]);
        drop(listener);
        let listener = a.listen::<Sender>("name").expect("listen again");
        let mut sender = listener.accept().expect("accept");
        let mut receiver = opens.join().expect("no panic");
        sender.send((b"", 5)).expect("send");
        assert_eq!(receiver.recv().expect("recv").word, 5);
    });
}

/// A sender whose receiver sleeps on a descriptor, and what the receiver does is the test's.
struct Pressed {
    sender: Sender,
    domain: Domain,
    /// The receiver's.
    ring: Ring,
    /// The last to go: the domain's end waits for a manager that is away.
    back: Back,
}

fn pressed() -> Pressed {
    let (_dir, path) = place();
    let manager = hang(&path);
    std::thread::scope(|s| {
        let join = || Domain::builder().socket(&path).connect().expect("connect");
        let domain = s.spawn(join);
        let back = welcome_new(&manager);
        let domain = domain.join().expect("a domain");
        let joined = domain.clone();
        let accepts = s.spawn(move || {
            let listener = joined.listen::<Sender>("name").expect("listen");
            listener.accept().expect("accept")
        });
        let Request::Export { req, .. } = back.hears() else {
            panic!("no name");
        };
        let export = ExportId(1);
        back.say(&Event::Exported { req, export }, None);
        let (fd, own) = HalfRw::create(Side::Sink, LINES).expect("a half");
        let incoming = Event::Incoming {
            channel: CHANNEL,
            export,
            peer: DomainId(9),
            peer_uid: 0,
            peer_pid: 0,
            role: Role::Source,
            lines: LINES,
            topic: false,
        };
        back.say(&incoming, Some(&fd));
        back.rings();
        let (Request::Accept { req, lines, .. }, fds) = back.hears_with() else {
            panic!("nothing is accepted");
        };
        let theirs = HalfRo::open(&fds[0], Side::Source, lines).expect("its half");
        let us = pidfd::open(std::process::id()).expect("a pidfd");
        let channel = CHANNEL;
        back.say(&Event::Accepted { req, channel }, Some(&us));
        Pressed {
            sender: accepts.join().expect("a sender"),
            domain,
            ring: Ring::new(own, theirs),
            back,
        }
    })
}

impl Pressed {
    /// The manager gives the sender the far end of a descriptor, of which this is the near one. It has still to announce it: a send that has
    /// begun finds nothing new.
    fn has(&self) -> OwnedFd {
        let (near, far) = socket::one_way().expect("a pair");
        let channel = CHANNEL;
        self.back.say(&Event::WakeFd { channel }, Some(&far));
        near
    }

    fn sends(&mut self) {
        self.sender.send(b"x").expect("room");
    }
}

fn is_pressed(near: &OwnedFd) -> bool {
    socket::recvmsg(near, &mut [0; 8], true).is_ok_and(|got| got.bytes == doorbell::PRESSED.len())
}

/// A receiver does so if the manager's answer to `arm` comes too late.
#[test]
fn a_descriptor_that_the_receiver_gave_up_gives_way_to_another_one() {
    let _dog = dog();
    let mut world = pressed();
    drop(world.has());
    world.domain.turn().expect("turn");
    // Of this one the sender has still to hear.
    let near = world.has();
    world.ring.arm();
    world.sends();
    assert!(is_pressed(&near));
}

#[test]
fn a_sender_that_has_no_descriptor_any_more_looks_for_one_whenever_it_sends() {
    let _dog = dog();
    let mut world = pressed();
    drop(world.has());
    world.domain.turn().expect("turn");
    world.ring.arm();
    // The first finds out, the second waits a moment, as the other one may be on its way.
    for _ in 0..3 {
        world.sends();
    }
    let near = world.has();
    world.sends();
    assert!(is_pressed(&near));
}
