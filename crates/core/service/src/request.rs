//! A request that a worker has taken.

use crate::flow::{self, Flow};
use crate::lock;
use crate::peer::{Inbox, Peer};
use crate::word::{self, Answer, Ask, CallId};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_core::{
    Body, BufferMut, Error, ErrorKind, Message, Payload, SendError, Sender, Status, topics,
};

/// How long an answer waits for a client that has still to agree to the answer's pool, or to release memory.
const ANSWER: Duration = Duration::from_secs(5);
/// The time between two looks whether a call is wanted whose answer waits for memory.
const PAUSE: Duration = Duration::from_millis(10);

/// A request that a worker has taken. It reads as the [`Message`] that came.
///
/// A request that is dropped without an answer fails at its client with `PeerDied`, whose text says so: also when a worker panics.
#[derive(Debug)]
pub struct Request {
    peer: Arc<Peer>,
    call: CallId,
    method: u8,
    deadline: Option<Instant>,
    inbox: Option<Arc<Inbox>>,
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
    #[inline(always)]
    pub(crate) fn new(peer: Arc<Peer>, call: CallId, ask: Ask, message: Message) -> Request {
        let Message { body, .. } = message;
        let deadline = ask.left.and_then(|left| Instant::now().checked_add(left));
        Request {
            call,
            method: ask.method,
            deadline,
            inbox: ask.streams.then(|| peer.inbox(call)).flatten(),
            message: Message { word: 0, body },
            answered: false,
            peer,
        }
    }

    /// Answers with a result. The payload's type says what happens to it, as for [`Sender::send`](tranship_core::Sender::send).
    ///
    /// It waits at most 5 s for a client that has still to agree to the payload's pool. If that time passes once, no
    /// worker waits for this client again. A client whose channel of answers stays full is given up: its channels are
    /// closed.
    ///
    /// # Errors
    /// As [`Sender::try_send`](tranship_core::Sender::try_send), with the payload. The client is told that the request was let go.
    #[inline(always)]
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

    #[inline(always)]
    fn answer<P: Payload>(mut self, payload: P, how: Answer) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let given = self.give(payload, how);
        self.answered = given.is_ok();
        given
    }

    /// Sends the client a message of this call.
    #[inline(always)]
    fn give<P: Payload>(&self, payload: P, how: Answer) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let (peer, word) = (&self.peer, word::answer(self.call, how));
        // While it lies in registers: what is dropped should taking the lock unwind lies in memory.
        let payload = ManuallyDrop::new(payload);
        let mut replies = lock(&peer.replies);
        let payload = ManuallyDrop::into_inner(payload);
        let sent = topics::send_now(&mut replies, payload, word);
        let sent = sent.or_else(|payload| self.give_late(&mut replies, (payload, word)));
        drop(replies);
        match &sent {
            // An honest client never fills the ring: its calls are limited by the lines.
            Err(failed) if failed.kind() == ErrorKind::Full => peer.cut(),
            Err(failed) if failed.kind() == ErrorKind::PoolPending => {
                peer.slow_consent.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        peer.settle();
        sent.map_err(|failed| failed.map(|(payload, _)| payload))
    }

    /// Sends what could not be sent at once, and waits for the client's consent to a pool.
    #[cold]
    fn give_late<P: Payload>(
        &self,
        replies: &mut Sender,
        message: P,
    ) -> Result<(), SendError<P::Unsent>> {
        let peer = &self.peer;
        let is_slow = peer.is_cut() || peer.slow_consent.load(Ordering::Relaxed);
        let patience = if is_slow { Duration::ZERO } else { ANSWER };
        replies.send_timeout(message, patience).map(drop)
    }

    /// Returns the number of the method that the client calls: [`CallOptions::method`](crate::CallOptions::method).
    pub fn method(&self) -> u8 {
        self.method
    }

    /// Sends an item to the client: [`Call::recv`](crate::Call::recv) takes it. It waits until the client has taken enough of the earlier ones, until the call's deadline at most.
    ///
    /// A worker that waits here reads for other workers meanwhile, and gives way to a worker that waits for requests. A client that lets a worker wait
    /// longer than [`ServiceOptions::patience`](crate::ServiceOptions::patience) is given up: its channels are closed.
    ///
    /// # Errors
    /// `PeerGone`: no caller waits for the call any more; `TimedOut`: its deadline has passed, or the client was given up; `BadArgument`: it was begun without
    /// streams; and as [`reply`](Request::reply).
    pub fn send<P: Payload>(&self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let credit = self.wait(None, Flow::credit);
        self.send_on(credit, payload)
    }

    /// Sends an item to the client, or fails with `TimedOut` after `timeout`. The call goes on then.
    ///
    /// # Errors
    /// As [`send`](Request::send).
    pub fn send_timeout<P: Payload>(
        &self,
        payload: P,
        timeout: Duration,
    ) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let credit = self.wait(Some(timeout), Flow::credit);
        self.send_on(credit, payload)
    }

    /// Sends an item to the client, for awaiting in any runtime. It ends as [`send`](Request::send) does.
    ///
    /// # Errors
    /// As [`send`](Request::send), and `System` as for [`Receiver::recv_async`](tranship_core::Receiver::recv_async).
    pub async fn send_async<P: Payload>(&self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let credit = self.wait_async(Flow::credit).await;
        self.send_on(credit, payload)
    }

    fn send_on<P: Payload>(
        &self,
        credit: Result<(), Error>,
        payload: P,
    ) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        match credit {
            Ok(()) => self.give_item(payload),
            Err(error) => Err(SendError::new(error, payload.unsent())),
        }
    }

    fn give_item<P: Payload>(&self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.give(payload, Answer::Item).inspect_err(|_| {
            if let Some(inbox) = &self.inbox {
                lock(&inbox.flow).grant(1);
            }
        })
    }

    /// Takes the next item that the client sends ([`Call::send`](crate::Call::send)). `None`: the client has finished. It waits as [`send`](Request::send) does.
    ///
    /// # Errors
    /// As [`send`](Request::send).
    pub fn recv(&self) -> Result<Option<Message>, Error> {
        let item = self.wait(None, Flow::take);
        self.tell_credit();
        item
    }

    /// Takes the next item that the client sends, or fails with `TimedOut` after `timeout`. The call goes on then.
    ///
    /// # Errors
    /// As [`send`](Request::send).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        let item = self.wait(Some(timeout), Flow::take);
        self.tell_credit();
        item
    }

    /// Takes the next item that the client sends, for awaiting in any runtime. It ends as [`send`](Request::send) does. A future that is dropped has taken none.
    ///
    /// # Errors
    /// As [`send_async`](Request::send_async).
    pub async fn recv_async(&self) -> Result<Option<Message>, Error> {
        let item = self.wait_async(Flow::take).await;
        self.tell_credit();
        item
    }

    /// Tells the client what credit it has, if half a window of items was taken.
    fn tell_credit(&self) {
        let owed = |inbox: &Arc<Inbox>| lock(&inbox.flow).owed();
        if let Some(items) = self.inbox.as_ref().and_then(owed) {
            self.peer.say(word::answer_credit(self.call, items));
        }
    }

    /// Returns the item that `take` finds in the streams. `None`: nothing yet.
    fn look<R>(&self, take: &impl Fn(&mut Flow) -> Option<R>) -> Option<Result<R, Error>> {
        let Some(inbox) = &self.inbox else {
            return Some(Err(flow::none(self.call)));
        };
        match take(&mut lock(&inbox.flow)) {
            Some(taken) => Some(Ok(taken)),
            None if self.peer.is_cancelled(self.call) => Some(Err(self.over())),
            None => None,
        }
    }

    fn wait<R: Send>(
        &self,
        timeout: Option<Duration>,
        take: impl Fn(&mut Flow) -> Option<R> + Sync,
    ) -> Result<R, Error> {
        let mut found = None;
        let mut done = || {
            found = found.take().or_else(|| self.look(&take));
            found.is_some()
        };
        let limit = Limit::new(self, timeout);
        if !done() {
            let service = self.peer.service.upgrade().ok_or_else(ended)?;
            service.wait(limit.by(), &mut done)?;
        }
        found.unwrap_or_else(|| Err(self.late(limit)))
    }

    async fn wait_async<R: Send>(
        &self,
        take: impl Fn(&mut Flow) -> Option<R> + Send + Sync,
    ) -> Result<R, Error> {
        let mut found = None;
        let mut done = || {
            found = found.take().or_else(|| self.look(&take));
            found.is_some()
        };
        let limit = Limit::new(self, None);
        if !done() {
            let service = self.peer.service.upgrade().ok_or_else(ended)?;
            service.wait_async(limit.by(), &mut done).await?;
        }
        found.unwrap_or_else(|| Err(self.late(limit)))
    }

    fn over(&self) -> Error {
        let (domain, pid) = (self.peer.status.peer, self.peer.status.peer_pid);
        let text = format!(
            "no caller waits for the call any more: the client (domain {domain}, process {pid}) has cancelled it, or is gone"
        );
        Error::new(ErrorKind::PeerGone, text)
    }

    /// The error of a wait that was too long. If it was the service's patience that ended, the client is given up.
    fn late(&self, limit: Limit) -> Error {
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        let (domain, pid) = (self.peer.status.peer, self.peer.status.peer_pid);
        let waited = limit.began.elapsed().as_millis();
        let silent = format!(
            "the client (domain {domain}, process {pid}) has sent no item, or taken none, in {waited} ms"
        );
        let text = if is_over(limit.deadline) {
            "the call's deadline has passed".into()
        } else if is_over(limit.patience) {
            self.peer.cut();
            format!("{silent}: its channels are closed (ServiceOptions::patience)")
        } else {
            silent
        };
        Error::new(ErrorKind::TimedOut, text)
    }

    /// Allocates a buffer for the answer, from the pool that no domain but the client's can read.
    ///
    /// It waits at most 5 s for memory, and not longer than the call is wanted. If that time passes once, no worker
    /// waits for this client's memory again until an allocation of that length succeeds.
    ///
    /// # Errors
    /// As [`Sender::try_alloc`](tranship_core::Sender::try_alloc). `OutOfMemory`: the client keeps its earlier answers.
    /// A worker drops such a request, or answers it with [`fail`](Request::fail), and goes on.
    pub fn alloc(&self, len: usize) -> Result<BufferMut, Error> {
        let slow = &self.peer.slow_memory;
        let pool = self.peer.pool()?;
        let mut allocated = pool.try_alloc(len);
        let mut started = None;
        loop {
            match &allocated {
                Ok(_) if len < slow.load(Ordering::Relaxed) => {}
                Ok(_) => slow.store(0, Ordering::Relaxed),
                Err(error) if *error != ErrorKind::OutOfMemory => {}
                Err(_) if slow.load(Ordering::Relaxed) > 0 || self.is_cancelled() => {}
                Err(_) if started.get_or_insert_with(Instant::now).elapsed() >= ANSWER => {
                    slow.store(len, Ordering::Relaxed);
                }
                Err(_) => {
                    allocated = pool.alloc_timeout(len, PAUSE);
                    continue;
                }
            }
            return allocated;
        }
    }

    /// Takes the body out, and leaves an empty one.
    #[inline]
    pub fn take_body(&mut self) -> Body {
        // It has no bytes, and is no buffer.
        std::mem::replace(&mut self.message.body, Body::Released(None))
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
    #[inline]
    fn drop(&mut self) {
        self.peer.forget(self.call);
        if self.inbox.is_some() {
            self.peer.close(self.call);
        }
        if !self.answered {
            self.peer.answer(self.call, Answer::Dropped);
        }
    }
}

/// Reason for the end of a wait for a client.
#[derive(Clone, Copy)]
struct Limit {
    began: Instant,
    /// The call's.
    deadline: Option<Instant>,
    /// The service's.
    patience: Option<Instant>,
    /// The worker's.
    timeout: Option<Instant>,
}

impl Limit {
    fn new(request: &Request, timeout: Option<Duration>) -> Limit {
        let began = Instant::now();
        Limit {
            began,
            deadline: request.deadline,
            patience: began.checked_add(request.peer.patience),
            timeout: timeout.and_then(|timeout| began.checked_add(timeout)),
        }
    }

    fn by(self) -> Option<Instant> {
        let all = [self.deadline, self.patience, self.timeout];
        all.into_iter().flatten().min()
    }
}

/// The error for streams of a request that outlives its service.
fn ended() -> Error {
    let text = "the service has ended: nothing reads what its clients send";
    Error::new(ErrorKind::ChannelState, text)
}
