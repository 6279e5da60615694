//! A client, as its requests know it.

use crate::lock;
use crate::word::{self, Answer, CallId};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError, Weak};
use tranship_core::{Sender, Status};

/// Reads what a client has sent before a worker asks for it.
pub(crate) trait Ahead: Debug + Send + Sync {
    /// Looks for cancellations of that client's calls.
    fn look_ahead(&self, peer: &Peer);
}

/// The most cancellations of one client that are kept; beyond that the oldest is forgotten, and its worker goes on.
const MOST_CANCELLED: usize = 256;

/// The most answers without a payload that wait for the sender. An honest client has at most half of 65,536 lines
/// in flight.
const MOST_OWED: usize = 1 << 15;

/// What a request knows of its client.
#[derive(Debug)]
pub(crate) struct Peer {
    /// A worker that unlocks it calls [`settle`](Peer::settle).
    pub(crate) replies: Mutex<Sender>,
    /// Answers without a payload, as words, that have still to be sent.
    owed: Mutex<Vec<u64>>,
    /// A worker has waited in vain for the client's consent to a pool. No worker waits for the client's consent again.
    pub(crate) slow_consent: AtomicBool,
    /// The bytes for which a worker has waited in vain. No worker waits again until so many can be allocated. 0: none.
    pub(crate) slow_memory: AtomicUsize,
    pub(crate) status: Status,
    pub(crate) service: Weak<dyn Ahead>,
    /// Calls that were cancelled and are perhaps with a worker. `any`: whether there are some, so that a call without one takes no lock.
    cancelled: Mutex<Vec<CallId>>,
    any: AtomicBool,
    gone: AtomicBool,
    /// The service has given the client up.
    cut: AtomicBool,
}

impl Peer {
    pub(crate) fn new(replies: Sender, status: Status, service: Weak<dyn Ahead>) -> Peer {
        Peer {
            replies: Mutex::new(replies),
            owed: Mutex::default(),
            slow_consent: AtomicBool::new(false),
            slow_memory: AtomicUsize::new(0),
            status,
            service,
            cancelled: Mutex::default(),
            any: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        }
    }

    /// Answers a call without a payload. It never blocks: a worker that has the sender sends the answer afterwards.
    pub(crate) fn answer(&self, call: CallId, how: Answer) {
        let mut owed = lock(&self.owed);
        if owed.len() < MOST_OWED {
            owed.push(word::answer(call, how));
        }
        drop(owed);
        self.settle();
    }

    /// Sends the answers that wait for the sender. If another thread has the sender, that thread calls this afterwards.
    pub(crate) fn settle(&self) {
        // An answer that comes between the sending and the unlocking is found by the next round.
        while !lock(&self.owed).is_empty() {
            let mut replies = match self.replies.try_lock() {
                Ok(replies) => replies,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let owed = std::mem::take(&mut *lock(&self.owed));
            for word in owed {
                // A client that is gone, or that has more calls in flight than it may, gets none.
                let _ = replies.try_send((b"", word));
            }
        }
    }

    /// A call of that number begins or ends: a cancellation that is there is of an earlier call.
    pub(crate) fn forget(&self, call: CallId) {
        // Ordering: relaxed, here and below; the list is read under its lock, and a cancellation that comes meanwhile is seen by a later look.
        if self.any.load(Ordering::Relaxed) {
            let mut cancelled = lock(&self.cancelled);
            cancelled.retain(|other| *other != call);
            self.any.store(!cancelled.is_empty(), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_cancelled(&self, call: CallId) -> bool {
        self.gone.load(Ordering::Relaxed)
            || (self.any.load(Ordering::Relaxed) && lock(&self.cancelled).contains(&call))
    }

    pub(crate) fn cancel(&self, call: CallId) {
        let mut cancelled = lock(&self.cancelled);
        if cancelled.len() >= MOST_CANCELLED {
            cancelled.remove(0);
        }
        cancelled.push(call);
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Gives the client up: the next look at its requests closes its channels.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        self.is_gone();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }
}
