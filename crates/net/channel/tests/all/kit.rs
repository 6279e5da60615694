//! Common start of every test here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tranship_channel::Over;
use tranship_core::{
    ChannelEnd, ChannelOptions, Domain, ErrorKind, Listener, Pool, PoolOptions, Receiver, Sender,
    Trust,
};
use tranship_testkit::Watchdog;
pub(crate) use tranship_testkit::block_on;
use tranship_transport::Backend;
use tranship_transport::net::{Credentials, Net, Timing, certificate};

const DAY: Duration = Duration::from_secs(86400);

#[track_caller]
pub(crate) fn dog() -> Watchdog {
    Watchdog::new()
}

/// Quick enough for tests, slow enough for a loaded machine.
pub(crate) fn timing() -> Timing {
    Timing {
        keepalive: Duration::from_millis(200),
        idle_timeout: Duration::from_secs(5),
        grace: Duration::from_secs(60),
        handshake: Duration::from_secs(30),
        linger: Duration::from_secs(30),
    }
}

pub(crate) fn credentials() -> Credentials {
    let ca = certificate::authority("tests", DAY).expect("authority");
    let own = certificate::issue(&ca, "tests", &["127.0.0.1".to_owned()], DAY).expect("issue");
    let made = Credentials::new(ca.cert.as_bytes(), own.cert.as_bytes(), own.key.as_bytes());
    made.expect("credentials")
}

/// Domains of one manager that know every kind of address, and a port of this machine.
pub(crate) struct World {
    pub(crate) a: Domain,
    pub(crate) b: Domain,
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
}

impl World {
    pub(crate) fn new() -> World {
        let a = Domain::builder().name("a").helper_thread(true);
        let a = a.embedded().expect("embedded");
        let path = a.socket_path().expect("socket");
        let b = Domain::builder().name("b").helper_thread(true);
        let b = b.socket(path).connect().expect("connect");
        let plain = Net::plain(timing()).expect("net");
        let tls = Net::tls(credentials(), timing()).expect("net");
        for domain in [&a, &b] {
            tranship_channel::add_to(domain).expect("carriers");
            for (scheme, net) in [("tcp+plain", &plain), ("tcp", &tls)] {
                add(domain, scheme, Arc::new(net.clone()));
            }
        }
        let any = || "127.0.0.1:0".parse().expect("address");
        World {
            a,
            b,
            plain: plain.open(any()).expect("port"),
            tls: tls.open(any()).expect("port"),
        }
    }

    /// An address of each kind; all of them are free.
    pub(crate) fn addresses(&self, name: &str) -> Vec<String> {
        let mut all = vec![format!("local:{name}"), format!("shm:{name}")];
        all.extend(self.carried(name));
        all
    }

    /// Returns the ends whose bytes are carried.
    pub(crate) fn carried(&self, name: &str) -> Vec<String> {
        let unique = format!("{name}-{}-{:p}", std::process::id(), self);
        vec![
            format!("copy:{unique}"),
            self.plain(name),
            format!("tcp:{}/{name}", self.tls),
        ]
    }

    pub(crate) fn plain(&self, name: &str) -> String {
        format!("tcp+plain:{}/{name}", self.plain)
    }

    /// A channel from `a` to `b`.
    pub(crate) fn channel(&self, address: &str) -> (Sender, Receiver) {
        self.channel_with(address, ChannelOptions::new(), ChannelOptions::new())
    }

    pub(crate) fn channel_with(
        &self,
        address: &str,
        sends: ChannelOptions,
        receives: ChannelOptions,
    ) -> (Sender, Receiver) {
        connect([&self.a, &self.b], address, sends, receives)
    }
}

/// A channel from one to the other.
pub(crate) fn connect(
    [from, to]: [&Domain; 2],
    address: &str,
    sends: ChannelOptions,
    receives: ChannelOptions,
) -> (Sender, Receiver) {
    let listener = to.listen_with::<Receiver>(address, receives);
    let listener = listener.expect("listen");
    thread::scope(|scope| {
        let sender = scope.spawn(|| from.open_with::<Sender>(address, sends).expect("open"));
        let receiver = listener.accept().expect("accept");
        (sender.join().expect("no panic"), receiver)
    })
}

/// Listens at a name whose last listener is gone. A child that another test starts meanwhile has a copy of that one's
/// socket until the child becomes its program.
pub(crate) fn listen_again<T: ChannelEnd>(domain: &Domain, address: &str) -> Listener<T> {
    loop {
        match domain.listen::<T>(address) {
            Ok(listener) => return listener,
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidEndpoint, "{error}"),
        }
        thread::yield_now();
    }
}

pub(crate) fn add(domain: &Domain, scheme: &'static str, backend: Arc<dyn Backend>) {
    tranship_core::carrier::add_to(domain, Arc::new(Over::new(scheme, backend)));
}

pub(crate) fn pool(domain: &Domain, bytes: u64) -> Pool {
    pool_of(domain, bytes, Trust::Producer)
}

pub(crate) fn pool_of(domain: &Domain, bytes: u64, trust: Trust) -> Pool {
    let options = PoolOptions::new(bytes).trust(trust);
    domain.create_pool(options).expect("pool")
}

/// Bytes that no other message has.
pub(crate) fn pattern(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A waker of this thread's, and how often it was woken.
pub(crate) fn counted() -> (Waker, Arc<AtomicU32>) {
    struct Count(Arc<AtomicU32>, Thread);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Release);
            self.1.unpark();
        }
    }
    let count = Arc::new(AtomicU32::new(0));
    let wakes = Count(Arc::clone(&count), thread::current());
    (Waker::from(Arc::new(wakes)), count)
}
