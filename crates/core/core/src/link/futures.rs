//! Awaiting, by plain futures: any runtime runs them, and none is needed. Each future tries its `try_` form. If nothing
//! is there, it puts its task to sleep and looks again.

use super::back::PayloadBack;
use super::looking::Looking;
use super::message::{Body, Message};
use super::payload::Payload;
use super::reactor;
use super::receiver::goes_later;
use super::shared::LinkShared;
use super::{ChannelEnd, Listener, Receiver, Sender};
use crate::domain::POLL_INTERVAL;
use crate::error::{Error, ErrorKind, SendError};
use crate::options::Outcome;
use crate::pool::Pool;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tranship_ring::{Publish, SETTLE, Waker};
use tranship_sys::time::monotonic_ns;

/// A task's sleep on one end of a link. It ends with it.
#[derive(Default)]
pub(crate) struct Registration {
    /// The end, while the task sleeps.
    on: Option<Arc<LinkShared>>,
    /// The peer's word since this sleep was begun.
    word: Option<u32>,
    /// Time by which even a peer that does not fence has seen the sleep.
    settled: Option<Instant>,
}

impl Registration {
    /// Begins a sleep: from here on news wakes the task, at the latest at that time. The caller looks again after it.
    pub(crate) fn begin(
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
            // The peer cannot ring: the manager has still to give this end a doorbell, or is away.
            times[1] = Some(now + POLL_INTERVAL);
        }
        if let Some(at) = times.into_iter().flatten().min() {
            link.domain.tasks.wake_at(link.key(), at);
        }
        Ok(())
    }

    /// Ends the record of a wait for room, if this sleep was one.
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
    /// Awaits the next message, in any runtime. It waits and ends as [`recv`](Receiver::recv) does.
    ///
    /// A future that is dropped before it is ready has taken nothing. Timeouts are the runtime's, or
    /// [`recv_timeout`](Receiver::recv_timeout). A thread of the domain's wakes the task; it exists while tasks wait.
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
    /// Sends a payload back, waiting for room as [`send_back_timeout`](Receiver::send_back_timeout) does, for ever, without blocking the thread.
    ///
    /// A future that is dropped before it is ready drops its payload, and sends nothing: a buffer is its pool's again, and the sender does not hear of it.
    ///
    /// # Errors
    /// As [`send_back`](Receiver::send_back), and `System` as for [`recv_async`](Receiver::recv_async).
    pub fn send_back_async<P: PayloadBack>(
        &mut self,
        payload: P,
    ) -> impl Future<Output = Result<(), SendError<P::Unsent>>> + Send + Unpin {
        let (mut registration, mut kept) = (Registration::default(), Some(payload));
        poll_fn(move |context| {
            let Some(unsent) = kept.take() else {
                return Poll::Pending; // it was ready before
            };
            let failed = match unsent.go_back(self, 0) {
                Ok(()) => {
                    registration.end();
                    return Poll::Ready(Ok(()));
                }
                Err(failed) => failed,
            };
            let begun = match goes_later(failed.kind()) {
                // No peer tells of room on that way.
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
                return Poll::Ready(Err(SendError::new(error, failed.unsent.unsent_back())));
            }
            kept = Some(failed.unsent);
            Poll::Pending
        })
    }
}

struct Sending<'a, P: Payload> {
    sender: &'a mut Sender,
    payload: Option<P>,
    registration: Registration,
}

impl Sender {
    /// Sends a payload without blocking the thread, in any runtime. It does what the channel's [`WhenFull`](crate::WhenFull) says while the receiver
    /// is behind, and waits for the receiver's consent to a new pool.
    ///
    /// A future that is dropped before it is ready has sent nothing. Its payload stays with the sender:
    /// [`take_unsent`](Sender::take_unsent) gives it back.
    ///
    /// # Errors
    /// As [`send`](Sender::send), and [`ErrorKind::System`] where the thread that wakes tasks, or its descriptors, cannot be had.
    pub fn send_async<P: Payload>(
        &mut self,
        payload: P,
    ) -> impl Future<Output = Result<Outcome, SendError<P::Unsent>>> + Send + Unpin {
        self.unsent = None;
        Sending {
            sender: self,
            payload: Some(payload),
            registration: Registration::default(),
        }
    }

    /// Takes the payload of the last future of [`send_async`](Sender::send_async) that was dropped before it was ready. The next such send drops it.
    pub fn take_unsent(&mut self) -> Option<Message> {
        self.unsent.take().map(|message| *message)
    }

    /// Awaits that the receiver has taken everything that was sent, like [`wait_taken`](Sender::wait_taken).
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

    /// Awaits the receiver's next message, like [`recv_back`](Sender::recv_back). A future that is dropped before it is
    /// ready has taken nothing.
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
        let Message { word, body } = message;
        let sent = self.within(Duration::ZERO, |now| match body {
            Body::Inline(inline) => {
                let sent = now.copy_in(&inline, word, Publish::SeqCst);
                sent.map_err(|error| SendError::new(error, Body::Inline(inline)))
            }
            Body::Buffer(buf) => now
                .share(buf, word, Publish::SeqCst)
                .map_err(|e| e.map(Body::Buffer)),
            Body::Aggregate(all) => now
                .share_all(all, word, Publish::SeqCst)
                .map_err(|e| e.map(Body::Aggregate)),
            Body::BufferMut(buf) => now
                .give(buf, word, Publish::SeqCst)
                .map_err(|e| e.map(Body::BufferMut)),
            Body::AggregateMut(all) => {
                let sent = now.give_all(all, word, Publish::SeqCst);
                sent.map_err(|e| e.map(Body::AggregateMut))
            }
            Body::Released(id) => {
                let text = "only a receiver tells that something was released: Receiver::send_back";
                let error = Error::new(ErrorKind::BadArgument, text);
                Err(SendError::new(error, Body::Released(id)))
            }
        });
        sent.map(drop)
            .map_err(|failed| failed.map(|body| Message { word, body }))
    }
}

impl<P: Payload> Future for Sending<'_, P> {
    type Output = Result<Outcome, SendError<P::Unsent>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Sending {
            sender,
            payload,
            registration,
        } = self.get_mut();
        loop {
            let Some(unsent) = payload.take() else {
                return Poll::Pending; // it was ready before
            };
            let failed =
                match sender.within(Duration::ZERO, |now| unsent.go(now, 0, Publish::SeqCst)) {
                    Err(failed) if !sender.drops(&failed.error) => failed,
                    done => {
                        registration.end_stall();
                        registration.end();
                        return Poll::Ready(Ok(done.unwrap_or(Outcome::Dropped)));
                    }
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
                return Poll::Ready(Err(SendError::new(error, failed.unsent.unsent())));
            }
            *payload = Some(failed.unsent);
            let has_room = full && sender.has_moved();
            if !has_room && !sender.link.domain.has_news() {
                return Poll::Pending;
            }
            sender.link.domain.catch_up();
        }
    }
}

impl<P: Payload> Drop for Sending<'_, P> {
    fn drop(&mut self) {
        self.registration.end_stall();
        self.registration.end();
        let unsent = self.payload.take().and_then(|kept| kept.into_message(0));
        self.sender.unsent = unsent.map(Box::new);
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
