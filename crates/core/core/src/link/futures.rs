//! Awaiting, by plain futures: any runtime runs them, and none is needed. Each does what its `try_` form does; finding nothing, it puts
//! its task to sleep and looks again.

use super::inline::Inline;
use super::looking::Looking;
use super::message::{Body, Message, Payload};
use super::reactor;
use super::receiver::goes_later;
use super::shared::LinkShared;
use super::{ChannelEnd, Listener, Receiver, Sender, descriptor};
use crate::aggregate_mut::AggregateMut;
use crate::buffer::BufferMut;
use crate::domain::POLL_INTERVAL;
use crate::error::{Error, ErrorKind, SendError};
use crate::options::WhenFull;
use crate::pool::Pool;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tranship_ring::{SETTLE, Waker};
use tranship_sys::time::monotonic_ns;

/// A task's sleep on one end of a link. It ends with it.
#[derive(Default)]
struct Registration {
    /// The end, while the task sleeps.
    on: Option<Arc<LinkShared>>,
    /// The peer's word since this sleep was begun.
    word: Option<u32>,
    /// By then even a peer that does not fence knows of it.
    settled: Option<Instant>,
}

impl Registration {
    /// From here on what comes wakes the task, at that time at the latest. The caller looks again after it.
    fn begin(
        &mut self,
        link: &Arc<LinkShared>,
        context: &Context<'_>,
        peer: Waker,
        at: Option<Instant>,
    ) -> Result<(), Error> {
        self.on.get_or_insert_with(|| Arc::clone(link));
        reactor::put(&link.domain, link.key(), context.waker())?;
        let now = Instant::now();
        let mut times = [at, None];
        if link.is_watched() {
            let word = link.ring.arm();
            if self.word.replace(word) != Some(word) && peer == Waker::Lazy {
                self.settled = Some(now + SETTLE);
            }
            times[1] = self.settled.filter(|settled| *settled > now);
        } else {
            // Nobody can ring: the manager has still to give us a doorbell, or is away.
            times[1] = Some(now + POLL_INTERVAL);
        }
        if let Some(at) = times.into_iter().flatten().min() {
            link.domain.tasks.wake_at(link.key(), at);
        }
        Ok(())
    }

    /// If it was for want of room, it is over.
    fn end_stall(&self) {
        if let Some(link) = self.on.as_ref().filter(|link| !link.domain.fork.is_child()) {
            link.ring.wait_no_more(monotonic_ns());
        }
    }

    fn end(&mut self) {
        if let Some(link) = std::mem::take(&mut self.on).filter(|link| !link.domain.fork.is_child())
        {
            link.ring.disarm();
            link.domain.tasks.forget(link.key());
        }
        (self.word, self.settled) = (None, None);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}

impl Receiver {
    /// The next message, for awaiting in any runtime. It waits as [`recv`](Receiver::recv) does, and ends as it does.
    ///
    /// A future that is dropped before it is ready has taken nothing. Timeouts are the runtime's, or
    /// [`recv_timeout`](Receiver::recv_timeout). Wakes up by a thread of the domain's, which is there while somebody awaits something.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv), and [`ErrorKind::System`] where that thread or its descriptors cannot be had.
    pub fn recv_async(&mut self) -> impl Future<Output = Result<Message, Error>> + Send + Unpin {
        let mut registration = Registration::default();
        poll_fn(move |context| {
            loop {
                if let Some(done) = self.try_recv().transpose() {
                    registration.end();
                    return Poll::Ready(done);
                }
                let at = self.puts_aside().then(|| Instant::now() + POLL_INTERVAL);
                registration.begin(&self.link, context, Waker::Fences, at)?;
                if !self.may_have_news() && !self.link.domain.has_news() {
                    return Poll::Pending;
                }
                self.link.domain.catch_up();
            }
        })
    }
}

impl Receiver {
    /// Passes a buffer back, as [`pass_with`](Receiver::pass_with), for awaiting: it waits for room as [`pass_timeout`](Receiver::pass_timeout) does,
    /// for ever. If the future is dropped before it is ready the buffer is, too: its pool has it again, and nobody is told.
    ///
    /// # Errors
    /// As [`pass`](Receiver::pass), and `System` as for [`recv_async`](Receiver::recv_async).
    pub fn pass_async(
        &mut self,
        buf: BufferMut,
        word: u64,
    ) -> impl Future<Output = Result<(), SendError<BufferMut>>> + Send + Unpin {
        self.when_room(buf, move |from: &mut Receiver, buf| {
            from.pass_with(buf, word)
        })
    }

    /// Lets go of something and has the sender hear of it, as [`release_with`](Receiver::release_with), for awaiting: it waits for room as
    /// [`pass_async`](Receiver::pass_async) does. If the future is dropped before it is ready it is released, and nobody is told.
    ///
    /// # Errors
    /// As [`release_with`](Receiver::release_with), and `System` as for [`recv_async`](Receiver::recv_async).
    pub fn release_async(
        &mut self,
        what: impl Into<Body>,
        word: u64,
    ) -> impl Future<Output = Result<(), SendError<Body>>> + Send + Unpin {
        let release = move |from: &mut Receiver, body: Body| from.release_with(body, word);
        self.when_room(what.into(), release)
    }

    /// Sends a few bytes back, as [`send_control`](Receiver::send_control), for awaiting: it waits for room as [`pass_async`](Receiver::pass_async) does.
    /// If the future is dropped before it is ready nothing was sent.
    ///
    /// # Errors
    /// As [`send_control`](Receiver::send_control), and `System` as for [`recv_async`](Receiver::recv_async).
    pub fn send_control_async(
        &mut self,
        bytes: &[u8],
        word: u64,
    ) -> impl Future<Output = Result<(), SendError<()>>> + Send + Unpin {
        self.when_room((), move |from: &mut Receiver, ()| {
            from.send_control(bytes, word)
        })
    }

    /// Does it whenever there may be room, until it goes.
    fn when_room<T: Unpin>(
        &mut self,
        what: T,
        mut go: impl FnMut(&mut Receiver, T) -> Result<(), SendError<T>> + Unpin,
    ) -> impl Future<Output = Result<(), SendError<T>>> + Unpin {
        let (mut registration, mut what) = (Registration::default(), Some(what));
        poll_fn(move |context| {
            let Some(unsent) = what.take() else {
                return Poll::Pending; // it was ready before
            };
            let failed = match go(self, unsent) {
                Ok(()) => {
                    registration.end();
                    return Poll::Ready(Ok(()));
                }
                Err(failed) => failed,
            };
            let begun = match goes_later(failed.kind()) {
                // Nobody tells of room on that way.
                true => registration.begin(
                    &self.link,
                    context,
                    Waker::Fences,
                    Some(Instant::now() + POLL_INTERVAL),
                ),
                false => Err(failed.error),
            };
            if let Err(error) = begun {
                registration.end();
                return Poll::Ready(Err(SendError::new(error, failed.unsent)));
            }
            what = Some(failed.unsent);
            Poll::Pending
        })
    }
}

struct Sending<'a> {
    sender: &'a mut Sender,
    message: Option<Message>,
    registration: Registration,
}

impl Sender {
    /// Sends a buffer or an aggregate, for awaiting in any runtime. It waits as long as it takes, for room and for the receiver's consent
    /// to a new pool, whatever [`WhenFull`] says. On failure what was to be sent comes back.
    ///
    /// A future that is dropped before it is ready has sent nothing. What it had to send stays with the sender:
    /// [`take_unsent`](Sender::take_unsent) gives it back.
    ///
    /// # Errors
    /// As [`send`](Sender::send), and [`ErrorKind::System`] where the thread that wakes tasks, or its descriptors, cannot be had.
    pub fn send_async(
        &mut self,
        payload: impl Into<Payload>,
    ) -> impl Future<Output = Result<(), SendError<Message>>> + Send + Unpin {
        self.send_with_async(payload, 0)
    }

    /// Sends a buffer together with a 64-bit word that arrives with the message, without blocking the thread.
    ///
    /// # Errors
    /// As without the word.
    pub fn send_with_async(
        &mut self,
        payload: impl Into<Payload>,
        word: u64,
    ) -> impl Future<Output = Result<(), SendError<Message>>> + Send + Unpin {
        let body = match payload.into() {
            Payload::Buffer(buf) => Body::Buffer(buf),
            Payload::Aggregate(aggregate) => Body::Aggregate(aggregate),
        };
        Sending::new(self, Message { word, body })
    }

    /// Moves a buffer, as [`move_buffer`](Sender::move_buffer), for awaiting: see [`send_async`](Sender::send_async).
    ///
    /// # Errors
    /// As [`move_buffer`](Sender::move_buffer), and `System` as for [`Receiver::recv_async`].
    pub fn move_buffer_async(
        &mut self,
        buf: BufferMut,
    ) -> impl Future<Output = Result<(), SendError<Message>>> + Send + Unpin {
        self.move_buffer_with_async(buf, 0)
    }

    /// Moves a buffer together with a 64-bit word that arrives with the message, without blocking the thread.
    ///
    /// # Errors
    /// As without the word.
    pub fn move_buffer_with_async(
        &mut self,
        buf: BufferMut,
        word: u64,
    ) -> impl Future<Output = Result<(), SendError<Message>>> + Send + Unpin {
        let body = Body::BufferMut(buf);
        Sending::new(self, Message { word, body })
    }

    /// Moves all pieces of an aggregate, as [`move_aggregate`](Sender::move_aggregate), for awaiting: see [`send_async`](Sender::send_async).
    ///
    /// # Errors
    /// As [`move_aggregate`](Sender::move_aggregate), and `System` as for [`Receiver::recv_async`].
    pub fn move_aggregate_async(
        &mut self,
        aggregate: AggregateMut,
        word: u64,
    ) -> impl Future<Output = Result<(), SendError<Message>>> + Send + Unpin {
        let body = Body::AggregateMut(aggregate);
        Sending::new(self, Message { word, body })
    }

    /// Sends up to [`INLINE_BYTES`](crate::INLINE_BYTES) bytes inside the descriptor, for awaiting: see [`send_async`](Sender::send_async).
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] at once if there are more.
    pub fn send_inline_async(
        &mut self,
        bytes: &[u8],
        word: u64,
    ) -> Result<impl Future<Output = Result<(), SendError<Message>>> + Send + Unpin + use<'_>, Error>
    {
        let inline = Inline::new(bytes).ok_or_else(|| descriptor::too_long(bytes))?;
        let body = Body::Inline(inline);
        Ok(Sending::new(self, Message { word, body }))
    }

    /// What the last future of an `_async` send that was dropped had still to send. The next such send drops it.
    pub fn take_unsent(&mut self) -> Option<Message> {
        self.unsent.take().map(|message| *message)
    }

    /// Waits until the receiver has taken everything that was sent, as [`wait_taken`](Sender::wait_taken), for awaiting.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::System`] as for [`send_async`](Sender::send_async).
    pub fn wait_taken_async(&mut self) -> impl Future<Output = Result<(), Error>> + Send + Unpin {
        let mut registration = Registration::default();
        poll_fn(move |context| {
            loop {
                if let Some(done) = self.is_taken().map(|all| all.then_some(())).transpose() {
                    registration.end();
                    return Poll::Ready(done);
                }
                registration.begin(&self.link, context, Waker::Lazy, None)?;
                if !self.has_moved() && !self.link.domain.has_news() {
                    return Poll::Pending;
                }
                self.link.domain.catch_up();
            }
        })
    }

    /// What the receiver sends back next, as [`recv_back`](Sender::recv_back), for awaiting. A future that is dropped before it is ready has taken nothing.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::System`] as for [`send_async`](Sender::send_async).
    pub fn recv_back_async(
        &mut self,
    ) -> impl Future<Output = Result<Message, Error>> + Send + Unpin {
        let mut registration = Registration::default();
        poll_fn(move |context| {
            loop {
                if let Some(done) = self.look_for_control().transpose() {
                    registration.end();
                    return Poll::Ready(done);
                }
                registration.begin(&self.link, context, Waker::Fences, None)?;
                if !self.link.may_have_reply() && !self.link.domain.has_news() {
                    return Poll::Pending;
                }
            }
        })
    }

    /// Assigns a pool to this channel now, as [`assign`](Sender::assign), for awaiting. If the future is dropped the request goes on, and the next
    /// one, or [`try_assign`](Sender::try_assign), takes its answer.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::System`] as for [`send_async`](Sender::send_async).
    pub fn assign_async(
        &mut self,
        pool: &Pool,
    ) -> impl Future<Output = Result<(), Error>> + Send + Unpin {
        let domain = self.link.domain.clone();
        Looking::new(domain, move || Ok(self.try_assign(pool)?.then_some(())))
    }

    /// Sends a message without waiting.
    pub(super) fn try_message(&mut self, message: Message) -> Result<(), SendError<Message>> {
        let mut now = self.with_when_full(WhenFull::Error);
        let word = message.word;
        let back = |body| Message { word, body };
        match message.body {
            Body::Inline(inline) => {
                let sent = now.send_inline(&inline, word);
                sent.map(|_| ())
                    .map_err(|failed| failed.map(|()| back(Body::Inline(inline))))
            }
            Body::Buffer(buf) => {
                let sent = now.send_buf(buf, word);
                sent.map(|_| ())
                    .map_err(|failed| failed.map(|buf| back(Body::Buffer(buf))))
            }
            Body::Aggregate(aggregate) => {
                let sent = now.send_aggregate(aggregate, word);
                sent.map(|_| ())
                    .map_err(|failed| failed.map(|all| back(Body::Aggregate(all))))
            }
            Body::BufferMut(buf) => {
                let sent = now.move_buffer_with(buf, word);
                sent.map(|_| ())
                    .map_err(|failed| failed.map(|buf| back(Body::BufferMut(buf))))
            }
            Body::AggregateMut(aggregate) => {
                let sent = now.move_aggregate(aggregate, word);
                sent.map(|_| ())
                    .map_err(|failed| failed.map(|all| back(Body::AggregateMut(all))))
            }
            Body::Released(id) => {
                let text = "that something was released is told by its receiver, and to its sender: Receiver::release_with";
                let error = Error::new(ErrorKind::BadArgument, text);
                Err(SendError::new(error, back(Body::Released(id))))
            }
        }
    }
}

impl<'a> Sending<'a> {
    fn new(sender: &'a mut Sender, message: Message) -> Sending<'a> {
        sender.unsent = None;
        Sending {
            sender,
            message: Some(message),
            registration: Registration::default(),
        }
    }
}

impl Future for Sending<'_> {
    type Output = Result<(), SendError<Message>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Sending {
            sender,
            message,
            registration,
        } = self.get_mut();
        loop {
            let Some(unsent) = message.take() else {
                return Poll::Pending; // it was ready before
            };
            let failed = match sender.try_message(unsent) {
                Ok(()) => {
                    registration.end_stall();
                    registration.end();
                    return Poll::Ready(Ok(()));
                }
                Err(failed) => failed,
            };
            let full = failed.kind() == ErrorKind::Full;
            if full {
                sender.link.ring.wait(monotonic_ns());
            }
            let begun = match failed.kind() {
                // The receiver gives lines back without a fence.
                ErrorKind::Full => registration.begin(&sender.link, context, Waker::Lazy, None),
                ErrorKind::PoolPending | ErrorKind::ManagerAway | ErrorKind::OutOfMemory => {
                    let at = Instant::now() + POLL_INTERVAL;
                    registration.begin(&sender.link, context, Waker::Lazy, Some(at))
                }
                _ => Err(failed.error),
            };
            if let Err(error) = begun {
                registration.end();
                return Poll::Ready(Err(SendError::new(error, failed.unsent)));
            }
            *message = Some(failed.unsent);
            let has_room = full && sender.has_moved();
            if !has_room && !sender.link.domain.has_news() {
                return Poll::Pending;
            }
            sender.link.domain.catch_up();
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.registration.end_stall();
        self.registration.end();
        self.sender.unsent = self.message.take().map(Box::new);
    }
}

impl<E: ChannelEnd> Listener<E> {
    /// Awaits the next connection, in any runtime. Several tasks may await connections of one listener.
    ///
    /// If the future is dropped no connection is lost: one that is half made is the next one.
    ///
    /// # Errors
    /// As [`accept`](Listener::accept), and `System` where the thread that wakes tasks, or its descriptors, cannot be had.
    pub fn accept_async(&self) -> impl Future<Output = Result<E, Error>> + Send + Unpin {
        Looking::new(self.accepts().domain().clone(), || {
            self.accepts().look_for_connection()?.map(E::of).transpose()
        })
    }
}
