//! The effect of each manager's event on the domain's state. It runs under the socket's lock.

use super::conn::{Claim, Conn};
use super::register::Chore;
use super::residents::{Gone, Joined, Offer};
use super::state::DomainCore;
use super::wire::EventWithFds;
use crate::base::retired;
use crate::error::{self, Error};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tranship_proto::{ChannelId, Event, GoneReason, PoolId, RefusalCode, Req, Request};
use tranship_sys::crash;

/// The delay before a manager without descriptors is tried again.
const FULL: std::time::Duration = std::time::Duration::from_secs(1);

impl DomainCore {
    pub(super) fn handle(
        &self,
        conn: &mut Conn,
        event: Event,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Error> {
        let Some((event, fds)) = conn.keep_early((event, fds)) else {
            return Ok(());
        };
        match event {
            Event::PoolOffer {
                channel,
                pool,
                writer,
                shape,
                known,
            } => {
                let offer = Offer::new(pool, writer, shape);
                self.offered(conn, channel, offer, known, fds)?;
            }
            Event::PoolOpen { channel, pool } => {
                if let Some(link) = self.link(channel) {
                    link.open_pool(pool);
                }
            }
            Event::ChunkAdded {
                pool,
                index,
                serial,
            } => {
                let foreign = self.register.foreign(pool);
                if let (Some(foreign), Some(fd)) = (foreign, fds.into_iter().next())
                    && let Err(error) = foreign.attach(index, serial, fd)
                {
                    tracing::warn!(%pool, index, %error, "a chunk was refused");
                }
            }
            Event::ChunkGone {
                pool,
                index,
                serial,
            } => {
                let foreign = self.register.foreign(pool);
                if foreign.is_some_and(|foreign| !foreign.detach(index, serial)) {
                    return Ok(()); // said when it is done
                }
                crash::point("reader.before_unmapped");
                conn.send(
                    &Request::Unmapped {
                        pool,
                        index,
                        serial,
                    },
                    &[],
                )?;
            }
            Event::PoolGone { pool } => {
                conn.drop_early_offers(pool);
                self.forget_foreign(pool);
            }
            Event::QueueJoined {
                pool,
                channel,
                sink,
                process,
                epoch,
                with_sent,
                new_reader,
            } => {
                if let Some(own) = self.register.own(pool) {
                    let queue = Joined {
                        channel,
                        sink,
                        process,
                        epoch,
                        with_sent,
                        new_reader,
                    };
                    own.queue_joined(queue, fds);
                }
            }
            Event::QueueLeft {
                pool,
                channel,
                epoch,
            } => match self.register.own(pool) {
                Some(own) => own.queue_left(channel, epoch),
                None => {
                    if let Some(link) = self.link(channel) {
                        link.end_pool(pool);
                    }
                }
            },
            Event::ReaderLeft {
                pool,
                domain,
                epoch,
            } => {
                if let Some(own) = self.register.own(pool) {
                    own.reader_left(domain, epoch);
                }
            }
            Event::PeerGone { channel, reason } => match self.link(channel) {
                Some(link) => link.peer_gone(match reason {
                    GoneReason::Closed => Gone::Closed,
                    GoneReason::Died => Gone::Died,
                }),
                None => self.exports.cancel(channel),
            },
            Event::WakeFd { channel } => {
                if let (Some(link), Some(fd)) = (self.link(channel), fds.into_iter().next()) {
                    link.set_peer_fd(fd);
                }
            }
            Event::Incoming { export, .. } => {
                let refused = self.exports.came(export, (event, fds));
                if let Some(channel) = refused {
                    conn.send(&Request::Reject { channel }, &[])?;
                }
            }
            Event::Shrink { pool, target_bytes } => match self.register.heap(pool) {
                Some(heap) => heap.set_target(target_bytes),
                None => self.register.add_chore(Chore::Shrink(pool, target_bytes)),
            },
            Event::Traced { pool, on } => self.register.add_chore(Chore::Traced(pool, on)),
            Event::Quota { pool, quota_bytes } => match self.register.heap(pool) {
                Some(heap) => heap.set_quota(quota_bytes),
                // The control page has the quota already; its word wakes the waiters.
                None => self.register.add_chore(Chore::Quota(pool, quota_bytes)),
            },
            Event::Expelled { refusal } => {
                tracing::warn!(%refusal, "expelled by the manager");
                if refusal.code == RefusalCode::Hog {
                    self.let_go_of_all();
                }
                // The connection is read to its end like any other, because the reader set is then complete.
                conn.hang_up();
            }
            Event::Stat { req, record } => conn.keep_record(req, record),
            Event::Welcome { .. } => return Err(error::protocol("a second welcome")),
            Event::Refused { req, .. }
            | Event::PoolCreated { req, .. }
            | Event::HeapCreated { req, .. }
            | Event::Admitted { req, .. }
            | Event::QuotaSet { req, .. }
            | Event::Figures { req, .. }
            | Event::Tracing { req, .. }
            | Event::TraceRing { req, .. }
            | Event::TraceEnd { req }
            | Event::Steering { req, .. }
            | Event::QuotasSet { req, .. }
            | Event::Granted { req, .. }
            | Event::ChunkReady { req, .. }
            | Event::ChunksReady { req, .. }
            | Event::ForwardAllowed { req, .. }
            | Event::Exported { req, .. }
            | Event::Opened { req, .. }
            | Event::WakeEnd { req }
            | Event::Accepted { req, .. }
            | Event::Assigned { req, .. }
            | Event::Resynced { req, .. }
            | Event::StatEnd { req }
            | Event::Claimed { req } => self.reply(conn, req, event, fds)?,
        }
        Ok(())
    }

    /// Drops everything after the manager has ended this membership and taken back its memory: for all others this
    /// domain is dead. Pools of other writers are dropped here too, and remaining handles show zeros. Ranges in which
    /// an aggregate is mapped once more (`Mapped`) stay.
    fn let_go_of_all(&self) {
        let foreign = self.register.all_foreign();
        foreign.iter().for_each(|pool| pool.detach_all());
        let links = self.register.all_links();
        links.iter().for_each(|link| link.peer_gone(Gone::Died));
    }

    /// Handles an answer to a thread's request. If the thread no longer waits, the answer must not leave anything
    /// behind.
    fn reply(
        &self,
        conn: &mut Conn,
        req: Req,
        event: Event,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Error> {
        if let Some(claim) = conn.take_claim(req) {
            self.claimed(conn, claim, &event);
            return Ok(());
        }
        if !conn.keep_reply(req, (event, fds)) {
            return Ok(());
        }
        match conn.take_reply(req) {
            Some(came) => self.undo(conn, came),
            None => Ok(()),
        }
    }

    /// Undoes the manager's work for a request whose thread has given up.
    pub(super) fn undo(&self, conn: &mut Conn, (event, _): EventWithFds) -> Result<(), Error> {
        let request = match event {
            Event::Opened { channel, .. } | Event::Accepted { channel, .. } => {
                Request::CloseChannel { channel }
            }
            Event::PoolCreated { pool, .. } => Request::DestroyPool { pool },
            Event::HeapCreated { heap, .. } => Request::DestroyHeap { heap },
            Event::Exported { export, .. } => Request::Unexport { export },
            Event::Granted { pool, chunks, .. } => Request::Ungrant { pool, chunks },
            Event::Admitted { heap, bytes, .. } => Request::GiveBack { heap, bytes },
            Event::Steering { take: true, .. } => {
                let req = conn.next_req();
                conn.forget(req);
                Request::Steer { req, take: false }
            }
            // Settings stay as they are set.
            _ => return Ok(()),
        };
        conn.send(&request, &[])
    }

    /// Handles the answer to a claim.
    fn claimed(&self, conn: &mut Conn, claim: Claim, event: &Event) {
        match (claim, event) {
            // At once: the reader set's events follow, and count from here.
            (Claim::Pool(pool), Event::PoolCreated { entry, .. }) => {
                if let Some(own) = self.register.own(pool) {
                    own.resume(*entry);
                }
            }
            (
                Claim::Heap(number),
                Event::HeapCreated {
                    heap,
                    quota_bytes,
                    admitted_bytes,
                    ..
                },
            ) => {
                match self.register.heap_of_number(number) {
                    Some(own) => own.resume(*heap, *admitted_bytes, *quota_bytes),
                    // The heap was dropped meanwhile.
                    None => _ = conn.send(&Request::DestroyHeap { heap: *heap }, &[]),
                }
            }
            (Claim::Channel(channel), Event::Claimed { .. }) => self.taken_up(conn, channel),
            (Claim::Export(old), Event::Exported { export, .. }) => {
                let is_there = self.exports.renamed(old, *export);
                if !is_there {
                    // The listener was dropped meanwhile.
                    let _ = conn.send(&Request::Unexport { export: *export }, &[]);
                }
            }
            (_, Event::Refused { refusal, .. }) => {
                tracing::warn!(%refusal, ?claim, "a claim was refused");
                if refusal.code == RefusalCode::NoDescriptors {
                    // The manager may have some later: everything is claimed again then.
                    conn.hang_up_until(std::time::Instant::now() + FULL);
                    return;
                }
                if let Claim::Export(id) = claim {
                    self.exports.refused(id, refusal);
                }
                conn.disowned |=
                    matches!(claim, Claim::Pool(_) | Claim::Chunk(..) | Claim::Channel(_));
                if let Claim::Pool(pool) = claim
                    && let Some(own) = self.register.own(pool)
                {
                    // A manager that does not know a pool adds no reader to its reader set.
                    own.stand_alone();
                    self.register.look_again();
                }
            }
            _ => {}
        }
    }

    /// Handles that both ends of a channel are back.
    fn taken_up(&self, conn: &mut Conn, channel: ChannelId) {
        let Some(link) = self.link(channel) else {
            return;
        };
        link.watch().set_watched(true);
        if link.watch().is_leaving() && conn.send(&Request::CloseChannel { channel }, &[]).is_ok() {
            self.register.remove_link(channel);
        }
    }

    /// Handles an offer: a source wants to send from a pool through a channel of this domain. The domain makes its
    /// counters, completely, before any reference travels, and shows them.
    fn offered(
        &self,
        conn: &mut Conn,
        channel: ChannelId,
        shape: Offer,
        known: bool,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Error> {
        let link = self.link(channel);
        // Crash: until AcceptPool is sent, nothing of this domain is on any reader set; a death here frees it all.
        let taken = match &link {
            Some(link) => link.offered(shape, known, fds),
            None => Err(error::protocol(format!(
                "an offer for channel {channel}, which is not ours"
            ))),
        };
        match taken {
            Ok((rcvd, refs)) => {
                crash::point("assign.before_accept");
                let mut shown = vec![rcvd.as_fd()];
                if let Some(refs) = &refs {
                    shown.push(refs.as_fd());
                }
                conn.send(
                    &Request::AcceptPool {
                        channel,
                        pool: shape.pool,
                        with_refs: refs.is_some(),
                    },
                    &shown,
                )
            }
            Err(error) => {
                tracing::warn!(%channel, pool = %shape.pool, %error, "a pool was refused");
                let levels = link.map(|link| link.levels());
                conn.send(
                    &Request::VetoPool {
                        channel,
                        pool: shape.pool,
                        levels: levels.filter(|levels| !levels.has(shape.trust)),
                    },
                    &[],
                )
            }
        }
    }

    /// Handles that this domain's counters of a pool no longer count. Links to which the pool is assigned go on with
    /// them until `QueueLeft`, and a later offer must use them too. While there are any, the pool stays on the register,
    /// and `turn` gives it up once it is alone.
    fn forget_foreign(&self, pool: PoolId) {
        let over = self.register.with_foreign(|all| {
            let foreign = all.get(&pool)?;
            foreign.detach_all();
            if Arc::strong_count(foreign) > 1 || !foreign.nothing_held() {
                foreign.set_spoken_of(false);
                self.register.look_again();
                return None;
            }
            all.remove(&pool)
        });
        if let Some(over) = over {
            retired::retire(over);
        }
    }
}
