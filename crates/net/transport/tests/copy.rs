//! `copy:` between this machine's processes: bytes that break its rules are a violation, and anything else arrives.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tranship_testkit::Watchdog;
use tranship_transport::{Backend, Copying, Error, ErrorKind, FrameBytes, Transport};

/// Returns an honest end, and a socket of a peer that sends any bytes it likes.
fn met(name: &str) -> (Box<dyn Transport>, UnixStream) {
    let name = format!("{name}-{}", std::process::id());
    let (come, comes) = mpsc::channel();
    let _listens = Copying
        .listen(&name, Arc::new(move |end| drop(come.send(end))))
        .expect("listen");
    let address = SocketAddr::from_abstract_name(format!("tranship/copy/{name}"));
    let liar = UnixStream::connect_addr(&address.expect("address")).expect("connect");
    (comes.recv().expect("accept"), liar)
}

/// Returns the header of a record: kind (1 frame, 2 news), length, the buffer's bytes, number, frames taken.
fn header(kind: u8, len: u16, follows: u64, number: u64, taken: u64) -> Vec<u8> {
    let [low, high] = len.to_le_bytes();
    let mut all = vec![kind, 0, low, high, 0, 0, 0, 0];
    all.extend([follows, number, taken].map(u64::to_le_bytes).concat());
    all
}

fn next(end: &mut dyn Transport) -> Result<FrameBytes, Error> {
    loop {
        match end.recv()? {
            Some((frame, _)) => return Ok(frame),
            None => end.wait(Duration::from_millis(100)),
        }
    }
}

#[test]
fn what_cannot_be_is_a_violation() {
    let _dog = Watchdog::new();
    let good = [&header(1, 5, 0, 0, 1)[..], b"frame"].concat();
    for (number, (what, lie)) in [
        ("a frame that is too long", header(1, 4097, 0, 0, 0)),
        ("bytes of no frame", header(2, 0, 1, 0, 0)),
        ("more taken than sent", header(2, 0, 0, 0, 2)),
        (
            "taken once less",
            [&good[..], &header(2, 0, 0, 1, 0)].concat(),
        ),
        (
            "another frame than the next",
            [&header(1, 5, 0, 1, 0)[..], b"frame"].concat(),
        ),
        ("no such length", header(1, u16::MAX, u64::MAX, 0, 0)),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut end, mut liar) = met(&format!("lies-{number}"));
        end.send(b"one", None).expect("send");
        liar.write_all(&lie).expect("lie");
        let why = loop {
            match next(&mut *end) {
                Ok(frame) => assert_eq!(&frame[..], b"frame", "{what}"),
                Err(why) => break why,
            }
        };
        assert_eq!(why, ErrorKind::PeerViolation, "{what}: {why}");
    }
}

/// A frame in pieces of a byte, then one that is cut: the first arrives, and then the end.
#[test]
fn half_a_frame_is_none() {
    let _dog = Watchdog::new();
    let (mut end, mut liar) = met("half");
    for byte in [&header(1, 5, 0, 0, 0)[..], b"frame"].concat() {
        assert!(end.recv().expect("it is there").is_none());
        liar.write_all(&[byte]).expect("a byte");
    }
    assert_eq!(&next(&mut *end).expect("a frame")[..], b"frame");
    // The second of two looks that find nothing reports the taken frames; keepalives may have gone before.
    for _ in 0..2 {
        assert!(end.recv().expect("it is there").is_none());
    }
    let mut said = [0; 32];
    while said[..] != header(2, 0, 0, 0, 1) {
        liar.read_exact(&mut said).expect("what was taken");
        assert_eq!(said[..24], header(2, 0, 0, 0, 0)[..24]);
    }
    liar.write_all(&header(1, 5, 0, 1, 0))
        .expect("half a frame");
    liar.shutdown(std::net::Shutdown::Write).expect("the end");
    match next(&mut *end) {
        Err(why) => assert_eq!(why, ErrorKind::PeerGone, "{why}"),
        other => panic!("{other:?}"),
    }
}
