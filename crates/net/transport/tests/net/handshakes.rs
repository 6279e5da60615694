//! Peers that are not authenticated, at a port: they say anything, or nothing, and are many. None of them is let in,
//! and none keeps others out.

use crate::kit::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tranship_testkit::{Control, Random, Watchdog, child};
use tranship_transport::Backend;
use tranship_transport::net::{Net, Timing};

#[test]
fn unknown_peers_may_say_anything() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("unknown_peers");
    for net in both() {
        let at = open(&net);
        let mut honest = pair(&net, at, at, "honest");
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
        talk(&mut honest, 1, PAGE);
    }
}

/// One byte now and then is no help: all of it must be said in time.
#[test]
fn those_who_say_nothing_do_not_stay() {
    let _dog = Watchdog::new();
    let timing = Timing {
        handshake: Duration::from_secs(2),
        ..timing()
    };
    let net = Net::plain(timing).expect("net");
    let at = open(&net);
    let mut open: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(at).expect("connect"))
        .collect();
    for socket in &open {
        socket.set_nonblocking(true).expect("option");
    }
    // The hello is long, so that the clients never have sent all of it.
    let (hello, since) = (hello(false, [1; 16], 0, &"x".repeat(255)), Instant::now());
    let mut said = 0;
    while !open.is_empty() {
        let says = since.elapsed().as_millis() / 100 >= said;
        let byte = hello.get(usize::try_from(said).expect("small")).copied();
        said += u128::from(says);
        open.retain_mut(|socket| {
            if let (true, Some(byte)) = (says, byte) {
                let _ = socket.write(&[byte]);
            }
            let closed = |e: std::io::Error| e.kind() != std::io::ErrorKind::WouldBlock;
            !socket.read(&mut [0]).map_or_else(closed, |got| got == 0)
        });
        std::thread::yield_now();
    }
    let (count, why) = net.refused();
    let why = why.expect("words");
    assert!(
        count >= 40 && why.contains("took too long"),
        "{count}: {why}"
    );
    talk(&mut pair(&net, at, at, "honest"), 1, PAGE);
}

/// Not more than so many unknown peers are kept: the oldest make room, with words about it.
#[test]
fn unknown_peers_are_so_many_at_most() {
    let _dog = Watchdog::new();
    for (hosts, each) in [(1, 80), (10, 10)] {
        let net = plain();
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

/// A listener that has not done with its clients: they do not pile up.
#[test]
fn so_many_wait_at_a_name() {
    let _dog = Watchdog::new();
    let net = plain();
    let at = open(&net);
    let gate = Arc::new(Mutex::new(()));
    let (shut, waits) = (gate.lock().expect("a gate"), Arc::clone(&gate));
    let waits = Arc::new(move |_| drop(waits.lock()));
    let _listener = net.listen(&format!("{at}/busy"), waits).expect("listen");
    let _waiting: Vec<_> = (0..64u8).map(|n| met(at, [n; 16], "busy")).collect();
    assert_eq!(
        say(at, &hello(false, [64; 16], 0, "busy")).get(10),
        Some(&4)
    );
    let (_, why) = net.refused();
    assert!(why.is_some_and(|why| why.contains("too many clients wait")));
    drop(shut);
}

child!(
    /// Opens a port, and then everything that may be opened; lets go of it when it is told to.
    fn exhausted(ctl: Control) {
        let net = plain();
        let at = open(&net);
        let _name = listen(&net, &format!("{at}/open"));
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
            // SAFETY: room for the result of the kernel.
            unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
            // SAFETY: plain numbers.
            let usage = unsafe { usage.assume_init() };
            let time = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
            time(usage.ru_utime) + time(usage.ru_stime)
        };
        // This thread spins: any other spinning thread would get as much of the processors.
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

/// No descriptor is left for a new client: the client waits, no thread spins, and it is served when there is a
/// descriptor.
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
