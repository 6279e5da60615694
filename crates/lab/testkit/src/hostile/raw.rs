//! A client written from docs/protocol.md and docs/format.md alone, which keeps all that it is given.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tranship_proto::{
    ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Refusal, Req, Request, Role, Trust,
    decode, encode,
};
use tranship_region::layout::{CountsRw, RefsRw, TableRo, TableRw, Way};
use tranship_region::{Opts, Sealing, make};
use tranship_ring::{HalfRo, HalfRw, Side};
use tranship_sys::socket;

use super::SOCKET;
pub use super::holdings::{Bait, CHUNK, Channel, LINES, Prey, SLOTS};

/// The domain that this process was last.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Longest wait for an answer, or for room for a request, in milliseconds; 0: for ever.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

/// Sets the time after which a client without an answer takes the connection for ended.
pub fn set_patience(time: std::time::Duration) {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    PATIENCE.store(millis, Ordering::Relaxed);
}

/// Returns the path of the manager's socket.
///
/// # Panics
/// Where [`SOCKET`] is not set.
pub fn path() -> std::path::PathBuf {
    std::env::var_os(SOCKET).unwrap().into()
}

#[derive(Debug)]
pub struct Raw {
    pub fd: OwnedFd,
    pub domain: DomainId,
    inbox: VecDeque<(Event, Vec<OwnedFd>)>,
    /// Everything that came, in order, unless something else wanted it.
    pub kept: Vec<OwnedFd>,
    /// The pool of somebody else's that was offered first.
    pub prey: Option<Prey>,
    gone: BTreeSet<ChannelId>,
    next: u32,
}

impl Raw {
    /// Returns a connection that has said nothing.
    pub fn silent() -> Self {
        let fd = socket::connect(&path()).unwrap();
        let patience = PATIENCE.load(Ordering::Relaxed);
        if patience > 0 {
            use rustix::net::sockopt::{Timeout, set_socket_timeout};
            let time = Some(std::time::Duration::from_millis(patience));
            for which in [Timeout::Recv, Timeout::Send] {
                set_socket_timeout(&fd, which, time).unwrap();
            }
        }
        Self {
            fd,
            domain: DomainId(0),
            inbox: VecDeque::new(),
            kept: Vec::new(),
            prey: None,
            gone: BTreeSet::new(),
            next: 0,
        }
    }

    pub fn join(name: &str) -> Self {
        Self::try_join(name).unwrap()
    }

    pub fn try_join(name: &str) -> Result<Self, Option<Refusal>> {
        Self::silent().hello(name, None)
    }

    /// Comes back as the same domain as before, so that it stays one domain however often it is thrown out.
    pub fn again(name: &str) -> Self {
        let before = match LAST.load(Ordering::Relaxed) {
            0 => None,
            id => Some(DomainId(id)),
        };
        Self::silent().hello(name, before).unwrap()
    }

    /// Introduces this connection; returns the new domain, or the reason for none.
    ///
    /// # Errors
    /// The manager's reason, if it gave one.
    pub fn hello(mut self, name: &str, resume: Option<DomainId>) -> Result<Self, Option<Refusal>> {
        let hello = Request::Hello {
            version: PROTOCOL_VERSION,
            name: name.into(),
            resume,
            dumpable: true,
        };
        // A client over the limit is told so and cut off, perhaps before this.
        let _ = self.try_send(&hello, &[]);
        match self.recv() {
            Some((Event::Welcome { domain, .. }, fds)) => {
                self.domain = domain;
                LAST.store(domain.0, Ordering::Relaxed);
                self.kept.extend(fds);
                Ok(self)
            }
            Some((Event::Expelled { refusal }, _)) => Err(Some(refusal)),
            other => {
                drop(other);
                Err(None)
            }
        }
    }

    pub fn req(&mut self) -> Req {
        self.next += 1;
        Req(self.next)
    }

    pub fn try_send(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        socket::sendmsg(&self.fd, &encode(request), fds, false)
    }

    #[track_caller]
    pub fn send(&self, request: &Request, fds: &[BorrowedFd<'_>]) {
        self.try_send(request, fds).unwrap();
    }

    pub fn recv(&mut self) -> Option<(Event, Vec<OwnedFd>)> {
        let mut buf = [0u8; 17000];
        let r = socket::recvmsg(&self.fd, &mut buf, false).ok()?;
        (r.bytes > 0).then(|| (decode(&buf[..r.bytes]).unwrap(), r.fds))
    }

    /// Waits for the next event that matches, and keeps the others.
    #[track_caller]
    pub fn wait<T>(&mut self, mut f: impl FnMut(&Event) -> Option<T>) -> (T, Vec<OwnedFd>) {
        if let Some((at, found)) = self
            .inbox
            .iter()
            .enumerate()
            .find_map(|(i, (e, _))| Some((i, f(e)?)))
        {
            let (_, fds) = self.inbox.remove(at).unwrap();
            return (found, fds);
        }
        loop {
            let (event, fds) = self
                .recv()
                .unwrap_or_else(|| panic!("hung up after {:?}", self.inbox));
            match f(&event) {
                Some(found) => return (found, fds),
                None => self.inbox.push_back((event, fds)),
            }
        }
    }

    /// Takes all descriptors out of the inbox.
    pub fn keep_all(&mut self) {
        let fds = self.inbox.drain(..).flat_map(|(_, fds)| fds);
        self.kept.extend(fds);
    }

    /// Reads until the end of the connection; returns the last message of the manager.
    pub fn expelled(&mut self) -> Option<Refusal> {
        let mut last = None;
        while let Some((event, _)) = self.recv() {
            if let Event::Expelled { refusal } = event {
                last = Some(refusal);
            }
        }
        last
    }

    /// Creates a pool with one chunk.
    pub fn create_pool(&mut self, name: &str) -> Bait {
        self.create_pool_of(name, SLOTS, 4 * CHUNK, CHUNK)
    }

    /// Creates a pool at another level of trust.
    pub fn create_pool_at(&mut self, name: &str, trust: Trust) -> Bait {
        self.make_pool(name, trust, (SLOTS, 4 * CHUNK, CHUNK))
    }

    pub fn create_pool_of(
        &mut self,
        name: &str,
        slots: u32,
        max_bytes: u64,
        chunk_bytes: u64,
    ) -> Bait {
        self.make_pool(name, Trust::Producer, (slots, max_bytes, chunk_bytes))
    }

    fn make_pool(
        &mut self,
        name: &str,
        trust: Trust,
        (slots, max_bytes, chunk_bytes): (u32, u64, u64),
    ) -> Bait {
        let (fd, table) = TableRw::create(slots, max_bytes, chunk_bytes).unwrap();
        let req = self.req();
        let request = Request::CreatePool {
            req,
            name: name.into(),
            shape: tranship_proto::PoolShape {
                max_bytes,
                slots,
                chunk_bytes,
                trust,
            },
        };
        self.send(&request, &[fd.as_fd()]);
        let (id, _) = self.wait(|e| match e {
            Event::PoolCreated { req: r, pool, .. } if *r == req => Some(*pool),
            _ => None,
        });
        let req = self.req();
        self.send(
            &Request::Grant {
                req,
                pool: id,
                chunks: 1,
            },
            &[],
        );
        self.wait(|e| matches!(e, Event::Granted { req: r, .. } if *r == req).then_some(()));
        let (chunk_fd, chunk) = make(
            "bait",
            usize::try_from(chunk_bytes).unwrap(),
            Opts {
                sealing: match trust.all_write() {
                    true => Sealing::Shared,
                    false => Sealing::default(),
                },
                ..Opts::default()
            },
        )
        .unwrap();
        let req = self.req();
        self.send(
            &Request::ShowChunks {
                req,
                pool: id,
                chunks: vec![(0, 1)],
                least: 1,
            },
            &[chunk_fd.as_fd()],
        );
        self.wait(|e| matches!(e, Event::ChunksReady { req: r, .. } if *r == req).then_some(()));
        Bait {
            id,
            table,
            chunk,
            _fds: [fd, chunk_fd],
        }
    }

    /// Offers a name.
    pub fn export(&mut self, name: &str, role: Role) {
        let req = self.req();
        let name = name.into();
        self.send(&Request::Export { req, name, role }, &[]);
        self.wait(|e| matches!(e, Event::Exported { req: r, .. } if *r == req).then_some(()));
    }

    /// Takes the next client that connects to a name of ours.
    pub fn accept(&mut self, role: Role) -> Channel {
        let (side, theirs) = sides(role);
        let ((id, lines), mut fds) = self.wait(|e| match e {
            Event::Incoming { channel, lines, .. } => Some((*channel, *lines)),
            _ => None,
        });
        let (fd, own) = HalfRw::create(side, LINES).unwrap();
        let req = self.req();
        let accept = Request::Accept {
            req,
            channel: id,
            lines: LINES,
        };
        self.send(&accept, &[fd.as_fd()]);
        self.wait(|e| matches!(e, Event::Accepted { req: r, .. } if *r == req).then_some(()));
        let their_fd = fds.remove(0);
        let theirs = HalfRo::open(&their_fd, theirs, lines).unwrap();
        self.kept.push(their_fd);
        Channel {
            id,
            own,
            theirs,
            tail: 0,
            _fd: fd,
            counts: Vec::new(),
        }
    }

    /// Wants to connect to a name, and does not wait for the answer.
    pub fn ask_for(&mut self, name: &str, role: Role, wait: bool) -> (Req, OwnedFd) {
        let (fd, _own) = HalfRw::create(sides(role).0, LINES).unwrap();
        let req = self.req();
        let connect = Request::Connect {
            req,
            name: name.into(),
            role,
            lines: LINES,
            wait,
        };
        self.send(&connect, &[fd.as_fd()]);
        (req, fd)
    }

    /// Waits until the manager has handled all that was said before.
    pub fn sync(&mut self) {
        let req = self.req();
        self.send(&Request::Stat { req }, &[]);
        self.wait(|e| matches!(e, Event::StatEnd { req: r } if *r == req).then_some(()));
        self.inbox.retain(|(e, _)| !matches!(e, Event::Stat { .. }));
    }

    /// Returns the next refusal that has come, without waiting for one.
    pub fn refused_meanwhile(&mut self) -> Option<Refusal> {
        let mut buf = [0u8; 17000];
        while let Ok(r) = socket::recvmsg(&self.fd, &mut buf, true) {
            if r.bytes == 0 {
                break;
            }
            self.inbox
                .push_back((decode(&buf[..r.bytes]).unwrap(), r.fds));
        }
        let refusal = |e: &Event| match e {
            Event::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        };
        let at = self.inbox.iter().position(|(e, _)| refusal(e).is_some())?;
        refusal(&self.inbox.remove(at)?.0)
    }

    /// Connects to a name; the other side accepts.
    pub fn connect(&mut self, name: &str, role: Role) -> Channel {
        let (side, theirs) = sides(role);
        let (fd, own) = HalfRw::create(side, LINES).unwrap();
        let req = self.req();
        self.send(
            &Request::Connect {
                req,
                name: name.into(),
                role,
                lines: LINES,
                wait: true,
            },
            &[fd.as_fd()],
        );
        let ((id, lines), mut fds) = self.wait(|e| match e {
            Event::Opened {
                req: r,
                channel,
                lines,
                ..
            } if *r == req => Some((*channel, *lines)),
            _ => None,
        });
        let their_fd = fds.remove(0);
        let theirs = HalfRo::open(&their_fd, theirs, lines).unwrap();
        self.kept.push(their_fd);
        self.kept.extend(fds);
        Channel {
            id,
            own,
            theirs,
            tail: 0,
            _fd: fd,
            counts: Vec::new(),
        }
    }

    /// Assigns a pool to the channel, as a source.
    pub fn assign(&mut self, channel: &mut Channel, pool: PoolId, slots: u32) {
        let (fd, counts) = CountsRw::create(Way::Sent, slots).unwrap();
        let req = self.req();
        self.send(
            &Request::Assign {
                req,
                channel: channel.id,
                pool,
            },
            &[fd.as_fd()],
        );
        let (refused, _) = self.wait(|e| match e {
            Event::Assigned { req: r, .. } if *r == req => Some(None),
            Event::Refused { req: r, refusal } if *r == req => Some(Some(*refusal)),
            _ => None,
        });
        assert_eq!(refused, None, "assigning {pool}");
        channel.counts.push((fd, counts));
    }

    /// Takes, as a sink, the pool that is offered next, and its first chunk if it is new.
    pub fn take_offer(&mut self, channel: &mut Channel) {
        let ((pool, shape, known), mut fds) = self.wait(|e| match e {
            Event::PoolOffer {
                pool, shape, known, ..
            } => Some((*pool, *shape, *known)),
            _ => None,
        });
        let slots = shape.slots;
        let table_fd = fds.remove(0);
        let (rcvd_fd, rcvd) = CountsRw::create(Way::Rcvd, slots).unwrap();
        let accept = Request::AcceptPool {
            channel: channel.id,
            pool,
            with_refs: !known,
        };
        if known {
            self.send(&accept, &[rcvd_fd.as_fd()]);
        } else {
            let table =
                TableRo::open(&table_fd, slots, shape.max_bytes, shape.chunk_bytes).unwrap();
            let (refs_fd, refs) = RefsRw::create(slots).unwrap();
            self.send(&accept, &[rcvd_fd.as_fd(), refs_fd.as_fd()]);
            let (_, mut fds) = self.wait(|e| matches!(e, Event::ChunkAdded { .. }).then_some(()));
            self.kept.push(fds.remove(0));
            self.prey = Some(Prey {
                pool,
                slots,
                table,
                refs,
                _fd: refs_fd,
            });
        }
        // From here on the source may send.
        self.wait(|e| {
            matches!(e, Event::PoolOpen { channel: c, .. } if *c == channel.id).then_some(())
        });
        self.kept.push(table_fd);
        channel.counts.push((rcvd_fd, rcvd));
    }

    /// Returns whether the other side has left the channel, as the manager says. Descriptors that come are closed.
    pub fn is_gone(&mut self, channel: ChannelId) -> bool {
        let mut buf = [0u8; 17000];
        while let Ok(r) = socket::recvmsg(&self.fd, &mut buf, true) {
            if r.bytes == 0 {
                return true;
            }
            match decode(&buf[..r.bytes]).unwrap() {
                Event::PeerGone { channel, .. } => {
                    self.gone.insert(channel);
                }
                Event::ChunkAdded { .. } => {}
                event => self.inbox.push_back((event, r.fds)),
            }
        }
        self.inbox.retain(|(e, _)| match e {
            Event::PeerGone { channel, .. } => {
                self.gone.insert(*channel);
                false
            }
            _ => true,
        });
        self.gone.contains(&channel)
    }

    /// Waits until there is room for a line; `false` if the other side has left.
    pub fn room(&mut self, channel: &Channel) -> bool {
        loop {
            if channel.has_room() {
                return true;
            }
            if self.is_gone(channel.id) {
                return false;
            }
            std::thread::yield_now();
        }
    }

    pub fn close(&mut self, channel: Channel) {
        self.send(
            &Request::CloseChannel {
                channel: channel.id,
            },
            &[],
        );
    }
}

fn sides(role: Role) -> (Side, Side) {
    match role {
        Role::Source => (Side::Source, Side::Sink),
        Role::Sink => (Side::Sink, Side::Source),
    }
}
