//! What every test here starts with.

use std::thread;
use std::time::Duration;
use tranship_core::error::{Limit, Refusal, RefusalCode, Shortage};
use tranship_core::{
    Body, Buffer, BufferId, BufferMut, ChannelOptions, Domain, Error, Message, Outcome, PollItem,
    Pool, PoolOptions, Receiver, SendError, Sender, Trust, View, poll,
};
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

pub(crate) fn pair() -> (Domain, Domain) {
    let a = embedded();
    let b = join(&a, "b");
    (a, b)
}

/// Makes such a pair without helper threads.
pub(crate) fn bare_pair() -> (Domain, Domain) {
    let a = Domain::builder().name("a").embedded().expect("embedded");
    let path = a.socket_path().expect("socket");
    let b = Domain::builder().name("b").socket(path).connect();
    (a, b.expect("connect"))
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
    let listener = from
        .listen_with::<Sender>(name, options.clone())
        .expect("listen");
    thread::scope(|s| {
        let receiver = s.spawn(|| to.open_with::<Receiver>(name, options).expect("open"));
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

#[track_caller]
pub(crate) fn buf(message: Message) -> Buffer {
    match message.body {
        Body::Buffer(buf) => buf,
        other => panic!("a buffer was expected, not {other:?}"),
    }
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
                Err(error)
                    if matches!(
                        error.find(),
                        Some(Shortage {
                            limit: Limit::Late,
                            ..
                        })
                    ) =>
                {
                    thread::yield_now()
                }
                done => return done,
            }
        }
    }
}

/// Returns the shortage, if the manager refused something.
pub fn refusal(error: &Error) -> Option<RefusalCode> {
    error.find().map(|refusal: &Refusal| refusal.code)
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
