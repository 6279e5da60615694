//! The caller's side.

use crate::call::Call;
use crate::calls::Calls;
use crate::error::CallError;
use crate::options::ServiceOptions;
use crate::word;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::{BufferMut, Error, ErrorKind, Message, Payload, Receiver, SendError, Sender};

/// A client of a [service](crate::Service). Clones share its two channels. Any thread and any task may call.
///
/// While a task awaits a call it may be the one that takes the replies of all calls of this client. A task that is not polled therefore holds up other callers: a
/// thread that mixes both has a client for each.
///
/// Crash: when the service's process ends, all calls in flight fail at once with `PeerDied`. Every later call fails with `PeerGone`, and gives its payload back. A program that wants to go on
/// makes a new client, which waits until the service is back.
#[derive(Clone, Debug)]
pub struct Client {
    calls: Arc<Calls>,
}

impl Client {
    pub(crate) fn new(
        address: &str,
        requests: Sender,
        replies: Receiver,
        options: &ServiceOptions,
    ) -> Client {
        let most = (options.lines / 2) as usize;
        let calls = Arc::new(Calls::new(address, requests, replies, most));
        Client { calls }
    }

    /// Calls the service, and waits for its answer, for ever. The payload's type says what happens to it, as for [`Sender::send`].
    ///
    /// The answer's [word](Message::word) is 0.
    ///
    /// # Errors
    /// [`CallError`] says whether the request was sent. As [`Sender::send`]; `PeerDied`, `PeerGone`: the service is over; and errors of the service's own.
    pub fn call<P: Payload>(&self, payload: P) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let call = self.begin_by(payload, None, None)?;
        call.wait()
            .map_err(|error| error.map(|never| match never {}))
    }

    /// Calls the service, and waits at most `timeout` for its answer. The deadline travels along: a worker takes no request whose time is over.
    ///
    /// # Errors
    /// As [`call`](Client::call), and `TimedOut`. The service is told that no caller waits any more.
    pub fn call_timeout<P: Payload>(
        &self,
        payload: P,
        timeout: Duration,
    ) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let started = Instant::now();
        let deadline = started.checked_add(timeout);
        let call = self.begin_by(payload, deadline, Some(timeout))?;
        let answer = match self.calls.answer(call.id(), deadline) {
            // Dropping the call cancels it.
            Ok(None) => return Err(CallError::Broken(self.calls.late(started))),
            Ok(Some(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        call.end(answer)
            .map_err(|error| error.map(|never| match never {}))
    }

    /// Calls the service, for awaiting in any runtime. A future that is dropped cancels its call.
    ///
    /// # Errors
    /// As [`call`](Client::call), and `System` as for [`Receiver::recv_async`].
    pub async fn call_async<P: Payload>(&self, payload: P) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let calls = &self.calls;
        let (id, turn) = match calls.begin_async().await {
            Ok(begun) => begun,
            Err(error) => return Err(CallError::Unsent(SendError::new(error, payload.unsent()))),
        };
        let sent = turn.send_async((payload, word::request(id, None))).await;
        calls.sent(id, sent).map_err(CallError::Unsent)?;
        let call = Call::new(Arc::clone(calls), id);
        let answer = calls.answer_async(id).await;
        call.end(answer)
            .map_err(|error| error.map(|never| match never {}))
    }

    /// Sends a request, and does not wait for its answer: [`Call::wait`] does. Several calls may be in flight.
    ///
    /// It waits as [`Sender::send`] does, and while half as many calls are in flight as the channels have [lines](ServiceOptions::lines).
    ///
    /// # Errors
    /// As [`Sender::send`], with the payload.
    pub fn begin<P: Payload>(&self, payload: P) -> Result<Call, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.begin_by(payload, None, None)
            .map_err(|failed| match failed {
                CallError::Unsent(failed) => failed,
                CallError::Failed(_) | CallError::Broken(_) => unreachable!("nothing was sent"),
            })
    }

    fn begin_by<P: Payload>(
        &self,
        payload: P,
        deadline: Option<Instant>,
        timeout: Option<Duration>,
    ) -> Result<Call, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let calls = &self.calls;
        let unsent = |error, payload: P| CallError::Unsent(SendError::new(error, payload.unsent()));
        let (id, mut requests) = match calls.begin(deadline) {
            Ok(Some(begun)) => begun,
            Ok(None) => {
                let waited = timeout.unwrap_or_default().as_millis();
                let text = format!(
                    "{} has taken no further request in {waited} ms: {} calls are in flight",
                    calls.place(),
                    calls.in_flight()
                );
                return Err(unsent(Error::new(ErrorKind::TimedOut, text), payload));
            }
            Err(error) => return Err(unsent(error, payload)),
        };
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let message = (payload, word::request(id, left));
        let sent = match left {
            Some(left) => requests.send_timeout(message, left),
            None => requests.send(message),
        };
        calls.give_back(requests);
        calls.sent(id, sent.map(drop)).map_err(CallError::Unsent)?;
        Ok(Call::new(Arc::clone(calls), id))
    }

    /// Allocates a buffer for a request, from the pool that no domain but the service's can read ([`Sender::alloc`]).
    ///
    /// # Errors
    /// As [`Sender::alloc`].
    pub fn alloc(&self, len: usize) -> Result<BufferMut, Error> {
        let mut requests = self.calls.sender()?;
        let allocated = requests.alloc(len);
        self.calls.give_back(requests);
        allocated
    }

    /// Returns how many calls are in flight, those included that were cancelled and whose answer has still to come.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }
}
