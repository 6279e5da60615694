//! Handles on their way between two ends in one process. A line of the ring announces each.

use super::message::{Body, Message};
use crate::base::lock;
use crate::buffer::BufferMut;
use crate::domain::Offer;
use crate::options::Consent;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_proto::{Levels, PoolId, Role};

/// Word 0 of a line that announces a handle. No line in shared memory may have it (`descriptor::parse`).
pub(super) const OP_INSIDE: u64 = 0xff << 32;

/// A channel's messages, and the data that its two ends share.
#[derive(Debug)]
pub(crate) struct Store {
    forth: Mutex<Way>,
    back: Mutex<VecDeque<BufferMut>>,
    /// Messages that a carrier had still to deliver when it went.
    late: Mutex<VecDeque<Message>>,
    /// Whether one of the ends is a carrier's.
    pub(super) carried: bool,
    /// Place of the other end, for a carrier's channel.
    pub(super) place: Option<String>,
    /// Levels of the pools whose buffers are taken.
    pub(super) levels: Levels,
    /// The receiver's rule for pools, and the pools that it has accepted.
    consent: Option<Consent>,
    agreed: Mutex<BTreeSet<PoolId>>,
    /// Pools that the sender, and that the receiver, has removed.
    removed: Mutex<[BTreeSet<PoolId>; 2]>,
    /// Whether there may be any.
    has_removed: AtomicBool,
}

#[derive(Debug, Default)]
struct Way {
    waiting: VecDeque<Body>,
    closed: bool,
}

impl Store {
    pub(super) fn new(
        carried: bool,
        place: Option<String>,
        levels: Levels,
        consent: Option<Consent>,
    ) -> Store {
        Store {
            forth: Mutex::default(),
            back: Mutex::default(),
            late: Mutex::default(),
            carried,
            place,
            levels,
            consent,
            agreed: Mutex::default(),
            removed: Mutex::default(),
            has_removed: AtomicBool::new(false),
        }
    }

    /// Whether the receiver takes the pool. It is asked once, and again after a refusal.
    pub(super) fn agrees(&self, offer: &Offer) -> bool {
        let Some(consent) = &self.consent else {
            return true;
        };
        // Not under the lock: it is the application's code.
        if lock(&self.agreed).contains(&offer.pool) {
            return true;
        }
        let agrees = consent.to(offer);
        if agrees {
            lock(&self.agreed).insert(offer.pool);
        }
        agrees
    }

    /// Removes a pool from the channel. Returns whether the channel had it.
    pub(super) fn remove(&self, pool: PoolId, by: Role) -> bool {
        let agreed = || self.consent.is_none() || lock(&self.agreed).contains(&pool);
        if self.carried || !agreed() {
            return false;
        }
        let mut removed = lock(&self.removed);
        let [sender, receiver] = &mut *removed;
        let new = !receiver.contains(&pool)
            && match by {
                Role::Source => sender.insert(pool),
                Role::Sink => receiver.insert(pool),
            };
        // Ordering: release; partner: `is_removed`.
        self.has_removed.store(true, Ordering::Release);
        new
    }

    /// Takes a pool in again that the sender has removed.
    pub(super) fn take_in(&self, pool: PoolId) {
        lock(&self.removed)[0].remove(&pool);
    }

    /// Returns the end that has removed the pool.
    pub(super) fn is_removed(&self, pool: PoolId) -> Option<Role> {
        // Ordering: acquire; partner: `remove`. A send that a receiver's removal does not precede finds nothing, as it may.
        if !self.has_removed.load(Ordering::Acquire) {
            return None;
        }
        let removed = lock(&self.removed);
        let has = |by: usize| removed[by].contains(&pool);
        match (has(1), has(0)) {
            (true, _) => Some(Role::Sink),
            (false, true) => Some(Role::Source),
            (false, false) => None,
        }
    }

    /// Gives a body to the receiver. If the receiver is gone, the body is dropped.
    pub(super) fn put(&self, body: Body) {
        let mut forth = lock(&self.forth);
        let late = match forth.closed {
            true => Some(body),
            false => {
                forth.waiting.push_back(body);
                None
            }
        };
        drop(forth);
        drop(late); // not under the lock: it may be its pool's last
    }

    pub(super) fn take(&self) -> Option<Body> {
        lock(&self.forth).waiting.pop_front()
    }

    /// Ends the receiver, and drops the messages that it has not taken.
    pub(super) fn close(&self) {
        let mut forth = lock(&self.forth);
        forth.closed = true;
        let rest = std::mem::take(&mut forth.waiting);
        drop(forth);
        drop(rest);
    }

    /// Gives a buffer back to the sender.
    pub(super) fn put_back(&self, buf: BufferMut) {
        lock(&self.back).push_back(buf);
    }

    pub(super) fn take_back(&self) -> Option<BufferMut> {
        lock(&self.back).pop_front()
    }

    /// Gives a message to the sender, after all other replies.
    pub(super) fn put_late(&self, message: Message) {
        lock(&self.late).push_back(message);
    }

    pub(super) fn has_late(&self) -> bool {
        !lock(&self.late).is_empty()
    }

    pub(super) fn take_late(&self) -> Option<Message> {
        lock(&self.late).pop_front()
    }
}
