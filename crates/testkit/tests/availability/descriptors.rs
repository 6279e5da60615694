//! Descriptors whose being closed, or looked at, takes as long as their sender likes.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use tranship_proto::{PoolId, Req, Request};
use tranship_testkit::{Control, child};

use crate::raw::Raw;
use crate::stage::Stage;

/// A TCP socket whose last close waits for an hour: bytes that its peer does not take, and SO_LINGER.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    rustix::net::sockopt::set_socket_linger(&stream, Some(hour)).unwrap();
    (stream, peer)
}

child!(
    fn lingers(ctl: Control) {
        let mut kept = Vec::new();
        while let Some(surplus) = ctl.recv::<bool>().unwrap() {
            let (stream, peer) = lingering();
            let raw = Raw::join("lingers");
            ctl.send(&()).unwrap();
            let () = ctl.recv().unwrap().unwrap();
            raw.send(&request(surplus), &[stream.as_fd()]);
            drop(stream);
            kept.push((raw, peer));
            ctl.send(&()).unwrap();
        }
    }
);

fn request(surplus: bool) -> Request {
    if surplus {
        return Request::Stat { req: Req(1) };
    }
    Request::ShowChunk {
        req: Req(1),
        pool: PoolId(1),
        index: 0,
        serial: 1,
    }
}

#[test]
fn a_socket_that_lingers() {
    let Some(stage) = Stage::new("") else { return };
    let attacker = stage.attacker(lingers(), 0);
    for surplus in [true, false, true] {
        let () = attacker.ask(&surplus);
        // So that the last of it is what the manager gets, and not the attacker's own.
        stage.manager.stop();
        let () = attacker.ask(&());
        stage.manager.resume();
        stage.still_serving(if surplus { "a surplus" } else { "a wrong one" });
    }
}
