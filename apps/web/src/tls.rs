//! TLS before the connections: what clients have encrypted becomes plain bytes at the front's Unix socket, and back.
//!
//! This component alone has the key. It parses TLS and nothing else. Once it serves it opens nothing but connections to
//! Unix sockets.
//!
//! Source: RFC 8446, by rustls.

use crate::component::timespec;
use anyhow::{Context, Result};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship::sandbox::Sandbox;

/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for a client to take more of what was sent to it.
const TAKEN: Duration = Duration::from_secs(30);
/// Time for a client to read the last bytes of a connection.
const LINGER: Duration = Duration::from_secs(2);
/// Plain bytes that are read from the front together.
const PLAIN: usize = 32 << 10;
/// Steps of a connection before the others have a turn.
const STEPS: usize = 32;
/// Shortest time between two looks at all connections.
const TICK: Duration = Duration::from_millis(100);
/// Descriptors besides those of connections.
const OTHERS: usize = 32;

/// What the component is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// File of the certificate, and of those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// File of its key (PEM).
    pub key: PathBuf,
    /// Unix socket at which the front takes plain connections.
    pub front: PathBuf,
    /// Most connections. One more takes the place of the oldest handshake, or is closed.
    pub connections: usize,
}

/// Serves connections, until the process is stopped. `listeners` are sockets that listen.
///
/// # Errors
/// A certificate or key that cannot be used; what the system refuses.
pub fn run(options: &Options, listeners: Vec<OwnedFd>) -> Result<()> {
    let config = Arc::new(config(&options.certificate, &options.key)?);
    let front = SocketAddrUnix::new(&options.front);
    let front = front.with_context(|| format!("the socket {}", options.front.display()))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, listener) in listeners.iter().enumerate() {
        rustix::io::ioctl_fionbio(listener, true)?;
        let data = EventData::new_u64(LISTENER + at as u64);
        epoll::add(&epoll, listener, data, EventFlags::IN | EventFlags::ET)?;
    }
    let places = places(options.connections)?;
    let also = [
        libc::SYS_accept4,
        libc::SYS_setsockopt,
        libc::SYS_epoll_pwait2,
    ];
    Sandbox::new().reconnects().also(&also).lock_down()?;
    Tls {
        config,
        front,
        listeners,
        epoll,
        conns: (0..places).map(|_| None).collect(),
        free: (0..places).rev().collect(),
        again: Vec::new(),
        look: None,
    }
    .run()
}

/// Raises the limit of descriptors, of which a connection needs two. Returns how many connections there can be.
fn places(wanted: usize) -> Result<usize> {
    let most = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, raised).context("raising the limit of descriptors")?;
    let most = most.map_or(usize::MAX, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    });
    Ok(wanted.min(most.saturating_sub(OTHERS) / 2).max(1))
}

fn config(certificate: &Path, key: &Path) -> Result<ServerConfig> {
    let of = |path: &Path| format!("{}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.with_context(|| of(certificate))?;
    let private = PrivateKeyDer::from_pem_file(key).with_context(|| of(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let made = builder
        .with_no_client_auth()
        .with_single_cert(chain, private);
    let mut config = made.with_context(|| format!("{} and {}", of(certificate), of(key)))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Events of listeners have this number and more, those of connections have their slots.
const LISTENER: u64 = 1 << 32;

struct Tls {
    config: Arc<ServerConfig>,
    front: SocketAddrUnix,
    listeners: Vec<OwnedFd>,
    epoll: OwnedFd,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<usize>,
    /// Events of connections and listeners that have more to do than fits into a turn.
    again: Vec<u64>,
    /// When to look at all connections and listeners.
    look: Option<Instant>,
}

impl Tls {
    fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let left = |look: Instant| look.saturating_duration_since(Instant::now());
            let limit = match self.again.is_empty() {
                true => self.look.map(left),
                false => Some(Duration::ZERO),
            };
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, limit.map(timespec).as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("epoll_wait"),
            }
            let now = Instant::now();
            let mut ready = std::mem::take(&mut self.again);
            ready.extend(events.iter().map(|event| event.data.u64()));
            for event in ready {
                match event.checked_sub(LISTENER) {
                    Some(at) => self.accept(usize::try_from(at)?, now),
                    None => self.turn(usize::try_from(event)?, now),
                }
            }
            if self.look.is_some_and(|look| look <= now) {
                self.look_at_all(now);
            }
        }
    }

    /// Ends the connections whose time is over, and accepts what could not be accepted before.
    fn look_at_all(&mut self, now: Instant) {
        self.look = None;
        for slot in 0..self.conns.len() {
            match self.conns[slot].as_ref().and_then(|conn| conn.deadline()) {
                Some(deadline) if deadline <= now => self.turn(slot, now),
                Some(deadline) => self.look_by(deadline, now),
                None => {}
            }
        }
        (0..self.listeners.len()).for_each(|at| self.accept(at, now));
    }

    /// Many deadlines are one look.
    fn look_by(&mut self, deadline: Instant, now: Instant) {
        let at = deadline.max(now + TICK);
        self.look = Some(self.look.map_or(at, |look| look.min(at)));
    }

    fn accept(&mut self, at: usize, now: Instant) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..64 {
            let client = match rustix::net::accept_with(&self.listeners[at], flags) {
                Ok(client) => client,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                // Without descriptors the rest waits in the kernel's queue.
                Err(_) => return self.look_by(now, now),
            };
            if let Some(slot) = self.place() {
                match self.begin(client, slot, now) {
                    Ok(conn) => {
                        self.conns[slot] = Some(Box::new(conn));
                        self.turn(slot, now);
                    }
                    Err(_) => self.free.push(slot),
                }
            }
        }
        // The others get a turn, too.
        self.again.push(LISTENER + at as u64);
    }

    /// Returns a free place, or else that of the oldest handshake, which ends.
    fn place(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            let all = self.conns.iter().zip(0..);
            let all = all.filter_map(|(conn, slot)| Some((conn.as_ref()?, slot)));
            let handshakes = all.filter(|(conn, _)| conn.front.is_none());
            let (_, oldest) = handshakes.min_by_key(|(conn, _)| conn.since)?;
            self.conns[oldest] = None;
            Some(oldest)
        })
    }

    fn begin(&self, client: OwnedFd, slot: usize, now: Instant) -> Result<Conn> {
        // A Unix socket has no such option.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&client, true);
        watch(&self.epoll, &client, slot)?;
        Ok(Conn {
            tls: ServerConnection::new(Arc::clone(&self.config))?,
            client: client.into(),
            front: None,
            plain: Vec::new(),
            client_ended: false,
            front_ended: false,
            front_told: false,
            since: now,
            last: None,
        })
    }

    /// Does what can be done for a connection.
    fn turn(&mut self, slot: usize, now: Instant) {
        let Some(conn) = &mut self.conns[slot] else {
            return;
        };
        let went = conn.go(now, || connect(&self.epoll, &self.front, slot));
        let deadline = conn.deadline();
        if matches!(went, Went::Over) || deadline.is_some_and(|deadline| deadline <= now) {
            self.conns[slot] = None;
            return self.free.push(slot);
        }
        if let Went::More = went {
            self.again.push(slot as u64);
        }
        if let Some(deadline) = deadline {
            self.look_by(deadline, now);
        }
    }
}

fn connect(epoll: &OwnedFd, to: &SocketAddrUnix, slot: usize) -> Result<File> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let front = rustix::net::socket_with(unix, stream, flags, None)?;
    rustix::net::connect(&front, to)?;
    watch(epoll, &front, slot)?;
    Ok(front.into())
}

fn watch(epoll: &OwnedFd, socket: &OwnedFd, slot: usize) -> Result<()> {
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    Ok(epoll::add(
        epoll,
        socket,
        EventData::new_u64(slot as u64),
        flags,
    )?)
}

/// How far a connection came.
enum Went {
    /// It waits for the client or the front.
    Idle,
    /// There is more to do.
    More,
    Over,
}

struct Conn {
    tls: ServerConnection,
    client: File,
    /// The connection to the front, after the handshake.
    front: Option<File>,
    /// Plain bytes that the front has not taken.
    plain: Vec<u8>,
    /// The client sends no more.
    client_ended: bool,
    /// The front sends no more.
    front_ended: bool,
    /// The front was told that the client sends no more.
    front_told: bool,
    /// The beginning, and then the last time that the client took something.
    since: Instant,
    /// Everything was sent, since then.
    last: Option<Instant>,
}

impl Conn {
    /// Returns the time at which the connection is cut.
    fn deadline(&self) -> Option<Instant> {
        match self.last {
            Some(last) => Some(last + LINGER),
            None if self.tls.is_handshaking() => Some(self.since + HANDSHAKE),
            None if self.tls.wants_write() => Some(self.since + TAKEN),
            // The front has times for all else.
            None => None,
        }
    }

    fn go(&mut self, now: Instant, connect: impl Fn() -> Result<File>) -> Went {
        for _ in 0..STEPS {
            match self.step(now, &connect) {
                Ok(true) => {}
                Ok(false) => return Went::Idle,
                Err(_) => return Went::Over,
            }
        }
        Went::More
    }

    /// Moves bytes in both directions. Says whether any went. The error ends the connection.
    fn step(&mut self, now: Instant, connect: impl Fn() -> Result<File>) -> Result<bool> {
        if self.last.is_some() {
            return self.discard();
        }
        let mut any = self.hear_client()?;
        if self.front.is_none() && !self.tls.is_handshaking() {
            let front =
                connect().inspect_err(|why| eprintln!("a connection for the front: {why:#}"));
            self.front = Some(front?);
        }
        any |= self.tell_front();
        any |= self.hear_front()?;
        any |= self.tell_client(now)?;
        Ok(any)
    }

    fn hear_client(&mut self) -> Result<bool> {
        if self.client_ended || !self.plain.is_empty() {
            return Ok(false);
        }
        let Some(read) = waits(self.tls.read_tls(&mut self.client))? else {
            return Ok(false);
        };
        self.client_ended = read == 0;
        anyhow::ensure!(
            !self.client_ended || !self.tls.is_handshaking(),
            "the client has ended in the handshake"
        );
        if let Err(error) = self.tls.process_new_packets() {
            // The client is told why, if it can be.
            let _ = self.tls.write_tls(&mut self.client);
            return Err(error.into());
        }
        let mut bytes = [0; 4096];
        while !self.client_ended {
            match self.tls.reader().read(&mut bytes) {
                Ok(0) => self.client_ended = true,
                Ok(read) => self.plain.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn tell_front(&mut self) -> bool {
        let Some(front) = &mut self.front else {
            return false;
        };
        let mut any = false;
        while !self.plain.is_empty() {
            match waits(front.write(&self.plain)) {
                Ok(Some(wrote)) => _ = self.plain.drain(..wrote),
                Ok(None) => return any,
                // It reads no more. What it has sent is still to come.
                Err(_) => self.plain.clear(),
            }
            any = true;
        }
        if self.client_ended && !self.front_told {
            self.front_told = true;
            // It may have gone.
            let _ = rustix::net::shutdown(front.as_fd(), Shutdown::Write);
        }
        any
    }

    fn hear_front(&mut self) -> Result<bool> {
        // One read is kept at most, so a slow client slows the front down.
        if self.front_ended || self.tls.wants_write() {
            return Ok(false);
        }
        let Some(front) = &mut self.front else {
            return Ok(false);
        };
        let mut bytes = [0; PLAIN];
        match waits(front.read(&mut bytes)) {
            Ok(None) => return Ok(false),
            Ok(Some(read @ 1..)) => self.tls.writer().write_all(&bytes[..read])?,
            // A reset is an end, too.
            Ok(Some(0)) | Err(_) => {
                self.front_ended = true;
                self.tls.send_close_notify();
            }
        }
        Ok(true)
    }

    fn tell_client(&mut self, now: Instant) -> Result<bool> {
        let mut any = false;
        while self.tls.wants_write() {
            match waits(self.tls.write_tls(&mut self.client))? {
                Some(_) => any = true,
                None => break,
            }
        }
        if any && !self.tls.is_handshaking() {
            self.since = now;
        }
        if self.front_ended && !self.tls.wants_write() {
            self.last = Some(now);
            rustix::net::shutdown(self.client.as_fd(), Shutdown::Write)?;
            any = true;
        }
        Ok(any)
    }

    /// Reads what the client still sends, so that it sees the end and no reset.
    fn discard(&mut self) -> Result<bool> {
        let mut bytes = [0; 4096];
        match waits(self.client.read(&mut bytes))? {
            Some(0) => anyhow::bail!("both sides have ended"),
            read => Ok(read.is_some()),
        }
    }
}

/// Returns the result of a call that may have to wait: `None`.
fn waits(done: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match done {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    /// Returns a component with one place, and a client that has it.
    fn one() -> (Tls, UnixStream, Instant) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.expect("a certificate");
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let certificate = file("cert.pem", made.cert.pem());
        let key = file("key.pem", made.signing_key.serialize_pem());
        let mut tls = Tls {
            config: Arc::new(config(&certificate, &key).expect("a configuration")),
            front: SocketAddrUnix::new("/nowhere").expect("an address"),
            listeners: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll"),
            conns: vec![None],
            free: Vec::new(),
            again: Vec::new(),
            look: None,
        };
        let (client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("it does not wait");
        let now = Instant::now();
        let conn = tls.begin(server.into(), 0, now).expect("a connection");
        tls.conns[0] = Some(Box::new(conn));
        tls.turn(0, now);
        (tls, client, now)
    }

    #[test]
    fn deadlines_that_come_one_after_the_other_are_one_look() {
        let (mut tls, _client, now) = one();
        let end = now + HANDSHAKE;
        assert_eq!(tls.look, Some(end));
        let before = end - Duration::from_millis(1);
        tls.look_at_all(before);
        assert_eq!(tls.look, Some(before + TICK));
        // Another turn does not put it off.
        tls.turn(0, end - Duration::from_nanos(1));
        assert_eq!(tls.look, Some(before + TICK));
        tls.look_at_all(before + TICK);
        assert_eq!((tls.free, tls.look), (vec![0], None));
    }

    #[test]
    fn an_end_in_the_handshake_frees_the_place_at_once() {
        let (mut tls, client, now) = one();
        // A process that another test starts may have a copy of it for a moment.
        client.shutdown(Shutdown::Both).expect("an end");
        tls.turn(0, now);
        assert_eq!(tls.free, [0]);
    }

    #[test]
    fn there_are_as_many_places_as_descriptors_allow() {
        let before = getrlimit(Resource::Nofile);
        let most = before.maximum.unwrap_or(u64::MAX);
        let low = Rlimit {
            current: Some(most.min(500)),
            ..before
        };
        setrlimit(Resource::Nofile, low).expect("a limit");
        let many = usize::try_from(most).unwrap_or(usize::MAX);
        assert_eq!(places(many).expect("places"), (many - OTHERS) / 2);
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        assert_eq!(places(2).expect("places"), 2);
    }
}
