//! Sockets that two parties share: of the one that a stranger has too, it keeps the lock.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use tranship_core::{LinkOptions, PeerSocket, Role, WhenFull};
use tranship_proto::{Event, Request};
use tranship_sys::{epoll, socket};
use tranship_testkit::{Control, child, fuse};

use crate::stage::{Stage, join, never};
use tranship_testkit::hostile::raw::{Channel, Raw};

/// The longest single wait.
const ROUND: Duration = Duration::from_millis(5);

// Answers whatever it is asked through sockets that were handed in.
child!(
    fn door(ctl: Control) {
        let domain = join("door");
        let listener = domain.listen_socket("door").unwrap();
        ctl.send(&()).unwrap();
        let mut met: Vec<PeerSocket> = Vec::new();
        loop {
            while let Some(peer) = listener.accept().unwrap() {
                met.push(peer);
            }
            met.retain(
                |peer| match socket::recvmsg(&peer.socket, &mut [0; 16], true) {
                    Ok(got) => {
                        let _ = socket::sendmsg(&peer.socket, b"answer", &[], true);
                        got.bytes > 0
                    }
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                },
            );
            let _ = epoll::wait_readable(domain.as_fd(), Some(ROUND));
        }
    }
);

child!(
    fn asks_at_the_door(ctl: Control) {
        let domain = join("asks");
        let met = domain.connect_socket("door").unwrap();
        while ctl.recv::<()>().unwrap().is_some() {
            socket::sendmsg(&met.socket, b"question", &[], false).unwrap();
            let got = socket::recvmsg(&met.socket, &mut [0; 16], false).unwrap();
            assert_eq!(got.bytes, 6);
            ctl.send(&()).unwrap();
        }
    }
);

/// Hands in a socket of its own making, or takes what the manager has made; both of its ends, as far as there are two.
fn hand_in() -> (OwnedFd, OwnedFd) {
    let (near, far) = socket::pair().unwrap();
    let mut raw = Raw::join("taker");
    let req = raw.req();
    let name = "door".into();
    raw.send(&Request::ConnectSocket { req, name }, &[far.as_fd()]);
    if let Some((Event::SocketTaken { .. }, _)) = raw.recv() {
        return (near, far);
    }
    let mut raw = Raw::again("taker");
    let req = raw.req();
    let name = "door".into();
    raw.send(&Request::ConnectSocket { req, name }, &[]);
    let (_, mut fds) = raw.wait(|e| matches!(e, Event::SocketTaken { .. }).then_some(()));
    let near = fds.remove(0);
    let same = near.try_clone().unwrap();
    std::mem::forget(raw);
    (near, same)
}

child!(
    fn keeps_the_lock_of_what_it_handed_in(ctl: Control) {
        let file: PathBuf = ctl.recv().unwrap().unwrap();
        let (near, far) = hand_in();
        let page = never(&file);
        std::thread::spawn(move || rustix::net::recv(&far, page, RecvFlags::empty()));
        // Until one of them is taken there, and not by the other end.
        loop {
            let _ = socket::sendmsg(&near, b"question", &[], true);
            std::thread::yield_now();
        }
    }
);

#[test]
fn a_socket_that_was_handed_in_keeps_nobody_waiting() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let door = stage.honest(door());
    door.expect::<()>();
    let honest = stage.honest(asks_at_the_door());
    honest.ask::<()>(&());
    let taker = stage.stranger(keeps_the_lock_of_what_it_handed_in());
    taker.send(stage.file.path()).unwrap();
    stage.file.wait_for(fuse::READ);
    for _ in 0..20 {
        honest.ask::<()>(&());
    }
    door.kill();
}

// Sends to all who want it, without end.
child!(
    fn feed(ctl: Control) {
        let domain = join("feed");
        let options = LinkOptions::new().lines(16).when_full(WhenFull::DropNew);
        let listener = domain.listen_with("feed", Role::Source, options).unwrap();
        ctl.send(&()).unwrap();
        let mut all = Vec::new();
        loop {
            if let Ok(sender) = listener.accept_sender_within(ROUND) {
                all.push(sender);
            }
            all.retain_mut(|sender| sender.send_inline(b"news", 0).is_ok());
        }
    }
);

child!(
    fn is_fed(ctl: Control) {
        let domain = join("fed");
        let mut receiver = domain.open_receiver("feed").unwrap();
        while ctl.recv::<()>().unwrap().is_some() {
            receiver.recv().unwrap();
            ctl.send(&()).unwrap();
        }
    }
);

child!(
    fn keeps_the_lock_of_what_it_is_woken_by(ctl: Control) {
        let file: PathBuf = ctl.recv().unwrap().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let (page, rest) = never(&file).split_at_mut(2048);
        let held = far.try_clone().unwrap();
        std::thread::spawn(move || rustix::net::send(&held, page, SendFlags::empty()));
        ctl.recv::<()>().unwrap();
        let mut raw = Raw::join("taker");
        let mut channel = raw.connect("feed", Role::Sink);
        let wake = |raw: &mut Raw, channel: &Channel| Request::WakeFd {
            req: raw.req(),
            channel: channel.id,
        };
        let request = wake(&mut raw, &channel);
        raw.send(&request, &[far.as_fd()]);
        if raw.expelled().is_some() {
            // Of the manager's making, then.
            raw = Raw::again("taker");
            channel = raw.connect("feed", Role::Sink);
            let request = wake(&mut raw, &channel);
            raw.send(&request, &[]);
            let (_, mut fds) = raw.wait(|e| matches!(e, Event::WakeEnd { .. }).then_some(()));
            let near = fds.remove(0);
            std::thread::spawn(move || rustix::net::recv(&near, rest, RecvFlags::empty()));
        }
        channel.own.asleep().store(2, Ordering::SeqCst);
        // Until it wakes us, or has given us up.
        let seen = channel.theirs.wake().load(Ordering::SeqCst);
        while channel.theirs.wake().load(Ordering::SeqCst) == seen
            && channel.theirs.closed().load(Ordering::SeqCst) == 0
        {
            std::thread::yield_now();
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

#[test]
fn a_descriptor_to_wake_a_stranger_by_keeps_nobody_waiting() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let feed = stage.honest(feed());
    feed.expect::<()>();
    let honest = stage.honest(is_fed());
    honest.ask::<()>(&());
    let taker = stage.stranger(keeps_the_lock_of_what_it_is_woken_by());
    taker.send(stage.file.path()).unwrap();
    stage.file.wait_for(fuse::READ);
    taker.ask::<()>(&());
    for _ in 0..100 {
        honest.ask::<()>(&());
    }
    feed.kill();
}
