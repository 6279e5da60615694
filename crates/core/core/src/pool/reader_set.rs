//! The reader set: the counters that the manager announces, mapped and put on the set.

use super::counts::{Counts, Refs};
use super::gc::{Collector, Sink};
use super::memory::Memory;
use crate::base::lock;
use crate::domain::Joined;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tranship_ledger::Source;
use tranship_proto::{ChannelId, DomainId};
use tranship_region::layout::{CountsRo, RefsRo, Way};

impl Collector {
    /// Adds a queue, and perhaps its reader. Descriptors: `rcvd`, then `sent`, then `ref` and the reader's pidfd.
    pub(super) fn queue_joined(&self, memory: &Memory, queue: Joined, fds: Vec<OwnedFd>) {
        let Joined {
            channel,
            sink,
            process,
            epoch,
            with_sent,
            new_reader,
        } = queue;
        let slots = memory.slots.count();
        let mut fds = fds.into_iter();
        // The writer is the sink itself if another domain forwards its buffers back.
        let (domain, pool) = (memory.domain(), memory.registration.id);
        let link = domain.link(channel);
        let ours = link.and_then(|link| link.counts_of(pool));
        let we_sink = sink == domain.id();
        let rcvd = match (fds.next(), &ours) {
            (_, Some(counts)) if we_sink => Some(Counts::ours(counts.clone())),
            (Some(fd), _) => CountsRo::open(&fd, Way::Rcvd, slots)
                .ok()
                .map(Counts::theirs),
            (None, _) => None,
        };
        let sent = if with_sent {
            fds.next()
                .and_then(|fd| CountsRo::open(&fd, Way::Sent, slots).ok())
                .map(Counts::theirs)
        } else {
            ours.filter(|_| !we_sink).map(Counts::ours)
        };
        let mut refs_inode = 0;
        let refs = new_reader.then(|| {
            fds.next()
                .and_then(|fd| {
                    refs_inode = crate::base::inode(&fd);
                    RefsRo::open(&fd, slots).ok()
                })
                .map_or(Refs::unknown(), Refs::page)
        });
        let pidfd = if new_reader { fds.next() } else { None };

        let mut gc = lock(&self.gc);
        // After a resume the manager names again what the set may have already; the manager is right. Under the
        // collector's lock, so that no verdict falls between the two halves.
        let before = gc.reader_set.remove_queue(channel.0.into()).ok();
        // A link that this domain has left counted in the counters of the reader set.
        let sent = sent.or_else(|| before.filter(|_| !with_sent).map(|queue| queue.sent));
        let (source, sent, rcvd) = match (sent, rcvd) {
            (Some(sent), Some(rcvd)) if !with_sent && !we_sink => (Source::Writer, sent, rcvd),
            (Some(sent), Some(rcvd)) => (Source::Other, sent, rcvd),
            _ => (Source::Other, Counts::unknown(1), Counts::unknown(2)),
        };
        let queue = channel.0.into();
        if let Err(error) = gc.reader_set.add_queue(queue, source, sent, rcvd) {
            tracing::warn!(%pool, %error, "reader_set");
        }
        let named = Sink {
            domain: sink,
            process,
            named: true,
        };
        gc.sinks.insert(channel, named);
        if let Some(refs) = refs {
            gc.returning.remove(&sink);
            let _ = gc.reader_set.remove_reader(sink.0.into());
            gc.refs_inodes.insert(sink, refs_inode);
            if let Err(error) = gc.reader_set.add_reader(sink.0.into(), refs) {
                tracing::warn!(%pool, %error, "reader_set");
            }
        }
        if let Some(pidfd) = pidfd {
            gc.processes.insert(sink, pidfd);
        }
        gc.advance(epoch);
    }

    /// Takes both counters of a queue off the reader set.
    pub(super) fn queue_left(&self, memory: &Memory, channel: ChannelId, epoch: u64) {
        save_replies(memory, channel);
        let mut gc = lock(&self.gc);
        gc.remove_queue(channel);
        gc.advance(epoch);
        drop(gc);
        memory.returned.raise();
    }

    /// Takes a reader off the set: its references count no more.
    pub(super) fn reader_left(&self, memory: &Memory, domain: DomainId, epoch: u64) {
        let mut gc = lock(&self.gc);
        gc.remove_reader(domain);
        gc.advance(epoch);
        drop(gc);
        memory.returned.raise();
    }

    /// Returns the readers' pages, with the values of their wake words before the look.
    pub(super) fn reader_words(&self) -> Vec<(Arc<RefsRo>, u32)> {
        let gc = lock(&self.gc);
        let pages = gc
            .reader_set
            .readers()
            .iter()
            .filter_map(|reader| reader.refs.page.clone());
        // Ordering: Acquire pairs with a reader's Release after its reference went (`release_and_tell`).
        pages
            .map(|page| (page.wake().load(Ordering::Acquire), page))
            .map(|(seen, page)| (page, seen))
            .collect()
    }

    /// Returns a reader's counters of references.
    pub(super) fn refs_of(&self, domain: DomainId) -> Option<Arc<RefsRo>> {
        let gc = lock(&self.gc);
        let mut readers = gc.reader_set.readers().iter();
        let of = readers.find(|reader| reader.domain == u64::from(domain.0))?;
        of.refs.page.clone()
    }

    /// Takes readers off the reader set that died before a new manager heard of them: their references, and the queues to
    /// them. Queues from them stay, since what they had sent can still be received; their sinks report the end. True
    /// if there are readers or queues left that the manager has not named.
    pub(super) fn reap_dead_readers(&self, memory: &Memory) -> bool {
        let gc = lock(&self.gc);
        if gc.unnamed().is_empty() {
            return false;
        }
        let dead = gc.dead();
        let over = gc.queues_to(&dead);
        drop(gc);
        over.iter()
            .for_each(|channel| save_replies(memory, *channel));
        let mut gc = lock(&self.gc);
        for domain in &dead {
            gc.remove_reader(*domain);
        }
        for channel in gc.queues_to(&dead) {
            gc.remove_queue(channel);
        }
        if !dead.is_empty() {
            memory.returned.raise();
        }
        !gc.unnamed().is_empty()
    }
}

/// Takes the buffers that a queue's sink has passed back: only the queue's counters keep them, which are about to go.
fn save_replies(memory: &Memory, channel: ChannelId) {
    if let Some(link) = memory.domain().link(channel) {
        link.queue_leaves();
    }
}
