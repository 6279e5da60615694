//! A peer that breaks the protocol: each lie costs the peer its channel, with words, and nothing else.

use crate::kit::*;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tranship_core::{ChannelOptions, Domain, ErrorKind, Pool, Receiver, Sender};
use tranship_testkit::Random;
use tranship_transport::net::Net;
use tranship_transport::{Backend, FrameBytes, Source, Transport};

const LINES: u32 = 4;
const ROOM: u64 = 1 << 20;

/// An honest domain that listens, and the way to it for liars.
struct Honest {
    domain: Domain,
    net: Net,
    at: String,
    /// Pool of the buffers that liars send.
    pool: Pool,
}

fn honest() -> Honest {
    let domain = Domain::builder().name("honest").helper_thread(true);
    let domain = domain.embedded().expect("embedded");
    let net = Net::plain(timing()).expect("net");
    let at = net
        .open("127.0.0.1:0".parse().expect("address"))
        .expect("port");
    add(&domain, "tcp+plain", Arc::new(net.clone()));
    let pool = pool(&domain, 8 << 20);
    let at = at.to_string();
    Honest {
        domain,
        net,
        at,
        pool,
    }
}

fn hello(role: u8, messages: u32, bytes: u64) -> Vec<u8> {
    let mut out = b"\x01tsch\x02\x00".to_vec();
    out.push(role);
    out.extend(messages.to_le_bytes());
    out.extend(bytes.to_le_bytes());
    out
}

/// A frame, and how many bytes come with it.
type Said = (Vec<u8>, usize);

fn word(kind: u8, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    for number in numbers {
        out.extend(number.to_le_bytes());
    }
    out.extend(rest);
    out
}

fn say(to: &mut dyn Transport, frame: &[u8], buffer: Option<Vec<u8>>) {
    let buffer = buffer.map(|bytes| Arc::new(bytes) as Arc<dyn Source>);
    // The liar may have been sent away already.
    let _ = to.send(frame, buffer.as_ref());
}

fn heard(from: &mut dyn Transport) -> Option<FrameBytes> {
    loop {
        match from.recv() {
            Ok(Some((frame, _))) => return Some(frame),
            Ok(None) => from.wait(Duration::from_millis(100)),
            Err(_) => return None,
        }
    }
}

impl Honest {
    fn address(&self) -> String {
        format!("tcp+plain:{}/x", self.at)
    }

    /// Returns a liar that has introduced itself.
    fn liar(&self, role: u8) -> Box<dyn Transport> {
        let mut liar = self
            .net
            .connect(&format!("{}/x", self.at))
            .expect("connect");
        say(&mut *liar, &hello(role, LINES, ROOM), None);
        liar
    }

    fn receiver(&self) -> (Receiver, Box<dyn Transport>) {
        let copies = pool(&self.domain, ROOM);
        let options = ChannelOptions::new().lines(LINES).snapshots(copies.id());
        let listener = self
            .domain
            .listen_with::<Receiver>(&self.address(), options);
        let listener = listener.expect("listen");
        let mut liar = self.liar(1);
        let receiver = listener.accept().expect("accept");
        let hello = heard(&mut *liar).expect("a hello");
        assert_eq!(hello[0], 1);
        (receiver, liar)
    }

    fn sender(&self) -> (Sender, Box<dyn Transport>) {
        let listener = self.domain.listen::<Sender>(&self.address());
        let listener = listener.expect("listen");
        let mut liar = self.liar(2);
        let sender = listener.accept().expect("accept");
        let hello = heard(&mut *liar).expect("a hello");
        assert_eq!(hello[0], 1);
        (sender, liar)
    }
}

/// Waits until a liar is told that it is over. Before that the program does nothing: it could make a truth of the lie.
fn is_sent_away(liar: &mut dyn Transport) {
    while heard(liar).is_some_and(|frame| frame[0] != 12) {}
}

/// A sender's lie: the receiver gets the messages before it, and then this.
fn receiver_finds(honest: &Honest, lie: &str, lies: &[Said]) {
    let (mut from, mut liar) = honest.receiver();
    say(&mut *liar, &word(2, &[9], b"first"), None);
    assert_eq!(from.recv().expect("recv").to_vec(), b"first");
    for (bytes, payload) in lies {
        let payload = (*payload > 0).then(|| pattern(1, *payload));
        say(&mut *liar, bytes, payload);
    }
    is_sent_away(&mut *liar);
    // Messages that were no lie come first.
    let end = loop {
        match from.recv() {
            Ok(_) => {}
            Err(end) => break end,
        }
    };
    assert_eq!(end.kind(), ErrorKind::PeerViolation, "{lie}: {end}");
    assert!(end.to_string().contains("127.0.0.1:"), "{lie}: {end}");
}

#[test]
fn senders_that_lie() {
    let _dog = dog();
    let honest = honest();
    let shared = |bytes: u64| word(3, &[0, bytes], &[]);
    let list = |pieces: u32, bytes: u64| word(5, &[0, bytes], &pieces.to_le_bytes());
    let piece = |bytes: u64| word(6, &[bytes], &[]);
    let lies: &[(&str, Vec<Said>)] = &[
        ("no such word", vec![(vec![13], 0)]),
        ("a word that is cut", vec![(vec![3, 1, 2], 0)]),
        (
            "inline bytes that do not fit",
            vec![(word(2, &[0], &[1; 41]), 0)],
        ),
        ("a second hello", vec![(hello(1, 1, 1), 0)]),
        ("a receiver's word", vec![(word(9, &[0], &[]), 0)]),
        ("a length without bytes", vec![(shared(100), 0)]),
        ("bytes without a length", vec![(shared(0), 100)]),
        ("another length", vec![(shared(99), 100)]),
        ("bytes after inline ones", vec![(word(2, &[0], b"x"), 100)]),
        ("far too long", vec![(shared(1 << 62), 0)]),
        (
            "more than there is room for",
            vec![(shared(ROOM + 1), 1 + (1 << 20))],
        ),
        (
            "more bytes than its credit",
            vec![(shared(600_000), 600_000); 2],
        ),
        (
            "more messages than its credit",
            vec![(word(2, &[0], b"x"), 0); 2 + LINES as usize],
        ),
        ("a piece of nothing", vec![(piece(10), 10)]),
        (
            "a message inside an aggregate",
            vec![(list(1, 10), 0), (shared(10), 10)],
        ),
        (
            "pieces that are too long",
            vec![(list(2, 10), 0), (piece(11), 11)],
        ),
        (
            "pieces that are too short",
            vec![(list(1, 10), 0), (piece(9), 9)],
        ),
        ("too many pieces", vec![(list(u32::MAX, 10), 0)]),
        ("an end in the middle", vec![(list(1, 10), 0), (vec![7], 0)]),
        ("words that nobody said", vec![(word(11, &[1], &[]), 0)]),
        ("nothing new", vec![(word(11, &[0], &[]), 0)]),
    ];
    for (lie, words) in lies {
        receiver_finds(&honest, lie, words);
    }
}

#[test]
fn receivers_that_lie() {
    let _dog = dog();
    let honest = honest();
    let many: Vec<Vec<u8>> = vec![word(10, &[0], b"x"); 1000];
    let lies: &[(&str, Vec<Vec<u8>>)] = &[
        ("taken what was not sent", vec![word(9, &[2], &[])]),
        (
            "taken fewer than before",
            vec![word(9, &[1], &[]), word(9, &[0], &[])],
        ),
        ("taken as many as before", vec![word(9, &[1], &[]); 2]),
        ("it has all before the end", vec![vec![8]]),
        ("a sender's word", vec![word(2, &[0], b"x")]),
        ("more words than are taken", many),
        ("no such word", vec![vec![200]]),
    ];
    for (lie, words) in lies {
        let (mut to, mut liar) = honest.sender();
        to.send(b"first").expect("send");
        assert_eq!(
            &heard(&mut *liar).expect("a message")[9..],
            b"first",
            "{lie}"
        );
        for bytes in words {
            say(&mut *liar, bytes, None);
        }
        is_sent_away(&mut *liar);
        let error = loop {
            match to.send_timeout(
                honest.pool.copy(b"more").expect("alloc"),
                Duration::from_secs(60),
            ) {
                Ok(_) => thread::yield_now(),
                Err(failed) => break failed.error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::PeerViolation, "{lie}: {error}");
    }
}

fn over(kind: u16) -> Vec<u8> {
    let mut out = vec![12];
    out.extend(kind.to_le_bytes());
    out.extend(b"\x1b[2Jyou\nshall\0pass");
    out
}

/// The reason that a peer gives for its end does not decide the error of the program: no temporary error, and no
/// orderly end.
#[test]
fn reasons_that_a_peer_chooses() {
    let _dog = dog();
    let honest = honest();
    let kinds = [
        (ErrorKind::TimedOut.number(), "TimedOut"),
        (ErrorKind::Full.number(), "Full"),
        (ErrorKind::Forked.number(), "Forked"),
        (ErrorKind::PeerGone.number(), "PeerGone"),
        (9999, "kind 9999"),
    ];
    for (kind, name) in kinds {
        let (mut from, mut liar) = honest.receiver();
        say(&mut *liar, &over(kind), None);
        let end = from.recv().expect_err("over");
        assert_eq!(end.kind(), ErrorKind::PeerDied, "{end}");
        let (mut to, mut liar) = honest.sender();
        say(&mut *liar, &over(kind), None);
        while !to.status().peer_gone {
            thread::yield_now();
        }
        let gone = to.send(b"").expect_err("over").error;
        assert_eq!(gone.kind(), ErrorKind::PeerGone, "{gone}");
        for error in [end, gone] {
            let text = error.to_string();
            assert!(text.contains(name), "{text}");
            assert!(
                text.contains("shall") && !text.contains(char::is_control),
                "{text:?}"
            );
        }
    }
    let (mut from, mut liar) = honest.receiver();
    say(&mut *liar, &over(ErrorKind::Limit.number()), None);
    assert_eq!(from.recv().expect_err("over").kind(), ErrorKind::Limit);
}

/// No memory is kept for a sender that has begun a message and sends no more of it. The receiver's patience is 20 s.
#[test]
fn a_sender_that_only_announces() {
    let _dog = dog();
    let honest = honest();
    let (mut from, mut liar) = honest.receiver();
    say(&mut *liar, &word(5, &[0, 10], &2u32.to_le_bytes()), None);
    let end = from.recv().expect_err("nothing comes");
    assert_eq!(end.kind(), ErrorKind::Limit, "{end}");
    assert!(end.to_string().contains("20 s"), "{end}");
    // The liar is told the reason.
    let told = std::iter::from_fn(|| heard(&mut *liar))
        .last()
        .expect("a frame");
    assert_eq!(told[0], 12);
}

/// A client that does not introduce itself, or does so wrongly, keeps no other client out.
#[test]
fn unknown_peers_at_the_door() {
    let _dog = dog();
    let honest = honest();
    let listener = honest.domain.listen::<Receiver>(&honest.address());
    let listener = listener.expect("listen");
    let mut random = Random::printed("unknown_peers");
    let mut silent = Vec::new();
    for round in 0..50 {
        let mut peer = honest
            .net
            .connect(&format!("{}/x", honest.at))
            .expect("connect");
        let mut bytes = hello(1, 0, 0);
        match round % 4 {
            0 => {
                let at = usize::try_from(random.below(bytes.len() as u64)).expect("small");
                bytes[at] ^= 0x40;
            }
            1 => bytes.truncate(5),
            2 => bytes.extend([0; 100]),
            _ => {
                silent.push(peer);
                continue;
            }
        }
        say(&mut *peer, &bytes, None);
    }
    // What a flipped bit makes of the figures is still a hello.
    let mut to = honest
        .domain
        .open::<Sender>(&honest.address())
        .expect("open");
    to.send((b"honest", 7)).expect("send");
    loop {
        let mut from = listener.accept().expect("accept");
        match from.recv() {
            Ok(message) => {
                assert_eq!((message.word, message.to_vec()), (7, b"honest".to_vec()));
                break;
            }
            Err(end) => assert_ne!(end.kind(), ErrorKind::PeerGone, "{end}"),
        }
    }
}

/// Returns a message that a sender or a receiver may send, with one wrong field.
fn bent(random: &mut Random) -> Said {
    let kinds = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
    let kind = kinds[usize::try_from(random.below(kinds.len() as u64)).expect("small")];
    let len = random.below(3) * random.below(3000);
    let mut bytes = match kind {
        2 | 10 => word(kind, &[random.below(9)], b"inline"),
        3 | 4 => word(kind, &[random.below(9), len], &[]),
        5 | 13 => word(kind, &[0, len], &2u32.to_le_bytes()),
        6 => word(kind, &[len], &[]),
        9 | 11 | 14 => word(kind, &[random.below(3)], &[]),
        12 => over(u16::try_from(random.below(80)).expect("small")),
        _ => vec![kind],
    };
    let at = usize::try_from(random.below(bytes.len() as u64)).expect("small");
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next().to_le_bytes()[0],
        2 => bytes.truncate(at),
        3 => bytes.extend([0; 9]),
        _ => {}
    }
    let payload = match kind {
        3 | 4 | 6 if !random.one_in(4) => len,
        _ if random.one_in(8) => random.below(5000),
        _ => 0,
    };
    (bytes, usize::try_from(payload).expect("small"))
}

/// Whatever a peer sends, nothing panics and no call waits for ever: each channel has an end with words, and another
/// one goes on.
#[test]
fn words_may_say_anything() {
    let _dog = dog();
    let honest = honest();
    let mut random = Random::printed("words");
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let rounds = if torture { 10_000 } else { 300 };
    let mut says = |liar: &mut dyn Transport| {
        for _ in 0..random.below(12) {
            let (bytes, payload) = bent(&mut random);
            let payload = (payload > 0).then(|| pattern(1, payload));
            say(liar, &bytes, payload);
        }
    };
    for round in 0..rounds {
        let (mut from, mut liar) = honest.receiver();
        says(&mut *liar);
        drop(liar);
        let end = loop {
            match from.recv() {
                Ok(_) => {}
                Err(end) => break end,
            }
        };
        assert_ne!(end.kind(), ErrorKind::TimedOut, "round {round}: {end}");
        let (mut to, mut liar) = honest.sender();
        to.send(b"first").expect("send");
        says(&mut *liar);
        drop(liar);
        while !to.status().peer_gone {
            while let Ok(Some(_)) = to.try_recv_back() {}
            thread::yield_now();
        }
        let gone = to.send(b"").expect_err("over").error;
        assert_ne!(gone.kind(), ErrorKind::Full, "round {round}: {gone}");
    }
    let (mut from, mut liar) = honest.receiver();
    say(&mut *liar, &word(2, &[9], b"true"), None);
    assert_eq!(from.recv().expect("recv").to_vec(), b"true");
}
