//! A call in flight.

use crate::calls::{Calls, Sending};
use crate::error::CallError;
use crate::flow;
use crate::options::Times;
use crate::word::{self, Answer, CallId};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::{Error, ErrorKind, Message, Payload, SendError};

/// A call in flight. Dropping it cancels it: the service is told that no caller waits any more.
///
/// A call that was begun [with streams](crate::CallOptions::streams) carries items either way: [`send`](Call::send) and [`finish`](Call::finish),
/// [`recv`](Call::recv). At most 8 items of a direction are on their way, or have come and were not taken: a sender of one more waits.
#[must_use = "a call that is dropped is cancelled"]
#[derive(Debug)]
pub struct Call {
    calls: Arc<Calls>,
    id: CallId,
    times: Option<Times>,
    streams: bool,
    over: bool,
}

impl Call {
    #[inline]
    pub(crate) fn new(calls: Arc<Calls>, id: CallId, times: Option<Times>, streams: bool) -> Call {
        Call {
            calls,
            id,
            times,
            streams,
            over: false,
        }
    }

    /// Waits for the answer: until the call's deadline, or for ever. Items of the service's that were not taken are let go.
    ///
    /// # Errors
    /// [`CallError::Failed`] with the service's own error; `PeerDied`, `PeerGone`: the service is over; `TimedOut`.
    #[inline(always)]
    pub fn wait(self) -> Result<Message, CallError<Infallible>> {
        match self.calls.answer(self.id, self.deadline()) {
            // Dropping the call cancels it.
            Ok(None) => Err(CallError::Broken(self.late())),
            Ok(Some(answer)) => self.end(Ok(answer)),
            Err(error) => self.end(Err(error)),
        }
    }

    /// Waits for the answer, for awaiting in any runtime. It has no deadline of its own: drop the future to cancel the call.
    ///
    /// # Errors
    /// As [`wait`](Call::wait).
    pub async fn wait_async(self) -> Result<Message, CallError<Infallible>> {
        let answer = self.calls.answer_async(self.id).await;
        self.end(answer)
    }

    /// Gives the answer, if it is there by then; else the call itself.
    ///
    /// # Errors
    /// The call, to be waited for again.
    pub fn wait_until(
        self,
        deadline: Instant,
    ) -> Result<Result<Message, CallError<Infallible>>, Call> {
        match self.calls.answer(self.id, Some(deadline)) {
            Ok(None) => Err(self),
            Ok(Some(answer)) => Ok(self.end(Ok(answer))),
            Err(error) => Ok(self.end(Err(error))),
        }
    }

    /// Sends an item to the service. It waits until the service has taken enough of the earlier ones, until the call's deadline at most.
    ///
    /// # Errors
    /// `ChannelState`: the call is over, and [`wait`](Call::wait) says how; `BadArgument`: it was begun without streams; `TimedOut`; as [`Client::begin`](crate::Client::begin).
    pub fn send<P: Payload>(&self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let turn = self.has_streams();
        let turn = turn.and_then(
            |()| match self.calls.begin_item(self.id, self.deadline())? {
                Some(turn) => self.sending(turn),
                None => Err(self.late()),
            },
        );
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let sent = match turn {
            Ok(turn) => turn.send((payload, word::item(self.id)), self.deadline().map(left)),
            Err(error) => return Err(SendError::new(error, payload.unsent())),
        };
        sent.map_err(|failed| failed.map(|(payload, _)| payload))
    }

    /// Sends an item to the service, for awaiting in any runtime.
    ///
    /// # Errors
    /// As [`send`](Call::send).
    pub async fn send_async<P: Payload>(&self, payload: P) -> Result<(), SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let turn = match self.has_streams() {
            Ok(()) => self.calls.begin_item_async(self.id).await,
            Err(error) => Err(error),
        };
        let sent = match turn.and_then(|turn| self.sending(turn)) {
            Ok(turn) => turn.send_async((payload, word::item(self.id))).await,
            Err(error) => return Err(SendError::new(error, payload.unsent())),
        };
        sent.map_err(|failed| failed.map(|(payload, _)| payload))
    }

    /// Says that no further item comes: the service's [`Request::recv`](crate::Request::recv) ends.
    pub fn finish(&self) {
        if self.streams {
            self.calls.end_items(self.id);
        }
    }

    /// Takes the next item that the service sends. `None`: the call is over, and [`wait`](Call::wait) says how. It waits until the call's deadline, or for ever.
    ///
    /// # Errors
    /// `BadArgument`: the call was begun without streams; `PeerDied`, `PeerGone`: the service is over; `TimedOut`.
    pub fn recv(&self) -> Result<Option<Message>, Error> {
        self.has_streams()?;
        let item = self.calls.item(self.id, self.deadline())?;
        item.ok_or_else(|| self.late())
    }

    /// Takes the next item that the service sends, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Call::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        let started = Instant::now();
        let by = [started.checked_add(timeout), self.deadline()];
        self.has_streams()?;
        let item = self.calls.item(self.id, by.into_iter().flatten().min())?;
        item.ok_or_else(|| self.calls.late(started))
    }

    /// Takes the next item that the service sends, for awaiting in any runtime. A future that is dropped has taken none.
    ///
    /// # Errors
    /// As [`recv`](Call::recv).
    pub async fn recv_async(&self) -> Result<Option<Message>, Error> {
        self.has_streams()?;
        self.calls.item_async(self.id).await
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.times.map(|times| times.deadline)
    }

    fn has_streams(&self) -> Result<(), Error> {
        match self.streams {
            true => Ok(()),
            false => Err(flow::none(self.id)),
        }
    }

    fn sending<'a>(&self, turn: Option<Sending<'a>>) -> Result<Sending<'a>, Error> {
        turn.ok_or_else(|| {
            let text = format!(
                "{} has answered: it takes no further item",
                self.calls.place()
            );
            Error::new(ErrorKind::ChannelState, text)
        })
    }

    fn late(&self) -> Error {
        self.calls.late_since(self.times)
    }

    #[inline(always)]
    fn end(
        mut self,
        answer: Result<(Answer, Message), Error>,
    ) -> Result<Message, CallError<Infallible>> {
        // After an error the call is cancelled.
        self.over = answer.is_ok();
        self.calls.result(answer)
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if !self.over {
            self.calls.abandon(self.id);
        }
    }
}
