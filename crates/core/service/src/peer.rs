//! A client, as its requests know it.

use crate::flow::Flow;
use crate::lock;
use crate::word::{self, Answer, CallId};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};
use tranship_core::{Error, Pool, Sender, Status, topics};

/// Parts of a service that a request needs.
pub(crate) trait Ahead: Debug + Send + Sync {
    /// Looks for cancellations of that client's calls.
    fn look_ahead(&self, peer: &Peer);

    /// Something came for a call that a worker has: workers that wait for it look again.
    fn tell(&self);

    /// A client is gone: workers that wait for its items look again, the one in the hall too.
    fn rouse(&self);

    /// Reads what clients send until `done`, or the deadline.
    fn wait(&self, deadline: Option<Instant>, done: Done<'_>) -> Result<(), Error>;

    /// Reads what clients send until `done`, or the deadline, for awaiting.
    fn wait_async<'a>(&'a self, deadline: Option<Instant>, done: Done<'a>) -> Waiting<'a>;
}

pub(crate) type Done<'a> = &'a mut (dyn FnMut() -> bool + Send);
pub(crate) type Waiting<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A call's items, as the hall and the call's request share them.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) call: CallId,
    pub(crate) flow: Mutex<Flow>,
}

/// The most cancellations of one client that are kept; beyond that the oldest is forgotten, and its worker goes on.
const MOST_CANCELLED: usize = 256;

/// The most answers without a payload that wait for the sender. An honest client has at most half of 65,536 lines
/// in flight.
const MOST_OWED: usize = 1 << 15;

/// Parts of a client that a request needs.
#[derive(Debug)]
pub(crate) struct Peer {
    /// A worker that unlocks it calls [`settle`](Peer::settle).
    pub(crate) replies: Mutex<Sender>,
    /// Out of which answers are allocated: made at the first one.
    pool: OnceLock<Pool>,
    /// Answers without a payload, as words, that have still to be sent.
    owed: Mutex<Vec<u64>>,
    /// A worker has waited in vain for the client's consent to a pool. No worker waits for the client's consent again.
    pub(crate) slow_consent: AtomicBool,
    /// The bytes for which a worker has waited in vain. No worker waits again until so many can be allocated. 0: none.
    pub(crate) slow_memory: AtomicUsize,
    pub(crate) status: Status,
    /// How long a worker waits for the client's next item or credit.
    pub(crate) patience: Duration,
    pub(crate) service: Weak<dyn Ahead>,
    /// Calls that were cancelled and are perhaps with a worker. `any`: whether there are some, so that a call without one takes no lock.
    cancelled: Mutex<Vec<CallId>>,
    any: AtomicBool,
    /// Calls with streams that are not over.
    streams: Mutex<Vec<Arc<Inbox>>>,
    gone: AtomicBool,
    /// The service has given the client up.
    cut: AtomicBool,
}

impl Peer {
    pub(crate) fn new(
        replies: Sender,
        status: Status,
        service: Weak<dyn Ahead>,
        patience: Duration,
    ) -> Peer {
        Peer {
            replies: Mutex::new(replies),
            pool: OnceLock::new(),
            owed: Mutex::default(),
            slow_consent: AtomicBool::new(false),
            slow_memory: AtomicUsize::new(0),
            status,
            patience,
            service,
            cancelled: Mutex::default(),
            any: AtomicBool::new(false),
            streams: Mutex::default(),
            gone: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        }
    }

    /// The pool that the client alone can read.
    pub(crate) fn pool(&self) -> Result<&Pool, Error> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let pool = topics::own_pool(&mut lock(&self.replies));
        self.settle();
        let pool = pool?;
        Ok(self.pool.get_or_init(|| pool))
    }

    /// Answers a call without a payload. It never blocks: a worker that has the sender sends the answer afterwards.
    pub(crate) fn answer(&self, call: CallId, how: Answer) {
        self.close(call);
        self.say(word::answer(call, how));
    }

    /// Says something without a payload. It never blocks.
    pub(crate) fn say(&self, word: u64) {
        let mut owed = lock(&self.owed);
        if owed.len() < MOST_OWED {
            owed.push(word);
        }
        drop(owed);
        self.settle();
    }

    /// Sends the answers that wait for the sender. If another thread has the sender, that thread calls this afterwards.
    #[inline]
    pub(crate) fn settle(&self) {
        if !lock(&self.owed).is_empty() {
            self.settle_all();
        }
    }

    #[cold]
    fn settle_all(&self) {
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
    #[inline]
    pub(crate) fn forget(&self, call: CallId) {
        // Ordering: relaxed, here and below: the list is read under its lock. A later look sees a cancellation that comes
        // meanwhile.
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
        drop(cancelled);
        self.news();
    }

    pub(crate) fn is_gone(&self) {
        if !self.gone.swap(true, Ordering::Relaxed) {
            self.of_streams(|service| service.rouse());
        }
    }

    /// Opens a call's streams.
    pub(crate) fn open(&self, call: CallId) {
        let flow = Mutex::new(Flow::new());
        lock(&self.streams).push(Arc::new(Inbox { call, flow }));
    }

    pub(crate) fn close(&self, call: CallId) {
        lock(&self.streams).retain(|inbox| inbox.call != call);
    }

    pub(crate) fn inbox(&self, call: CallId) -> Option<Arc<Inbox>> {
        let streams = lock(&self.streams);
        streams.iter().find(|inbox| inbox.call == call).cloned()
    }

    /// Changes a call's streams. `false`: it may not be so. A call that is over has none, and that is no fault of the client's.
    pub(crate) fn stream(&self, call: CallId, change: impl FnOnce(&mut Flow) -> bool) -> bool {
        let Some(inbox) = self.inbox(call) else {
            return true;
        };
        let fits = change(&mut lock(&inbox.flow));
        self.news();
        fits
    }

    /// Workers that wait for this client's items look again.
    fn news(&self) {
        self.of_streams(|service| service.tell());
    }

    fn of_streams(&self, tell: impl FnOnce(&dyn Ahead)) {
        if !lock(&self.streams).is_empty()
            && let Some(service) = self.service.upgrade()
        {
            tell(&*service);
        }
    }

    /// Gives the client up: the next look at its requests closes its channels.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        self.is_gone();
    }

    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Peer {
    /// A client that was given up may have calls that were begun: its channel does not end in order.
    fn drop(&mut self) {
        if self.is_cut() {
            topics::give_up(&lock(&self.replies));
        }
    }
}
