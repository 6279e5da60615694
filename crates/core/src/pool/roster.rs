//! Whose counters count: what the manager announces, mapped and put on the roster.

use super::own::OwnPool;
use crate::domain::lock;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tranship_ledger::Words;
use tranship_proto::{ChannelId, DomainId};
use tranship_region::layout::{CountsRo, CountsRw, RefsRo, Way};

/// A view of a queue's counters.
pub(super) enum Counts {
    /// Written by another domain.
    Theirs(CountsRo),
    /// Written by this domain: it is source or sink of the queue.
    Ours(Arc<CountsRw>),
    /// Could not be mapped: never equal to anything, so nothing of this queue is ever reused early.
    Unknown(u32),
}

impl Words for Counts {
    #[inline]
    fn load(&self, slot: u32) -> u32 {
        match self {
            Counts::Theirs(counts) => counts.get(slot).map_or(1, |c| c.load(Ordering::Acquire)),
            Counts::Ours(counts) => counts.counts()[slot as usize].load(Ordering::Acquire),
            Counts::Unknown(value) => *value,
        }
    }
}

/// A view of a reader's references, and how it wakes us.
pub(super) enum Refs {
    /// The reader's page.
    Page(Arc<RefsRo>),
    /// Could not be mapped: everything counts as held.
    Unknown,
}

impl Words for Refs {
    #[inline]
    fn load(&self, slot: u32) -> u32 {
        match self {
            Refs::Page(page) => page.get(slot).map_or(1, |r| r.load(Ordering::Acquire)),
            Refs::Unknown => 1,
        }
    }
}

impl OwnPool {
    /// A queue (and perhaps a reader) joins. Descriptors: `rcvd`, then `sent`, then `ref` and the reader's pidfd.
    pub(crate) fn queue_joined(
        &self,
        channel: ChannelId,
        sink: DomainId,
        epoch: u64,
        with_sent: bool,
        new_reader: bool,
        fds: Vec<OwnedFd>,
    ) {
        let slots = self.slot_count();
        let mut fds = fds.into_iter();
        // We are the sink ourselves if somebody forwards our buffers back.
        let ours = self
            .domain
            .link(channel)
            .and_then(|link| link.find(self.id))
            .map(|a| a.counts.clone());
        let we_sink = sink == self.domain.id();
        let rcvd = match (fds.next(), &ours) {
            (_, Some(counts)) if we_sink => Counts::Ours(counts.clone()),
            (Some(fd), _) => {
                CountsRo::open(&fd, Way::Rcvd, slots).map_or(Counts::Unknown(1), Counts::Theirs)
            }
            (None, _) => Counts::Unknown(1),
        };
        let sent = if with_sent {
            fds.next()
                .and_then(|fd| CountsRo::open(&fd, Way::Sent, slots).ok())
                .map_or(Counts::Unknown(2), Counts::Theirs)
        } else {
            ours.filter(|_| !we_sink)
                .map_or(Counts::Unknown(2), Counts::Ours)
        };
        let mut refs_inode = 0;
        let refs = new_reader.then(|| {
            fds.next()
                .and_then(|fd| {
                    refs_inode = crate::domain::inode(&fd);
                    RefsRo::open(&fd, slots).ok()
                })
                .map_or(Refs::Unknown, |page| Refs::Page(Arc::new(page)))
        });
        let process = if new_reader { fds.next() } else { None };

        let mut gc = lock(&self.gc);
        // After a resume it says again what we may have, and it is right. Under the collector's lock, so that no
        // verdict falls between the two halves.
        let _ = gc.roster.remove_queue(channel.0.into());
        if let Err(error) = gc.roster.add_queue(channel.0.into(), sent, rcvd) {
            tracing::warn!(pool = %self.id, %error, "roster");
        }
        if let Some(refs) = refs {
            let _ = gc.roster.remove_reader(sink.0.into());
            gc.refs_inodes.insert(sink, refs_inode);
            if let Err(error) = gc.roster.add_reader(sink.0.into(), refs) {
                tracing::warn!(pool = %self.id, %error, "roster");
            }
        }
        if let Some(process) = process {
            gc.processes.insert(sink, process);
        }
        gc.advance(epoch);
    }

    /// Both counters of a queue leave together.
    pub(crate) fn queue_left(&self, channel: ChannelId, epoch: u64) {
        let mut gc = lock(&self.gc);
        let _ = gc.roster.remove_queue(channel.0.into());
        gc.advance(epoch);
        drop(gc);
        self.waiters.memory_came_back();
    }

    /// The readers on the roster, with the inodes of their counters.
    pub(crate) fn readers(&self) -> Vec<(DomainId, u64)> {
        let gc = lock(&self.gc);
        gc.refs_inodes.iter().map(|(d, i)| (*d, *i)).collect()
    }

    /// A reader is gone; its references count no more.
    pub(crate) fn reader_left(&self, domain: DomainId, epoch: u64) {
        let mut gc = lock(&self.gc);
        let _ = gc.roster.remove_reader(domain.0.into());
        gc.processes.remove(&domain);
        gc.refs_inodes.remove(&domain);
        gc.advance(epoch);
        drop(gc);
        self.waiters.memory_came_back();
    }
}
