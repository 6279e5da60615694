//! After the manager's death: find the new one and show it what we have.
//!
//! What is claimed is verified by the manager as if it were new. Data keeps flowing meanwhile.

use super::conn::Conn;
use super::connect::{FD_FLOOR, hello};
use super::{DomainCore, lock};
use crate::error::DomainError;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_manager::paths::Places;
use tranship_proto::{Event, Request};
use tranship_sys::{crash, epoll, process, socket};

/// Between two attempts to reach a manager that is away.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one answer to a claim may take.
const ANSWER: Duration = Duration::from_secs(10);

impl DomainCore {
    /// The connection ended.
    pub(super) fn manager_left(&self) {
        tracing::info!(domain = %self.id(), "the manager is away");
    }

    /// Tries to reach a new manager; a failed attempt is `ManagerAway`, and the next follows after a pause.
    pub(super) fn rejoin(&'static self, conn: &mut Conn) -> Result<(), DomainError> {
        if self.is_closed() {
            return Ok(());
        }
        let now = Instant::now();
        if conn
            .last_attempt
            .is_some_and(|last| now.duration_since(last) < PAUSE)
        {
            return Err(DomainError::ManagerAway);
        }
        conn.last_attempt = Some(now);
        let candidates = match &self.socket {
            Some(path) => vec![path.clone()],
            None => Places::find()
                .candidates()
                .into_iter()
                .map(Into::into)
                .collect(),
        };
        let Some(fd) = candidates
            .iter()
            .find_map(|path| socket::connect(path).ok())
        else {
            return Err(DomainError::ManagerAway);
        };
        let fd = if self.high_descriptors {
            process::dup_above(fd, FD_FLOOR)
        } else {
            fd
        };
        crash::point("resume.before_hello");
        let (fd, welcome) = hello(fd, &self.name, Some(self.id()))?;
        if !welcome.resumed {
            // Another process got our id meanwhile. What we have lives on by its mappings, but a new manager
            // cannot know it by its old names.
            tracing::warn!(domain = %self.id(), "the new manager has given our id away; existing channels go on unmanaged");
        }
        self.id.store(welcome.domain.0, Ordering::Relaxed);
        self.set_board(welcome.board);
        self.seen.store(0, Ordering::Relaxed);
        conn.up(fd);
        self.poll_again(conn);
        let claimed = self.claim_all(conn);
        if claimed.is_err() {
            conn.down();
        }
        claimed
    }

    fn claim_all(&'static self, conn: &mut Conn) -> Result<(), DomainError> {
        let pools: Vec<_> = lock(&self.pools).values().cloned().collect();
        for pool in &pools {
            let shape = pool.shape();
            let answer =
                self.claim(conn, &[pool.table_fd().as_fd()], |req| Request::ClaimPool {
                    req,
                    pool: shape.pool,
                    name: pool.name().into(),
                    max_bytes: shape.max_bytes,
                    slots: shape.slots,
                    chunk_bytes: shape.chunk_bytes,
                })?;
            let Some(Event::PoolCreated { entry, .. }) = answer else {
                continue;
            };
            pool.set_entry(entry);
            for (index, serial, fd) in pool.chunks() {
                crash::point("resume.between_chunks");
                self.claim(conn, &[fd.as_fd()], |req| Request::ClaimChunk {
                    req,
                    pool: shape.pool,
                    index,
                    serial,
                })?;
            }
        }
        let foreign: Vec<_> = lock(&self.foreign).values().cloned().collect();
        for pool in &foreign {
            let fd = pool.refs_fd()?;
            // A message is bounded; what does not fit is fetched by a resync.
            let mapped = pool.mapped().into_iter().take(1500).collect::<Vec<_>>();
            let (id, slots) = (pool.shape.pool, pool.shape.slots);
            self.claim(conn, &[fd.as_fd()], |req| Request::ClaimReader {
                req,
                pool: id,
                slots,
                mapped,
            })?;
        }
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        for link in &links {
            let claim = tranship_proto::ChannelClaim {
                channel: link.channel,
                role: link.role,
                peer: link.peer,
                lines: link.own.count(),
            };
            self.claim(conn, &[link.own_fd.as_fd()], |req| Request::ClaimChannel {
                req,
                claim,
            })?;
            let assigned: Vec<_> = lock(&link.assigned).clone();
            for assignment in assigned {
                let (channel, pool) = (link.channel, assignment.pool);
                self.claim(conn, &[assignment.counts_fd.as_fd()], |req| {
                    Request::ClaimAssign { req, channel, pool }
                })?;
            }
        }
        // From here on rosters may change: where each stands is where its board entry stands now.
        for pool in &pools {
            pool.adopt_epoch();
        }
        self.claim(conn, &[], |req| Request::ClaimDone { req })?;
        self.export_again(conn)
    }

    /// One claim and its answer; a refused claim is logged and passed over. Other events are handled.
    fn claim(
        &'static self,
        conn: &mut Conn,
        fds: &[BorrowedFd<'_>],
        make: impl FnOnce(tranship_proto::Req) -> Request,
    ) -> Result<Option<Event>, DomainError> {
        let req = conn.next_req();
        let request = make(req);
        let what = format!("{request:?}");
        conn.send(&request, fds)?;
        let deadline = Instant::now() + ANSWER;
        loop {
            while let Some((event, fds)) = conn.receive()? {
                self.handle(conn, event, fds)?;
            }
            match conn.take_reply(req) {
                Some((Event::Refused { refusal, .. }, _)) => {
                    tracing::warn!(%refusal, claim = what, "a claim was refused");
                    return Ok(None);
                }
                Some((event, _)) => return Ok(Some(event)),
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match conn.fd() {
                Some(fd) if !left.is_zero() => {
                    let _ = epoll::wait_readable(fd, Some(left));
                }
                _ => return Err(DomainError::ManagerAway),
            }
        }
    }

    fn export_again(&'static self, conn: &mut Conn) -> Result<(), DomainError> {
        let old: Vec<_> = std::mem::take(&mut *lock(&self.exports))
            .into_iter()
            .collect();
        for (export, entry) in old {
            let Some((name, role)) = entry.what.clone() else {
                continue;
            };
            let answer = self.claim(conn, &[], |req| Request::Export {
                req,
                name: name.clone(),
                role,
            })?;
            let new = match answer {
                Some(Event::Exported { export: new, .. }) => new,
                _ => export,
            };
            // The listener finds its entry by the id that it knows.
            entry.alias.store(new.0, Ordering::Relaxed);
            lock(&self.exports).insert(export, entry);
        }
        Ok(())
    }
}
