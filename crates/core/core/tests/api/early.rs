//! What the manager says of a channel before the thread that opens it has made its link.

use crate::kit::*;
use std::os::fd::AsFd;
use tranship_core::{ChannelId, Domain, DomainId, ErrorKind, Receiver};
use tranship_proto::{Event, GoneReason, Request};
use tranship_region::layout::ControlPageRw;
use tranship_ring::{HalfRw, Side};
use tranship_sys::{pidfd, socket};

const CHANNEL: ChannelId = ChannelId(5);

#[test]
fn an_end_in_the_moment_of_opening_is_heard() {
    let _dog = dog();
    let (_dir, path) = place();
    let listener = socket::listen(&path, 0o600).expect("listen");
    // A manager that answers everything in one go.
    let manager = std::thread::spawn(move || {
        let peer = socket::accept(&listener).expect("accept");
        let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
        let (control_page, map) = ControlPageRw::create(8, 77).expect("a control page");
        let (half, source) = HalfRw::create(Side::Source, 16).expect("a half");
        let process = pidfd::open(std::process::id()).expect("a pidfd");
        loop {
            let got = socket::recvmsg(&peer, &mut bytes, false).expect("a request");
            let (event, fds) = match tranship_proto::decode(&bytes[..got.bytes]) {
                Ok(Request::Hello { .. }) => {
                    let event = Event::Welcome {
                        domain: DomainId(3),
                        instance: 77,
                        resumed: false,
                        control_page_entries: 8,
                        total_bytes: 1 << 30,
                    };
                    (event, vec![control_page.as_fd()])
                }
                Ok(Request::Connect { req, .. }) => {
                    let event = Event::Opened {
                        req,
                        channel: CHANNEL,
                        peer: DomainId(4),
                        peer_uid: 0,
                        peer_pid: std::process::id(),
                        lines: 16,
                        ring_lines: 0,
                        shared: false,
                    };
                    (event, vec![half.as_fd(), process.as_fd()])
                }
                _ => return (peer, map, source),
            };
            let opens = matches!(event, Event::Opened { .. });
            socket::sendmsg(&peer, &tranship_proto::encode(&event), &fds, false).expect("answer");
            if opens {
                let event = Event::PeerGone {
                    channel: CHANNEL,
                    reason: GoneReason::Died,
                };
                let bytes = tranship_proto::encode(&event);
                socket::sendmsg(&peer, &bytes, &[], false).expect("the end");
            }
        }
    });
    let domain = Domain::builder().name("b").socket(&path).connect();
    let domain = domain.expect("connect");
    let mut receiver = domain.open::<Receiver>("x").expect("open");
    assert_eq!(
        receiver.recv().expect_err("over").kind(),
        ErrorKind::PeerDied
    );
    drop(receiver);
    drop(manager.join().expect("the manager"));
}
