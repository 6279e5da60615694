//! After the manager's death, or after the manager took this domain for dead: find it and show it this domain's
//! objects.
//!
//! The manager verifies a claim like a new object. Data keeps flowing meanwhile. No thread waits for the answers to
//! claims, because a channel's answer comes only once its other end has claimed it too. They are events like others.

use super::conn::{Claim, Conn};
use super::greeting::{Greeting, Welcome};
use super::residents::Gone;
use super::state::DomainCore;
use crate::error::{Barrier, Error, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tranship_proto::{Req, Request};
use tranship_sys::crash;

/// Between two attempts to reach a manager that is away.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the answer to a hello is waited for at once.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Most entries in one message.
const PIECE: usize = 700;

impl DomainCore {
    /// Handles that the connection ended.
    pub(super) fn manager_left(&self) {
        tracing::info!(domain = %self.id(), "the manager is away");
        let links = self.register.all_links();
        links
            .iter()
            .for_each(|link| link.watch().set_watched(false));
        self.register.look_again();
        self.tasks.has_news();
    }

    /// Tries to reach a manager. A failed attempt, or an answer that is still to come, is `ManagerAway` (or `CutOff`),
    /// and the next try follows after a pause. It waits no longer than a healthy manager needs.
    pub(super) fn rejoin(&self, conn: &mut Conn) -> Result<(), Error> {
        if self.is_closed() {
            return Ok(());
        }
        let mut greeting = match conn.greeting.take() {
            Some(greeting) => greeting,
            None => self.greet(conn)?,
        };
        match greeting.look() {
            Ok(Some(welcome)) => {
                let (fd, welcome) = greeting.into_fd(welcome)?;
                self.welcomed(conn, fd, welcome)
            }
            Ok(None) => {
                conn.greeting = Some(greeting);
                Err(self.away(conn))
            }
            Err(error) => {
                tracing::debug!(%error, "the manager did not welcome us");
                conn.attempts.failed(self.id(), Barrier::in_answer(&error));
                Err(self.away(conn))
            }
        }
    }

    /// Finds a manager and says hello.
    fn greet(&self, conn: &mut Conn) -> Result<Greeting, Error> {
        let now = Instant::now();
        if conn
            .last_attempt
            .is_some_and(|last| now.duration_since(last) < PAUSE)
        {
            return Err(self.away(conn));
        }
        conn.last_attempt = Some(now);
        let fd = match self.home.dial() {
            Ok(fd) => fd,
            Err(barrier) => {
                conn.attempts.failed(self.id(), barrier);
                return Err(self.away(conn));
            }
        };
        crash::point("resume.before_hello");
        let (me, key) = (Some(self.id()), self.home.key.as_deref());
        let greeting = Greeting::say(fd, &self.name, me, key, self.manager_timeout);
        let greeting = greeting.map_err(|error| {
            tracing::debug!(%error, "a manager that cannot be greeted");
            Error::from(ErrorKind::ManagerAway)
        })?;
        if let Some(fd) = greeting.fd() {
            self.poll_manager(fd);
        }
        greeting.pause(AT_ONCE);
        Ok(greeting)
    }

    /// Makes the error; whether the manager may come back is decided elsewhere.
    fn away(&self, conn: &Conn) -> Error {
        match conn.attempts.cut_off() {
            Some(barrier) => {
                let text = format!(
                    "the manager at {} is gone, and no other can be reached there any more: existing channels go on, nothing new can be had; let the process connect, or restart it",
                    self.home.place.display()
                );
                Error::because(ErrorKind::CutOff, text, barrier)
            }
            None => ErrorKind::ManagerAway.into(),
        }
    }

    fn welcomed(&self, conn: &mut Conn, fd: OwnedFd, welcome: Welcome) -> Result<(), Error> {
        if !welcome.resumed {
            // Another process got this domain's id meanwhile. Its objects live on by their mappings, but a new manager
            // cannot know them by their old names.
            tracing::warn!(domain = %self.id(), "the new manager has given our id away; existing channels go on unmanaged");
        }
        self.id
            .store(welcome.domain.0, std::sync::atomic::Ordering::Relaxed);
        // No collection from here until the pool's place in the new control page is known: the old control page is no
        // longer written.
        let pools = self.register.all_own();
        self.register.look_again();
        for pool in &pools {
            pool.suspend();
        }
        self.trace_nothing();
        self.control_pages.set(welcome.control_page);
        conn.up(fd, welcome.instance);
        self.tasks.has_news();
        let claimed = self.claim_all(conn);
        if claimed.is_err() && conn.is_up() {
            // Objects without a claim count as given up: the next connection claims all of them again.
            conn.hang_up();
        }
        claimed
    }

    fn claim_all(&self, conn: &mut Conn) -> Result<(), Error> {
        let pools = self.register.all_own();
        for pool in &pools {
            let id = pool.id();
            self.claim(conn, Claim::Pool(id), &[pool.table_fd().as_fd()], |req| {
                Request::ClaimPool {
                    req,
                    pool: id,
                    name: pool.name().into(),
                    shape: pool.shape(),
                }
            })?;
            for (index, serial, fd) in pool.chunks() {
                crash::point("resume.between_chunks");
                self.claim(conn, Claim::Chunk(id, index), &[fd.as_fd()], |req| {
                    Request::ClaimChunk {
                        req,
                        pool: id,
                        index,
                        serial,
                    }
                })?;
            }
        }
        for heap in self.register.all_heaps() {
            self.claim(conn, Claim::Heap(heap.number), &[], |req| {
                Request::CreateHeap {
                    req,
                    name: heap.name.clone(),
                    max_bytes: heap.max_bytes,
                    held_bytes: heap.held(),
                }
            })?;
        }
        let is_ours = |id| pools.iter().any(|pool| pool.id() == id);
        let rights = self.register.rights_of(is_ours);
        for (pool, domain) in rights {
            self.claim(conn, Claim::Right(pool, domain), &[], |req| {
                Request::AllowForward { req, pool, domain }
            })?;
        }
        for pool in &pools {
            let id = pool.id();
            for piece in pool.readers().chunks(PIECE) {
                self.claim(conn, Claim::ReaderSet(id), &[], |req| {
                    Request::ClaimReaderSet {
                        req,
                        pool: id,
                        readers: piece.to_vec(),
                        queues: Vec::new(),
                    }
                })?;
            }
            for piece in pool.queues().chunks(PIECE) {
                self.claim(conn, Claim::ReaderSet(id), &[], |req| {
                    Request::ClaimReaderSet {
                        req,
                        pool: id,
                        readers: Vec::new(),
                        queues: piece.to_vec(),
                    }
                })?;
            }
        }
        for pool in self.register.all_foreign() {
            pool.set_spoken_of(false);
            self.register.look_again();
            let fd = pool.refs_fd();
            let (shape, table) = (pool.shape(), pool.table_inode());
            let (id, slots, trust) = (shape.pool, shape.slots, shape.trust);
            let mapped = pool.mapped();
            let mut rest = mapped.as_slice();
            loop {
                let (piece, after) = rest.split_at(rest.len().min(PIECE));
                self.claim(conn, Claim::Reader(id), &[fd.as_fd()], |req| {
                    Request::ClaimReader {
                        req,
                        pool: id,
                        slots,
                        table,
                        trust,
                        mapped: piece.to_vec(),
                    }
                })?;
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
        let links = self.register.all_links();
        for link in links
            .iter()
            .filter(|link| link.gone() != Gone::Violated && !link.is_inside())
        {
            link.watch().set_watched(false);
            self.register.look_again();
            let channel = link.channel();
            let (claim, half) = link.claim();
            self.claim(conn, Claim::Channel(channel), &[half], |req| {
                Request::ClaimChannel { req, claim }
            })?;
            link.claim_pools(&mut |pool, counts| {
                self.claim(conn, Claim::Assign(channel, pool), &[counts], |req| {
                    Request::ClaimAssign { req, channel, pool }
                })
            })?;
        }
        crash::point("resume.before_done");
        self.claim(conn, Claim::Done, &[], |req| Request::ClaimDone { req })?;
        for link in links.iter().filter(|link| link.is_inside()) {
            link.with_registration(&mut |request, halves| conn.offer(request, halves));
        }
        self.export_again(conn)
    }

    /// Sends one claim, after taking the pending events, so that the manager's queue to this domain stays short.
    fn claim(
        &self,
        conn: &mut Conn,
        claim: Claim,
        fds: &[BorrowedFd<'_>],
        make: impl FnOnce(Req) -> Request,
    ) -> Result<(), Error> {
        loop {
            match conn.receive() {
                Ok(Some((event, fds))) => self.handle(conn, event, fds)?,
                // There is no room for its descriptors: `turn` takes it later.
                Err(error) if error != ErrorKind::System => return Err(error),
                _ => break,
            }
        }
        let req = conn.next_req();
        conn.expect_claim(req, claim);
        conn.send(&make(req), fds)
    }

    fn export_again(&self, conn: &mut Conn) -> Result<(), Error> {
        for (id, (name, offered)) in self.exports.begin_again() {
            let make = |req| offered.request(req, name);
            self.claim(conn, Claim::Export(id), &[], make)?;
        }
        Ok(())
    }
}
