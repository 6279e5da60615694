//! The other end of `shm:` writes anything into its half of the rings, or anything into the socket beside them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_bulk::Kind;
use tranship_bulk::Shm;
use tranship_core::{Domain as Manager, PeerSocket};
use tranship_ring::{HalfRo, HalfRw, Side};
use tranship_sys::{memfd, socket};
use tranship_testkit::Watchdog;
use tranship_transport::{Backend, Frame, Listener, RecvError, Transport};

const LINES: u32 = 2048;

/// An honest end that was bound by hand, from the moment in which something was said to it.
struct Met {
    listener: Box<dyn Listener>,
    honest: Option<Box<dyn Transport>>,
    met: PeerSocket,
}

/// What a line says first: its number in the ring, the length of its frame, how many descriptors come with it.
fn first(number: u64, bytes: u64, fds: u64) -> u64 {
    bytes << 40 | fds << 32 | (number + 1)
}

fn meet(manager: &Manager) -> Met {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("rings-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let shm = Shm::over(manager).expect("joined");
    let listener = shm.listen(&name).expect("listen");
    let met = manager.connect_socket(&name).expect("connect");
    Met {
        listener,
        honest: None,
        met,
    }
}

impl Met {
    fn honest(&mut self) -> &mut dyn Transport {
        let listener = &mut self.listener;
        let accept = || loop {
            if let Some(honest) = listener.accept().expect("accept") {
                return honest;
            }
            std::thread::yield_now();
        };
        &mut **self.honest.get_or_insert_with(accept)
    }

    fn show(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        socket::sendmsg(&self.met.socket, bytes, fds, true).expect("send");
    }

    /// Shows a half as it should be, and says nothing with it.
    fn half(&mut self) -> (HalfRw, HalfRo) {
        let (memory, half) = HalfRw::create(Side::Sink, LINES).expect("half");
        self.show(b"L", &[memory.as_fd()]);
        self.honest();
        let mut hello = [0; 64];
        let got = socket::recvmsg(&self.met.socket, &mut hello, false).expect("its half");
        let other = HalfRo::open(&got.fds[0], Side::Source, LINES).expect("its half");
        assert!(self.honest().recv().expect("it is there").is_none());
        (half, other)
    }

    /// Looks until something is learned.
    fn learns(&mut self) -> Result<Frame, RecvError> {
        loop {
            match self.honest().recv() {
                Ok(None) => std::thread::yield_now(),
                Ok(Some(frame)) => return Ok(frame),
                Err(error) => return Err(error),
            }
        }
    }
}

fn put(half: &HalfRw, number: u64, words: [u64; 8]) {
    let line = &half.lines()[usize::try_from(number % u64::from(LINES)).expect("small")];
    for (word, value) in line.words.iter().zip(words).skip(1) {
        word.store(value, Ordering::Relaxed);
    }
    line.words[0].store(words[0], Ordering::Release);
}

fn memory() -> OwnedFd {
    memfd::create("rings").expect("memfd")
}

#[test]
fn a_line_that_is_right_is_taken() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    let mut met = meet(&manager);
    let (half, _other) = met.half();
    put(
        &half,
        0,
        [
            first(0, 3, 0),
            u64::from_le_bytes(*b"abc\xff\xff\xff\xff\xff"),
            0,
            0,
            0,
            0,
            0,
            0,
        ],
    );
    assert_eq!(&met.learns().expect("a frame").bytes[..], b"abc");
    met.show(b"F", &[memory().as_fd()]);
    put(&half, 1, [first(1, 1, 1), 7, 0, 0, 0, 0, 0, 0]);
    let frame = met.learns().expect("a frame");
    assert_eq!((&frame.bytes[..], frame.fds.len()), (&[7][..], 1));
}

#[test]
fn lines_that_cannot_be_end_the_connection() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    for (what, word) in [
        ("a frame of nothing", first(0, 0, 0)),
        ("a frame that is too long", first(0, 4097, 0)),
        ("as long as can be said", first(0, 0xff_ffff, 0)),
        ("two descriptors", first(0, 8, 2)),
        ("as many as can be said", first(0, 8, 255)),
        ("one that was not sent", first(0, 8, 1)),
    ] {
        let mut met = meet(&manager);
        let (half, _other) = met.half();
        put(&half, 0, [word, 0, 0, 0, 0, 0, 0, 0]);
        let learned = met.learns();
        assert!(
            matches!(&learned, Err(RecvError::Over(why)) if *why == Kind::PeerViolation),
            "{what}: {learned:?}"
        );
    }
    // A message of the socket with nothing, for a line that speaks of something.
    let mut met = meet(&manager);
    let (half, _other) = met.half();
    met.show(b"F", &[]);
    put(&half, 0, [first(0, 8, 1), 0, 0, 0, 0, 0, 0, 0]);
    let learned = met.learns();
    assert!(
        matches!(&learned, Err(RecvError::Over(why)) if *why == Kind::PeerViolation),
        "{learned:?}"
    );
    // A number that is not the next one is a line that is not there; so is the rest of a frame.
    for words in [
        [first(1, 8, 0), 1, 0, 0, 0, 0, 0, 0],
        [first(0, 4096, 0); 8],
    ] {
        let mut met = meet(&manager);
        let (half, _other) = met.half();
        put(&half, 0, words);
        for _ in 0..5000 {
            assert!(met.honest().recv().expect("nothing yet").is_none());
        }
        // Closes it.
        met.met.socket = memory();
        assert!(match met.honest().recv() {
            Ok(frame) => frame.is_none(),
            Err(RecvError::Over(why)) => why == Kind::PeerGone,
            Err(RecvError::NotNow(_)) => false,
        });
        while !matches!(&met.honest().recv(), Err(RecvError::Over(why)) if *why == Kind::PeerGone) {
        }
    }
}

/// Descriptors that no line speaks of, or more with one message than a frame has: they are not kept.
#[test]
fn descriptors_are_not_piled_up() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    let fd = memory();
    let one = fd.as_fd();
    for (what, each, times) in [
        ("many at once", 16, 1),
        ("two", 2, 1),
        ("one by one", 1, 40),
    ] {
        let mut met = meet(&manager);
        let (_half, _other) = met.half();
        let before = open_descriptors();
        for _ in 0..times {
            met.show(b"F", &vec![one; each]);
        }
        let mut most = 0;
        let learned = loop {
            most = most.max(open_descriptors().saturating_sub(before));
            match met.honest().recv() {
                Ok(None) => {}
                learned => break learned,
            }
        };
        assert!(
            matches!(&learned, Err(RecvError::Over(why)) if *why == Kind::PeerViolation),
            "{what}: {learned:?}"
        );
        // 16 at most, and what the tests beside this one open.
        assert!(most <= 32, "{what}: {most} descriptors");
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// The half that it shows is not one.
#[test]
fn halves_that_are_none_end_the_connection() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    let of = |side, lines| HalfRw::create(side, lines).expect("half").0;
    let all = [
        ("not sealed", Some(memory())),
        ("the wrong side", Some(of(Side::Source, LINES))),
        ("fewer lines", Some(of(Side::Sink, LINES / 2))),
        ("more lines", Some(of(Side::Sink, LINES * 2))),
        ("nothing", None),
    ];
    for (what, fd) in &all {
        let mut met = meet(&manager);
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        met.show(b"L", &fds);
        let learned = met.learns();
        assert!(
            matches!(&learned, Err(RecvError::Over(why)) if *why == Kind::PeerViolation),
            "{what}: {learned:?}"
        );
    }
}

/// It says that it has taken what was never sent, or takes back what it said: nothing more is sent, and nothing panics.
#[test]
fn a_head_that_cannot_be_stops_the_sender() {
    let _dog = Watchdog::new();
    let manager = Manager::embedded().expect("a manager");
    for head in [u64::MAX, 5000, 1 << 40] {
        let mut met = meet(&manager);
        let (half, _other) = met.half();
        let frame = Frame {
            bytes: [1; 64].as_slice().into(),
            ..Frame::default()
        };
        let mut sent = 0u64;
        let why = loop {
            match met.honest().send(&frame) {
                Ok(()) => sent += 1,
                Err(why) => break why,
            }
            half.head().store(head, Ordering::Release);
            let mut done = Vec::new();
            met.honest().done(&mut done);
            assert!(done.iter().all(|number| *number < sent));
        };
        assert_eq!(why, Kind::PeerGone, "{head}");
        assert_eq!(sent, u64::from(LINES) / 2);
    }
}
