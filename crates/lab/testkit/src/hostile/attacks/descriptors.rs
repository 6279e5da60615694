//! Descriptors whose being closed, or looked at, takes as long as their sender likes.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tranship_proto::{PoolId, Req, Request};

use crate::hostile::Attacker;
use crate::hostile::raw::Raw;

/// Returns a TCP socket whose last close waits for an hour, and its peer: bytes that the peer does not take, and
/// SO_LINGER.
///
/// # Panics
/// Where there is no loopback.
#[must_use]
pub fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    let hour = Duration::from_secs(3600);
    rustix::net::sockopt::set_socket_linger(&stream, Some(hour)).unwrap();
    (stream, peer)
}

/// Sends a request with a descriptor of a wrong kind, or with one that it does not ask for.
fn send(raw: &Raw, surplus: bool, fd: BorrowedFd<'_>) {
    let (req, pool) = (Req(1), PoolId(1));
    let request = if surplus {
        Request::Stat { req }
    } else {
        Request::ShowChunks {
            req,
            pool,
            chunks: vec![(0, 1)],
            least: 1,
        }
    };
    let _ = raw.try_send(&request, &[fd]);
}

pub(super) fn sockets_that_linger(attacker: &mut Attacker) {
    for surplus in [true, false] {
        let (stream, peer) = lingering();
        let raw = Raw::join("lingers");
        send(&raw, surplus, stream.as_fd());
        // The manager's copy is the last descriptor; its close lingers until the peer goes.
        drop(stream);
        std::thread::sleep(Duration::from_millis(5 + attacker.random.below(20)));
        drop(peer);
        attacker.keep(raw);
    }
}

pub(super) fn files_that_nobody_answers_for(attacker: &mut Attacker) {
    let surplus = attacker.random.one_in(2);
    let Some(file) = &attacker.silent else { return };
    let raw = Raw::join("silent");
    send(&raw, surplus, file.as_fd());
    attacker.keep(raw);
}
