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

/// What the component is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// File of the certificate, and of those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// File of its key (PEM).
    pub key: PathBuf,
    /// Unix socket at which the front takes plain connections.
    pub front: PathBuf,
    /// Most connections; one more is closed.
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
        epoll::add(&epoll, listener, data, EventFlags::IN)?;
    }
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
        conns: (0..options.connections).map(|_| None).collect(),
        free: (0..options.connections).rev().collect(),
        again: Vec::new(),
        look: None,
    }
    .run()
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
    /// Connections that have more to do than fits into a turn.
    again: Vec<usize>,
    /// When to look at all connections.
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
            let mut ready = std::mem::take(&mut self.again);
            for event in &events {
                match event.data.u64().checked_sub(LISTENER) {
                    Some(at) => self.accept(usize::try_from(at)?, &mut ready),
                    None => ready.push(usize::try_from(event.data.u64())?),
                }
            }
            let now = Instant::now();
            ready.into_iter().for_each(|slot| self.turn(slot, now));
            if self.look.is_some_and(|look| look <= now) {
                self.look = None;
                (0..self.conns.len()).for_each(|slot| self.turn(slot, now));
            }
        }
    }

    fn accept(&mut self, at: usize, ready: &mut Vec<usize>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The others get a turn, too.
        for _ in 0..64 {
            let client = match rustix::net::accept_with(&self.listeners[at], flags) {
                Ok(client) => client,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // Without descriptors the rest waits in the kernel's queue.
                Err(_) => return,
            };
            // Without room, or a front, the client's connection is closed.
            if let Some(slot) = self.free.pop() {
                match self.connect(client, slot) {
                    Ok(conn) => {
                        self.conns[slot] = Some(Box::new(conn));
                        ready.push(slot);
                    }
                    Err(why) => {
                        eprintln!("a connection for the front: {why:#}");
                        self.free.push(slot);
                    }
                }
            }
        }
    }

    fn connect(&self, client: OwnedFd, slot: usize) -> Result<Conn> {
        // A Unix socket has no such option.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&client, true);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let front = rustix::net::socket_with(unix, stream, flags, None)?;
        rustix::net::connect(&front, &self.front)?;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        for socket in [&client, &front] {
            epoll::add(&self.epoll, socket, EventData::new_u64(slot as u64), flags)?;
        }
        let now = Instant::now();
        Ok(Conn {
            tls: ServerConnection::new(Arc::clone(&self.config))?,
            client: client.into(),
            front: front.into(),
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
        let went = conn.go(now);
        let deadline = conn.deadline();
        if matches!(went, Went::Over) || deadline.is_some_and(|deadline| deadline <= now) {
            self.conns[slot] = None;
            return self.free.push(slot);
        }
        if let Went::More = went {
            self.again.push(slot);
        }
        let all = self.look.into_iter().chain(deadline);
        self.look = all.min();
    }
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
    front: File,
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

    fn go(&mut self, now: Instant) -> Went {
        for _ in 0..STEPS {
            match self.step(now) {
                Ok(true) => {}
                Ok(false) => return Went::Idle,
                Err(_) => return Went::Over,
            }
        }
        Went::More
    }

    /// Moves bytes in both directions. Says whether any went. The error ends the connection.
    fn step(&mut self, now: Instant) -> Result<bool> {
        if self.last.is_some() {
            return self.discard();
        }
        let mut any = self.hear_client()?;
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
        let mut any = false;
        while !self.plain.is_empty() {
            match waits(self.front.write(&self.plain)) {
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
            let _ = rustix::net::shutdown(self.front.as_fd(), Shutdown::Write);
        }
        any
    }

    fn hear_front(&mut self) -> Result<bool> {
        // One read is kept at most, so a slow client slows the front down.
        if self.front_ended || self.tls.wants_write() || self.tls.is_handshaking() {
            return Ok(false);
        }
        let mut bytes = [0; PLAIN];
        match waits(self.front.read(&mut bytes)) {
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
