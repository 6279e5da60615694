//! What every test here starts with.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tranship_core::error::{Limit, Refusal, RefusalCode, Shortage};
use tranship_core::{
    Aggregate, Body, Buffer, BufferId, BufferMut, ChannelOptions, Domain, Error, Message, Outcome,
    PollItem, Pool, PoolOptions, Receiver, SendError, Sender, Trust, View, poll,
};
use tranship_manager::{Config, Embedded};
use tranship_testkit::Watchdog;
use tranship_testkit::probe::{Access, Probe};
pub(crate) use tranship_testkit::{block_on, until};

pub(crate) const KIB: usize = 1 << 10;
/// The chunk size of the pools here.
pub(crate) const CHUNK: usize = 64 * KIB;

#[track_caller]
pub(crate) fn dog() -> Watchdog {
    Watchdog::new()
}

/// A domain with the manager in it. Here one thread plays several domains, so each has a helper thread that gives the
/// manager its answers.
pub(crate) fn embedded() -> Domain {
    let mut config = tranship_manager::Config::default();
    // On a machine that is short of memory pools would have to give theirs back.
    config.pressure.watch = false;
    embedded_with(config)
}

pub(crate) fn embedded_with(config: tranship_manager::Config) -> Domain {
    let builder = Domain::builder().name("a").config(config);
    builder.helper_thread(true).embedded().expect("embedded")
}

/// Another domain of the same manager.
pub(crate) fn join(first: &Domain, name: &str) -> Domain {
    let path = first.socket_path().expect("socket");
    let builder = Domain::builder().name(name).socket(path);
    builder.helper_thread(true).connect().expect("connect")
}

pub(crate) fn domains() -> (Domain, Domain) {
    let a = embedded();
    let b = join(&a, "b");
    (a, b)
}

/// A domain with the manager in it, and the watchdog of the test.
#[track_caller]
pub(crate) fn watched() -> (Watchdog, Domain) {
    (dog(), embedded())
}

/// Two domains, and the watchdog of the test.
#[track_caller]
pub(crate) fn pair() -> (Watchdog, Domain, Domain) {
    let (dog, a) = watched();
    let b = join(&a, "b");
    (dog, a, b)
}

/// Makes such a pair with a link from the first domain to the second.
#[track_caller]
pub(crate) fn linked() -> (Watchdog, Domain, Domain, Sender, Receiver) {
    let (dog, a, b) = pair();
    let (sender, receiver) = link(&a, &b, "x");
    (dog, a, b, sender, receiver)
}

/// Makes such a pair without helper threads.
#[track_caller]
pub(crate) fn bare_pair() -> (Watchdog, Domain, Domain) {
    let dog = dog();
    let a = Domain::builder().name("a").embedded().expect("embedded");
    let b = bare(&a.socket_path().expect("socket"), "b");
    (dog, a, b)
}

/// A further domain of a manager, without a helper thread.
pub(crate) fn bare(path: &Path, name: &str) -> Domain {
    let builder = Domain::builder().name(name).socket(path);
    builder.connect().expect("connect")
}

/// A link between two domains.
pub(crate) fn link(from: &Domain, to: &Domain, name: &str) -> (Sender, Receiver) {
    link_with(from, to, name, ChannelOptions::new())
}

pub(crate) fn link_with(
    from: &Domain,
    to: &Domain,
    name: &str,
    options: ChannelOptions,
) -> (Sender, Receiver) {
    linked_by(from, to, name, [options.clone(), options])
}

/// A link whose receiver alone has options.
pub(crate) fn link_to(
    from: &Domain,
    to: &Domain,
    name: &str,
    options: ChannelOptions,
) -> (Sender, Receiver) {
    linked_by(from, to, name, [ChannelOptions::new(), options])
}

/// A link that copies into a pool of so many chunks.
pub(crate) fn copying(
    from: &Domain,
    to: &Domain,
    name: &str,
    chunks: usize,
) -> (Sender, Receiver, Pool) {
    let copies = pool(to, chunks);
    let options = ChannelOptions::new().snapshots(copies.id());
    let (sender, receiver) = link_to(from, to, name, options);
    (sender, receiver, copies)
}

fn linked_by(
    from: &Domain,
    to: &Domain,
    name: &str,
    [source, sink]: [ChannelOptions; 2],
) -> (Sender, Receiver) {
    let listener = from.listen_with::<Sender>(name, source).expect("listen");
    thread::scope(|s| {
        let receiver = s.spawn(|| to.open_with::<Receiver>(name, sink).expect("open"));
        let sender = listener.accept().expect("accept");
        (sender, receiver.join().expect("opener"))
    })
}

/// The first of these receivers that is ready within `timeout`.
pub(crate) fn first_ready(all: &mut [&mut Receiver], timeout: Option<Duration>) -> Option<usize> {
    let mut items: Vec<_> = all.iter_mut().map(|one| PollItem::receiver(one)).collect();
    poll(&mut items, timeout).expect("poll").first().copied()
}

/// The bytes of `buf` to write: in place if nobody else has it, else a copy out of `pool`.
pub(crate) fn writable(buf: Buffer, pool: &Pool) -> BufferMut {
    let copy = |buf: Buffer| pool.copy(&buf.to_vec()).expect("a copy");
    buf.try_into_mut().unwrap_or_else(copy)
}

/// A pool of so many chunks.
pub(crate) fn pool(domain: &Domain, chunks: usize) -> Pool {
    let options = PoolOptions::new((chunks * CHUNK) as u64).chunk_bytes(CHUNK as u64);
    domain.create_pool(options).expect("pool")
}

/// A pool of four chunks of that level.
pub(crate) fn pool_of(domain: &Domain, trust: Trust) -> Pool {
    let options = PoolOptions::new(4 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    domain.create_pool(options.trust(trust)).expect("a pool")
}

/// Access at an address of this process.
pub(crate) fn access(at: *const u8) -> Access {
    Probe::new().touch(at.expose_provenance())
}

pub(crate) fn filled(pool: &Pool, len: usize, byte: u8) -> Buffer {
    let mut buf = pool.alloc(len).expect("alloc");
    buf.fill(byte);
    buf.freeze()
}

/// A buffer that is filled, at every level of trust.
pub(crate) fn written(pool: &Pool, len: usize, byte: u8) -> BufferMut {
    let mut buf = pool.alloc(len).expect("a buffer");
    buf.write(0, &vec![byte; len]).expect("inside");
    buf
}

#[track_caller]
pub(crate) fn buf(message: Message) -> Buffer {
    match message.body {
        Body::Buffer(buf) => buf,
        other => panic!("a buffer was expected, not {other:?}"),
    }
}

/// An aggregate of these pieces.
pub(crate) fn pieces(of: impl IntoIterator<Item = Buffer>) -> Aggregate {
    let mut all = Aggregate::new();
    for piece in of {
        all.push_back(piece).expect("room");
    }
    all
}

/// Waits until so many buffers of the pool are in use. While news of the reader set is under way there may be more,
/// never fewer.
#[track_caller]
pub(crate) fn uses(pool: &Pool, buffers: u64) {
    until(|| {
        let now = pool.in_use();
        assert!(now >= buffers, "{now} are in use, not {buffers}");
        now == buffers
    });
}

/// `try_alloc` where the manager's answer is waited for, however busy the machine is.
pub(crate) trait AllocNow {
    fn alloc_now(&self, len: usize) -> Result<BufferMut, Error>;
}

impl AllocNow for Pool {
    fn alloc_now(&self, len: usize) -> Result<BufferMut, Error> {
        loop {
            match self.try_alloc(len) {
                Err(error) if short(&error) == Some(Limit::Late) => thread::yield_now(),
                done => return done,
            }
        }
    }
}

/// Returns the limit that left no memory, if the error is a shortage.
pub(crate) fn short(error: &Error) -> Option<Limit> {
    error.find().map(|shortage: &Shortage| shortage.limit)
}

/// A folder, and a manager's socket in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("m.sock");
    (dir, path)
}

/// A manager at a socket.
pub(crate) fn a_manager(path: &Path) -> Embedded {
    Embedded::start(Config::default(), Some(path)).expect("a manager")
}

/// Returns the shortage, if the manager refused something.
pub(crate) fn refusal(error: &Error) -> Option<RefusalCode> {
    error.find().map(|refusal: &Refusal| refusal.code)
}

/// Checks that the manager refused something for this reason.
#[track_caller]
pub(crate) fn is_refused(error: &Error, code: RefusalCode) {
    assert_eq!(refusal(error), Some(code), "{error}");
}

/// A buffer that was given away, as it arrives: to be written, or to be read.
#[derive(Debug)]
pub(crate) enum Given {
    Mine(BufferMut),
    Shared(Buffer),
}

impl Given {
    #[track_caller]
    pub(crate) fn of(message: Message) -> Given {
        match message.body {
            Body::BufferMut(buf) => Given::Mine(buf),
            Body::Buffer(buf) => Given::Shared(buf),
            other => panic!("a buffer was expected, not {other:?}"),
        }
    }

    /// What was given away over shared memory out of a pool of that level, which decides whether it is written.
    #[track_caller]
    pub(crate) fn next(from: &mut Receiver, trust: Trust) -> Given {
        let given = Given::of(from.recv().expect("recv"));
        assert_eq!(matches!(given, Given::Mine(_)), trust.all_write());
        given
    }

    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Given::Mine(buf) => buf.view(),
            Given::Shared(buf) => buf.view(),
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Given::Mine(buf) => buf.bytes(),
            Given::Shared(buf) => buf.bytes(),
        }
    }

    pub(crate) fn id(&self) -> BufferId {
        match self {
            Given::Mine(buf) => buf.id(),
            Given::Shared(buf) => buf.id(),
        }
    }

    /// Writes it, if it is to be written: whether it is.
    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        let Given::Mine(buf) = self else {
            return false;
        };
        buf.write(0, bytes).expect("it is ours to write");
        true
    }

    pub(crate) fn freeze(self) -> Buffer {
        match self {
            Given::Mine(buf) => buf.freeze(),
            Given::Shared(buf) => buf,
        }
    }

    pub(crate) fn send(self, to: &mut Sender) -> Result<Outcome, SendError<Given>> {
        match self {
            Given::Mine(buf) => to.send(buf).map_err(|failed| failed.map(Given::Mine)),
            Given::Shared(buf) => to.send(buf).map_err(|failed| failed.map(Given::Shared)),
        }
    }

    pub(crate) fn back(self, from: &mut Receiver, word: u64) -> Result<(), SendError<Given>> {
        match self {
            Given::Mine(buf) => {
                let back = from.send_back((buf, word));
                back.map_err(|failed| failed.map(|(buf, _)| Given::Mine(buf)))
            }
            Given::Shared(buf) => {
                let back = from.send_back((buf, word));
                back.map_err(|failed| failed.map(|(buf, _)| Given::Shared(buf)))
            }
        }
    }
}
