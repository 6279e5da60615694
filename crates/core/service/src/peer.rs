//! A client, as its requests know it.

use crate::lock;
use crate::word::{self, Answer, CallId};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tranship_core::{Sender, Status};

/// Reads what a client has sent before a worker asks for it.
pub(crate) trait Ahead: Debug + Send + Sync {
    /// Looks for cancellations of that client's calls.
    fn look_ahead(&self, peer: &Arc<Peer>);
}

/// What a request knows of its client.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) replies: Mutex<Sender>,
    pub(crate) status: Status,
    /// Calls that a worker has, and whether they were cancelled.
    calls: Mutex<Vec<(CallId, bool)>>,
}

impl Peer {
    pub(crate) fn new(replies: Sender, status: Status) -> Peer {
        Peer {
            replies: Mutex::new(replies),
            status,
            calls: Mutex::default(),
        }
    }

    /// A worker takes a call.
    pub(crate) fn begin(&self, call: CallId) {
        lock(&self.calls).push((call, false));
    }

    /// Answers a call without a payload.
    pub(crate) fn answer(&self, call: CallId, how: Answer) {
        // A client that is gone, or that has more calls in flight than it may, gets none.
        let _ = lock(&self.replies).try_send((b"", word::answer(call, how)));
    }

    pub(crate) fn end(&self, call: CallId) {
        let mut calls = lock(&self.calls);
        if let Some(at) = calls.iter().position(|(other, _)| *other == call) {
            calls.swap_remove(at);
        }
    }

    pub(crate) fn is_cancelled(&self, call: CallId) -> bool {
        let calls = lock(&self.calls);
        calls.iter().any(|(other, over)| *other == call && *over)
    }

    pub(crate) fn cancel(&self, call: CallId) {
        for (other, over) in lock(&self.calls).iter_mut() {
            *over |= *other == call;
        }
    }

    pub(crate) fn cancel_all(&self) {
        lock(&self.calls)
            .iter_mut()
            .for_each(|(_, over)| *over = true);
    }
}
