//! A client, as its requests know it.

use crate::lock;
use crate::word::{self, Answer, CallId};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};
use tranship_core::{Sender, Status};

/// Reads what a client has sent before a worker asks for it.
pub(crate) trait Ahead: Debug + Send + Sync {
    /// Looks for cancellations of that client's calls.
    fn look_ahead(&self, peer: &Peer);
}

/// The most cancellations of one client that are kept; beyond that the oldest is forgotten, and its worker goes on.
const MOST_CANCELLED: usize = 256;

/// What a request knows of its client.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) replies: Mutex<Sender>,
    pub(crate) status: Status,
    pub(crate) service: Weak<dyn Ahead>,
    /// Calls that were cancelled and are perhaps with a worker. `any`: whether there are some, so that a call without one takes no lock.
    cancelled: Mutex<Vec<CallId>>,
    any: AtomicBool,
    gone: AtomicBool,
}

impl Peer {
    pub(crate) fn new(replies: Sender, status: Status, service: Weak<dyn Ahead>) -> Peer {
        Peer {
            replies: Mutex::new(replies),
            status,
            service,
            cancelled: Mutex::default(),
            any: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Answers a call without a payload.
    pub(crate) fn answer(&self, call: CallId, how: Answer) {
        // A client that is gone, or that has more calls in flight than it may, gets none.
        let _ = lock(&self.replies).try_send((b"", word::answer(call, how)));
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
}
