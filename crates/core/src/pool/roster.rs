//! Whose counters count: what the manager announces, mapped and put on the roster.

use super::collect::Gc;
use super::collect::Sink;
use super::own::OwnPool;
use crate::base::lock;
use crate::domain::Joined;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_ledger::Words;
use tranship_proto::{ChannelId, DomainId};
use tranship_region::layout::{CountsRo, CountsRw, RefsRo, Way};

/// A view of a queue's counters, or of a reader's references: a pointer at hand, because the collector reads two
/// words a slot and queue.
struct View {
    words: *const AtomicU32,
    count: u32,
}

// SAFETY: atomics in a mapping that the owner of the view keeps (`Counts`, `Refs`).
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    const NOTHING: View = View {
        words: std::ptr::null(),
        count: 0,
    };

    #[inline(always)]
    fn load(&self, slot: u32, otherwise: u32) -> u32 {
        if slot >= self.count {
            return otherwise;
        }
        // SAFETY: below the count of words in a mapping that the owner of this view keeps.
        // Ordering: Acquire pairs with the Release (or stronger) of whoever counts.
        unsafe { &*self.words.add(slot as usize) }.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn load_each<T>(
        &self,
        otherwise: u32,
        slots: &[u32],
        beside: impl Iterator<Item = T>,
        mut take: impl FnMut(T, u32),
    ) {
        let View { words, count } = *self;
        let both = slots.iter().zip(beside);
        if words.is_null() {
            return both.for_each(|(_, t)| take(t, otherwise));
        }
        for (&slot, t) in both {
            debug_assert!(slot < count);
            // SAFETY: the collector's candidates are slots of the pool (as for `OwnPool::private`), and mappings with fewer words are not opened.
            // Ordering: as in `load`.
            take(
                t,
                unsafe { &*words.add(slot as usize) }.load(Ordering::Acquire),
            );
        }
    }

    #[inline(always)]
    fn prefetch(&self, slot: u32) {
        tranship_sync::prefetch_read(self.words.wrapping_add(slot as usize).cast());
    }
}

/// A queue's counters. Where one side cannot be mapped, neither is looked at, and the two are never equal: so nothing of the
/// queue is ever reused early.
pub(super) struct Counts {
    view: View,
    otherwise: u32,
    _keep: Keep,
}

enum Keep {
    /// Written by another domain.
    Theirs {
        _counts: CountsRo,
    },
    /// Written by this domain: it is source or sink of the queue.
    Ours {
        _counts: Arc<CountsRw>,
    },
    Nothing,
}

impl Counts {
    fn theirs(counts: CountsRo) -> Counts {
        let view = View {
            words: counts.counts_ptr(),
            count: counts.count(),
        };
        Counts {
            view,
            otherwise: 0,
            _keep: Keep::Theirs { _counts: counts },
        }
    }
    fn ours(counts: Arc<CountsRw>) -> Counts {
        let words = counts.counts();
        let view = View {
            words: words.as_ptr(),
            count: u32::try_from(words.len()).unwrap_or(u32::MAX),
        };
        Counts {
            view,
            otherwise: 0,
            _keep: Keep::Ours { _counts: counts },
        }
    }
    fn unknown(value: u32) -> Counts {
        Counts {
            view: View::NOTHING,
            otherwise: value,
            _keep: Keep::Nothing,
        }
    }
}

impl Words for Counts {
    #[inline(always)]
    fn load(&self, slot: u32) -> u32 {
        self.view.load(slot, self.otherwise)
    }
    #[inline(always)]
    fn load_each<T>(
        &self,
        slots: &[u32],
        beside: impl Iterator<Item = T>,
        take: impl FnMut(T, u32),
    ) {
        self.view.load_each(self.otherwise, slots, beside, take);
    }
    fn prefetch(&self, slot: u32) {
        self.view.prefetch(slot);
    }
}

/// A reader's references, and how it wakes us. Without a page everything counts as held.
pub(super) struct Refs {
    view: View,
    pub(super) page: Option<Arc<RefsRo>>,
}

impl Refs {
    fn page(page: RefsRo) -> Refs {
        let view = View {
            words: page.counts_ptr(),
            count: page.count(),
        };
        Refs {
            view,
            page: Some(Arc::new(page)),
        }
    }
    fn unknown() -> Refs {
        Refs {
            view: View::NOTHING,
            page: None,
        }
    }
}

impl Words for Refs {
    #[inline(always)]
    fn load(&self, slot: u32) -> u32 {
        self.view.load(slot, 1)
    }
    #[inline(always)]
    fn load_each<T>(
        &self,
        slots: &[u32],
        beside: impl Iterator<Item = T>,
        take: impl FnMut(T, u32),
    ) {
        self.view.load_each(1, slots, beside, take);
    }
    fn prefetch(&self, slot: u32) {
        self.view.prefetch(slot);
    }
}

impl OwnPool {
    /// A queue (and perhaps a reader) joins. Descriptors: `rcvd`, then `sent`, then `ref` and the reader's pidfd.
    pub(super) fn queue_joined(&self, queue: Joined, fds: Vec<OwnedFd>) {
        let Joined {
            channel,
            sink,
            process,
            epoch,
            with_sent,
            new_reader,
        } = queue;
        let slots = self.slot_count();
        let mut fds = fds.into_iter();
        // We are the sink ourselves if somebody forwards our buffers back.
        let ours = self
            .domain
            .link(channel)
            .and_then(|link| link.counts_of(self.id));
        let we_sink = sink == self.domain.id();
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
        // After a resume it says again what we may have, and it is right. Under the collector's lock, so that no
        // verdict falls between the two halves.
        let before = gc.roster.remove_queue(channel.0.into()).ok();
        // A link that we have left counted in what the roster has.
        let sent = sent.or_else(|| before.filter(|_| !with_sent).map(|queue| queue.sent));
        let (sent, rcvd) = match (sent, rcvd) {
            (Some(sent), Some(rcvd)) => (sent, rcvd),
            _ => (Counts::unknown(1), Counts::unknown(2)),
        };
        if let Err(error) = gc.roster.add_queue(channel.0.into(), sent, rcvd) {
            tracing::warn!(pool = %self.id, %error, "roster");
        }
        let named = Sink {
            domain: sink,
            process,
            named: true,
        };
        gc.sinks.insert(channel, named);
        if let Some(refs) = refs {
            gc.returning.remove(&sink);
            let _ = gc.roster.remove_reader(sink.0.into());
            gc.refs_inodes.insert(sink, refs_inode);
            if let Err(error) = gc.roster.add_reader(sink.0.into(), refs) {
                tracing::warn!(pool = %self.id, %error, "roster");
            }
        }
        if let Some(pidfd) = pidfd {
            gc.processes.insert(sink, pidfd);
        }
        gc.advance(epoch);
    }

    /// Both counters of a queue leave together.
    pub(super) fn queue_left(&self, channel: ChannelId, epoch: u64) {
        self.save_replies(channel);
        let mut gc = lock(&self.gc);
        let _ = gc.roster.remove_queue(channel.0.into());
        gc.sinks.remove(&channel);
        gc.advance(epoch);
        drop(gc);
        self.waiters.memory_came_back();
    }

    /// What the sink of a queue has passed back is kept by the queue's counters alone, which are about to go.
    fn save_replies(&self, channel: ChannelId) {
        if let Some(link) = self.domain.link(channel) {
            link.queue_leaves();
        }
    }

    /// A reader is gone; its references count no more.
    pub(super) fn reader_left(&self, domain: DomainId, epoch: u64) {
        let mut gc = lock(&self.gc);
        let _ = gc.roster.remove_reader(domain.0.into());
        gc.processes.remove(&domain);
        gc.refs_inodes.remove(&domain);
        gc.returning.remove(&domain);
        gc.advance(epoch);
        drop(gc);
        self.waiters.memory_came_back();
    }

    /// Takes readers off the roster that died before a new manager heard of them: their references, and the queues to
    /// them. Queues from them stay, since what they had sent can still be received; their sinks report the end. True
    /// if there are readers or queues left that the manager has not named.
    pub(super) fn bury_dead_readers(&self) -> bool {
        let mut held = lock(&self.gc);
        let gc = &mut *held;
        let unnamed = |gc: &Gc| {
            let sinks = gc.sinks.values().filter(|s| !s.named).map(|s| s.domain);
            let others = sinks.filter(|d| gc.processes.contains_key(d));
            others
                .chain(gc.returning.iter().copied())
                .collect::<HashSet<_>>()
        };
        let returning = unnamed(gc);
        if returning.is_empty() {
            return false;
        }
        let dead: Vec<DomainId> = returning
            .into_iter()
            .filter(|d| {
                gc.processes
                    .get(d)
                    .is_some_and(|p| tranship_sys::pidfd::is_dead(p).unwrap_or(false))
            })
            .collect();
        let is_dead = |sink: &&Sink| dead.contains(&sink.domain);
        let over = gc.sinks.iter().filter(|(_, sink)| is_dead(sink));
        let over: Vec<ChannelId> = over.map(|(channel, _)| *channel).collect();
        drop(held);
        over.iter().for_each(|channel| self.save_replies(*channel));
        let mut held = lock(&self.gc);
        let gc = &mut *held;
        for domain in &dead {
            let _ = gc.roster.remove_reader(domain.0.into());
            gc.processes.remove(domain);
            gc.refs_inodes.remove(domain);
            gc.returning.remove(domain);
            for (channel, _) in gc.sinks.extract_if(|_, sink| sink.domain == *domain) {
                let _ = gc.roster.remove_queue(channel.0.into());
            }
        }
        if !dead.is_empty() {
            self.waiters.memory_came_back();
        }
        !unnamed(gc).is_empty()
    }
}
