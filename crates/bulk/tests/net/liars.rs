//! Strangers that say anything, and clients that know the protocol and break it. Each costs itself its connection.

use crate::{assigned, domain, moved, next, open, pair, timing};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tranship_bulk::{Direction, EndOptions, Kind, Trust};
use tranship_testkit::{Control, Random, Watchdog, child};
use tranship_transport::net::Timing;
use tranship_transport::{Backend, Frame, Net, RecvError};

pub fn hello(again: bool, session: [u8; 16], taken: u64, name: &str) -> Vec<u8> {
    let mut out = b"tranship\x01\x00".to_vec();
    out.extend([
        if again { 2 } else { 1 },
        u8::try_from(name.len()).expect("short"),
    ]);
    out.extend(session);
    out.extend(taken.to_le_bytes());
    out.extend(name.as_bytes());
    out
}

pub fn record(kind: u8, frame: &[u8], payload: u64, number: u64, taken: u64) -> Vec<u8> {
    let mut out = vec![kind, 0];
    out.extend(u16::try_from(frame.len()).expect("short").to_le_bytes());
    out.extend([0; 4]);
    for word in [payload, number, taken] {
        out.extend(word.to_le_bytes());
    }
    out.extend(frame);
    out
}

/// Says something and reads until the other side closes.
fn say(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(at).expect("connect");
    // The other side may have closed already.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

/// A connection that has made its acquaintance.
pub fn met(at: SocketAddr, session: [u8; 16], name: &str) -> TcpStream {
    let mut socket = TcpStream::connect(at).expect("connect");
    socket
        .write_all(&hello(false, session, 0, name))
        .expect("hello");
    let mut answer = [0; 36];
    socket.read_exact(&mut answer).expect("answer");
    assert_eq!(answer[10], 0, "welcome");
    socket
}

#[test]
fn strangers_may_say_anything() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("strangers");
    for net in crate::both() {
        let at = open(&net);
        let p = pair(&net, at, at, "honest");
        let pool = assigned(&p, 2, 4096);
        let whole = hello(false, [1; 16], 0, "honest");
        for round in 0..60 {
            let mut bytes = whole.clone();
            match round % 3 {
                0 => {
                    bytes = (0..random.below(300))
                        .map(|_| random.next().to_le_bytes()[0])
                        .collect()
                }
                1 => bytes.truncate(usize::try_from(random.below(40)).expect("small")),
                _ => {
                    let at = usize::try_from(random.below(12)).expect("small");
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            let answer = say(at, &bytes);
            // An answer is a refusal, or TLS that was not understood.
            assert!(answer.get(10).is_none_or(|status| *status != 0) || answer[0] != b't');
        }
        // The honest ones have not noticed.
        p.source
            .move_(pool.alloc().expect("alloc"), &[])
            .expect("move");
        drop(next(&[&p.source, &p.sink], &p.sink, moved));
    }
}

#[test]
fn those_who_say_nothing_do_not_stay() {
    let _dog = Watchdog::new();
    let timing = Timing {
        acquaintance: Duration::from_secs(2),
        ..timing()
    };
    let net = Net::plain(timing).expect("net");
    let at = open(&net);
    let slow: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(at).expect("connect"))
        .collect();
    // All are closed when their time is over. One byte now and then is no help.
    let mut open: Vec<_> = slow.into_iter().collect();
    while !open.is_empty() {
        open.retain_mut(|socket| {
            let _ = socket.write(b"t");
            socket.set_nonblocking(true).expect("option");
            let closed = |e: std::io::Error| e.kind() != std::io::ErrorKind::WouldBlock;
            !socket.read(&mut [0]).map_or_else(closed, |got| got == 0)
        });
        std::thread::yield_now();
    }
    assert!(net.refused().0 >= 40);
    let _p = pair(&net, at, at, "honest");
}

/// A connection from another address of this machine.
pub fn from(address: [u8; 4], at: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
    bind(&socket, &SocketAddr::from((address, 0))).expect("bind");
    connect(&socket, &at).expect("connect");
    socket.into()
}

/// Not more than so many: the oldest make room, with words about it.
#[test]
fn strangers_are_so_many_at_most() {
    let _dog = Watchdog::new();
    for (hosts, each) in [(1, 80), (10, 10)] {
        let net = Net::plain(timing()).expect("net");
        let at = open(&net);
        let all = hosts * each;
        let silent: Vec<_> = (0..all)
            .map(|n| from([127, 0, 1, 1 + n / each], at))
            .collect();
        let away = u64::from(all - 64);
        while net.refused().0 < away {
            std::thread::yield_now();
        }
        let (count, why) = net.refused();
        let why = why.expect("words");
        assert!(count == away && why.contains("made room"), "{count}: {why}");
        let mut first = &silent[0];
        assert_eq!(first.read(&mut [0]).expect("the end"), 0);
    }
}

/// Nobody takes them; they do not pile up.
#[test]
fn so_many_wait_at_a_name() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let at = open(&net);
    let _listener = net.listen(&format!("{at}/busy")).expect("listen");
    let _waiting: Vec<_> = (0..64u8).map(|n| met(at, [n; 16], "busy")).collect();
    assert_eq!(
        say(at, &hello(false, [64; 16], 0, "busy")).get(10),
        Some(&4)
    );
    let (_, why) = net.refused();
    assert!(why.is_some_and(|why| why.contains("64 clients wait")));
}

/// What was taken stays taken.
#[test]
fn a_count_does_not_go_back() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let at = open(&net);
    let mut listener = net.listen(&format!("{at}/counts")).expect("listen");
    let mut socket = met(at, [1; 16], "counts");
    let mut end = loop {
        if let Some(end) = listener.accept().expect("accept") {
            break end;
        }
        std::thread::yield_now();
    };
    let frame = Frame {
        bytes: b"frame".as_slice().into(),
        ..Frame::default()
    };
    end.send(&frame).expect("send");
    for taken in [1, 0] {
        socket.write_all(&record(2, b"", 0, 0, taken)).expect("say");
    }
    let why = loop {
        match end.recv() {
            Ok(_) => std::thread::yield_now(),
            Err(RecvError::Over(why)) if why == Kind::PeerViolation => break why.to_string(),
            Err(other) => panic!("{other:?}, {:?}", end.why()),
        }
    };
    assert!(why.contains("taken 0 frames, of which 1 to 1"), "{why}");
}

fn answer(status: u8, process: u8, taken: u64) -> Vec<u8> {
    let mut out = b"tranship\x01\x00".to_vec();
    out.extend([status, 0]);
    out.extend([process; 16]);
    out.extend(taken.to_le_bytes());
    out
}

/// Whoever listens lies to who connects.
#[test]
fn a_server_may_say_anything() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    for (what, says, words) in [
        ("nothing", Vec::new(), ""),
        ("half an answer", answer(0, 7, 0)[..20].to_vec(), ""),
        ("nonsense", vec![b'x'; 36], "no tranship"),
        (
            "another version",
            {
                let mut other = answer(0, 7, 0);
                other[8] = 9;
                other
            },
            "version 9",
        ),
        ("no such status", answer(99, 7, 0), "no tranship"),
        ("no such name", answer(1, 7, 0), "nobody waits"),
        ("an old session", answer(3, 7, 0), "somebody else"),
        ("busy", answer(4, 7, 0), "too many"),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = server.local_addr().expect("address");
        let refused = std::thread::scope(|scope| {
            // Who is sent away comes again: then nobody is there any more.
            scope.spawn(move || {
                let (mut socket, _) = server.accept().expect("accept");
                drop(server);
                let mut heard = [0; 37];
                socket.read_exact(&mut heard).expect("hello");
                socket.write_all(&says).expect("answer");
            });
            net.connect(&format!("{at}/x")).err()
        });
        let refused = refused.expect("it lies");
        assert_eq!(refused, Kind::InvalidEndpoint, "{what}");
        let why = refused.to_string();
        assert!(
            why.contains(&at.to_string()) && why.contains(words),
            "{what}: {why}"
        );
    }
    // Welcome, but it has taken what was never sent: at once, and later.
    for (taken, then) in [(1, Vec::new()), (0, record(2, b"", 0, 0, 1))] {
        let server = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = server.local_addr().expect("address");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = server.accept().expect("accept");
                let mut heard = [0; 37];
                socket.read_exact(&mut heard).expect("hello");
                socket.write_all(&answer(0, 7, taken)).expect("answer");
                socket.write_all(&then).expect("more");
                let _ = socket.read_to_end(&mut Vec::new());
            });
            let mut end = net.connect(&format!("{at}/x")).expect("connect");
            while end.recv().is_ok() {
                std::thread::yield_now();
            }
            let why = end.why().expect("words");
            assert!(why.contains("taken 1 frames"), "{why}");
        });
    }
}

/// The connection is lost; who is there when it is made again must be the same, and know the session.
#[test]
fn who_is_found_again_is_looked_at() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    for (status, process, words) in [
        (3, 7, "has given the channel up"),
        (3, 8, "another process is there"),
        (0, 8, "another process is there"),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = server.local_addr().expect("address");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (status, process) in [(0, 7), (status, process)] {
                    let (mut socket, _) = server.accept().expect("accept");
                    let mut heard = [0; 37];
                    socket.read_exact(&mut heard).expect("hello");
                    socket
                        .write_all(&answer(status, process, 0))
                        .expect("answer");
                }
            });
            let mut end = net.connect(&format!("{at}/x")).expect("connect");
            while end.recv().is_ok() {
                std::thread::yield_now();
            }
            let why = end.why().expect("words");
            assert!(why.contains(words), "{why}");
        });
    }
}

child!(
    /// Opens a port, and then everything that may be opened; lets go of it when it is told to.
    fn exhausted(ctl: Control) {
        let net = Net::plain(timing()).expect("net");
        let at = open(&net);
        let _name = net.listen(&format!("{at}/open")).expect("listen");
        let limit = rustix::process::Rlimit {
            current: Some(64),
            maximum: Some(64),
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("limit");
        let all = || std::iter::from_fn(|| std::fs::File::open("/dev/null").ok());
        let all: Vec<_> = all().collect();
        ctl.send(&at).expect("control");
        let () = ctl.recv().expect("control").expect("connected");
        let used = |who| {
            let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: room for what the kernel fills in.
            unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
            // SAFETY: plain numbers.
            let usage = unsafe { usage.assume_init() };
            let time = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
            time(usage.ru_utime) + time(usage.ru_stime)
        };
        // One thread spins: any other that does gets as much of the processors.
        let before = used(libc::RUSAGE_SELF);
        let own = used(libc::RUSAGE_THREAD);
        let spins = || used(libc::RUSAGE_THREAD) - own;
        while spins() < 300_000 {}
        let others = used(libc::RUSAGE_SELF) - before - spins();
        ctl.send(&others).expect("control");
        let () = ctl.recv().expect("control").expect("again");
        drop(all);
        let _ = ctl.recv::<()>();
    }
);

/// No descriptor is left for who connects: it waits, nobody spins, and it is served when there is one.
#[test]
fn without_descriptors_who_connects_waits() {
    let _dog = Watchdog::new();
    let child = exhausted().start().expect("start");
    let at: SocketAddr = child.expect();
    let mut socket = TcpStream::connect(at).expect("connect");
    socket
        .write_all(&hello(false, [1; 16], 0, "open"))
        .expect("hello");
    child.send(&()).expect("send");
    let spent: i64 = child.expect();
    assert!(
        spent < 100_000,
        "{spent} us, while one that spins had 300000"
    );
    child.send(&()).expect("send");
    let mut answer = [0; 36];
    socket.read_exact(&mut answer).expect("answer");
    assert_eq!(answer[10], 0, "welcome");
}

#[test]
fn what_cannot_be_ends_the_session_with_words() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let at = open(&net);
    let good = record(1, b"frame", 0, 0, 0);
    for (number, (what, lie)) in (b'a'..).zip([
        ("no such record", vec![9; 64]),
        ("a frame that is too long", {
            let mut long = good.clone();
            long[2..4].copy_from_slice(&4097u16.to_le_bytes());
            long
        }),
        (
            "a buffer that is too large",
            record(1, b"frame", (1 << 30) + 1, 0, 0),
        ),
        ("the second frame first", record(1, b"frame", 0, 1, 0)),
        (
            "the first frame twice",
            [good.clone(), good.clone()].concat(),
        ),
        ("more taken than sent", record(2, b"", 0, 0, 1)),
        ("a beat with a frame", record(2, b"x", 0, 0, 0)),
        ("zeros that are none", {
            let mut not = good.clone();
            not[5] = 1;
            not
        }),
    ]) {
        let session = [number; 16];
        let mut listener = net.listen(&format!("{at}/lies")).expect("listen");
        let mut socket = met(at, session, "lies");
        socket.write_all(&lie).expect("lie");
        let mut end = loop {
            if let Some(end) = listener.accept().expect("accept") {
                break end;
            }
            std::thread::yield_now();
        };
        let why = loop {
            match end.recv() {
                Ok(Some(frame)) => assert_eq!(&frame.bytes[..], b"frame", "{what}"),
                Ok(None) => std::thread::yield_now(),
                Err(RecvError::Over(why)) if why == Kind::PeerViolation => break why.to_string(),
                Err(other) => panic!("{what}: {other:?}, {:?}", end.why()),
            }
        };
        assert!(why.contains("127.0.0.1"), "{what}: {why}");
        // It does not come back either.
        let answer = say(at, &hello(true, session, 0, "lies"));
        assert_eq!(answer.get(10), Some(&3), "{what}");
        drop((end, listener));
    }
}

#[test]
fn a_session_is_gone_on_with_only_by_who_knows_it() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let at = open(&net);
    let mut listener = net.listen(&format!("{at}/mine")).expect("listen");
    let session = *b"fedcba9876543210";
    let first = met(at, session, "mine");
    // The same number again, as if it were new; one that nobody has; and more frames taken than there are.
    assert_eq!(say(at, &hello(false, session, 0, "mine")).get(10), Some(&4));
    assert_eq!(say(at, &hello(true, [5; 16], 0, "mine")).get(10), Some(&3));
    let mut end = loop {
        if let Some(end) = listener.accept().expect("accept") {
            break end;
        }
    };
    assert!(end.recv().is_ok());
    assert_eq!(say(at, &hello(true, session, 7, "mine")).get(10), Some(&0));
    while end.recv().is_ok() {
        std::thread::yield_now();
    }
    let why = end.why().expect("words");
    assert!(why.contains("has taken 7 frames"), "{why}");
    drop(first);
}

/// A domain behind the network is as careful as any: frames that decode but cannot be.
#[test]
fn a_buffer_that_nobody_expects_ends_the_channel() {
    let _dog = Watchdog::new();
    let net = Net::plain(timing()).expect("net");
    let at = open(&net);
    let honest = domain(&net);
    let options = EndOptions::new(Trust::Full);
    let sink = honest
        .create(&format!("net:{at}/bytes"), Direction::Sink, options)
        .expect("create");
    let mut socket = met(at, [3; 16], "bytes");
    // A frame that says nothing that decodes, with bytes behind it.
    socket
        .write_all(&record(1, &[0xf0; 20], 4096, 0, 0))
        .expect("lie");
    socket.write_all(&[0; 4096]).expect("bytes");
    let mut rest = Vec::new();
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("option");
    while socket.read_to_end(&mut rest).is_err() {
        let _ = sink.turn();
    }
    let _p = pair(&net, at, at, "honest");
}
