//! A request that a worker has taken.

use crate::lock;
use crate::peer::Peer;
use crate::word::{self, Answer, CallId};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_core::{
    Body, BufferMut, Error, ErrorKind, Inline, Message, Payload, SendError, Status,
};

/// How long an answer waits for a client that has still to agree to the answer's pool, or to release memory.
const ANSWER: Duration = Duration::from_secs(1);
/// The first and the longest pause between two attempts to allocate.
const PAUSES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(10)];

/// A request that a worker has taken. It reads as the [`Message`] that came.
///
/// A request that is dropped without an answer fails at its client with `PeerDied`, whose text says so: also when a worker panics.
#[derive(Debug)]
pub struct Request {
    peer: Arc<Peer>,
    call: CallId,
    deadline: Option<Instant>,
    message: Message,
    answered: bool,
}

impl Deref for Request {
    type Target = Message;
    fn deref(&self) -> &Message {
        &self.message
    }
}

impl Request {
    pub(crate) fn new(
        peer: &Arc<Peer>,
        call: CallId,
        deadline: Option<Instant>,
        mut message: Message,
    ) -> Request {
        message.word = 0;
        Request {
            peer: Arc::clone(peer),
            call,
            deadline,
            message,
            answered: false,
        }
    }

    /// Answers with a result. The payload's type says what happens to it, as for [`Sender::send`](tranship_core::Sender::send).
    ///
    /// It waits at most 1 s for a client that has still to agree to the payload's pool. If that time passes once, no
    /// worker waits for this client again. A client whose channel of answers stays full is given up: its channels are
    /// closed.
    ///
    /// # Errors
    /// As [`Sender::try_send`](tranship_core::Sender::try_send), with the payload. The client is told that the request was let go.
    pub fn reply<P: Payload>(self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.answer(payload, Answer::Done)
    }

    /// Answers with an error of the service's own: [`CallError::Failed`](crate::CallError::Failed) at the client. A text is shown in its message.
    ///
    /// # Errors
    /// As [`reply`](Request::reply).
    pub fn fail<P: Payload>(self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.answer(payload, Answer::Failed)
    }

    fn answer<P: Payload>(mut self, payload: P, how: Answer) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let message = (payload, word::answer(self.call, how));
        let peer = &self.peer;
        let is_slow = peer.is_cut() || peer.slow_consent.load(Ordering::Relaxed);
        let patience = if is_slow { Duration::ZERO } else { ANSWER };
        let sent = lock(&peer.replies).send_timeout(message, patience);
        match &sent {
            // An honest client never fills the ring: its calls are limited to half the lines.
            Err(failed) if failed.kind() == ErrorKind::Full => peer.cut(),
            Err(failed) if failed.kind() == ErrorKind::PoolPending => {
                peer.slow_consent.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        peer.settle();
        self.answered = sent.is_ok();
        sent.map(drop)
            .map_err(|failed| failed.map(|(payload, _)| payload))
    }

    /// Allocates a buffer for the answer, from the pool that no domain but the client's can read.
    ///
    /// It waits at most 1 s for memory, and not longer than the call is wanted. If that time passes once, no worker
    /// waits for this client's memory again until an allocation of that length succeeds.
    ///
    /// # Errors
    /// As [`Sender::try_alloc`](tranship_core::Sender::try_alloc). `OutOfMemory`: the client keeps its earlier answers.
    /// A worker drops such a request, or answers it with [`fail`](Request::fail), and goes on.
    pub fn alloc(&self, len: usize) -> Result<BufferMut, Error> {
        let slow = &self.peer.slow_memory;
        let started = Instant::now();
        let [mut pause, longest] = PAUSES;
        loop {
            // The pauses are outside the lock: other workers answer this client meanwhile.
            let allocated = lock(&self.peer.replies).try_alloc(len);
            self.peer.settle();
            match &allocated {
                Ok(_) if len < slow.load(Ordering::Relaxed) => {}
                Ok(_) => slow.store(0, Ordering::Relaxed),
                Err(error) if *error != ErrorKind::OutOfMemory => {}
                Err(_) if slow.load(Ordering::Relaxed) > 0 || self.is_cancelled() => {}
                Err(_) if started.elapsed() >= ANSWER => slow.store(len, Ordering::Relaxed),
                Err(_) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(longest);
                    continue;
                }
            }
            return allocated;
        }
    }

    /// Takes the body out, and leaves an empty one.
    pub fn take_body(&mut self) -> Body {
        let empty = Inline::try_from(&[][..]).map(Body::Inline);
        match empty {
            Ok(empty) => std::mem::replace(&mut self.message.body, empty),
            Err(_) => unreachable!("no bytes fit into a line"),
        }
    }

    /// The time after which the client does not wait any more.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether no caller waits for the answer any more: the call was cancelled, its time is over, or its client is gone. A long computation looks now and
    /// then.
    pub fn is_cancelled(&self) -> bool {
        if self.deadline.is_some_and(|at| Instant::now() >= at) || self.peer.is_cancelled(self.call)
        {
            return true;
        }
        if let Some(service) = self.peer.service.upgrade() {
            service.look_ahead(&self.peer);
        }
        self.peer.is_cancelled(self.call)
    }

    /// Returns the client's domain, process and user, as the kernel told the manager.
    pub fn client(&self) -> &Status {
        &self.peer.status
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.peer.forget(self.call);
        if !self.answered {
            self.peer.answer(self.call, Answer::Dropped);
        }
    }
}
