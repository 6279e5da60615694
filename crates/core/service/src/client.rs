//! The caller's side.

use crate::call::Call;
use crate::calls::Calls;
use crate::error::CallError;
use crate::options::{CallOptions, ServiceOptions};
use crate::workers::Workers;
use std::sync::Arc;
use std::time::Duration;
use tranship_core::{BufferMut, Domain, Error, Message, Payload, Pool, SendError};

/// A client of a [service](crate::Service). Clones share its two channels. Any thread and any task may call.
///
/// While a task awaits a call it may be the one that takes the replies of all calls of this client. A task that is not polled therefore holds up other callers: a
/// thread that mixes both has a client for each.
///
/// Crash: when the service's process ends, all calls in flight fail at once with `PeerDied`. Every later call fails with `PeerGone`, and gives its payload back. A program that wants to go on
/// makes a new client, which waits until the service is back.
#[derive(Clone, Debug)]
pub struct Client {
    to: To,
}

/// Where calls go.
#[derive(Clone, Debug)]
enum To {
    One(Arc<Calls>),
    Many(Arc<Workers>),
}

impl Client {
    pub(crate) fn new(calls: Calls) -> Client {
        let to = To::One(Arc::new(calls));
        Client { to }
    }

    /// The connection of a client of one process.
    #[cfg(test)]
    pub(crate) fn calls(&self) -> &Calls {
        match &self.to {
            To::One(calls) => calls,
            To::Many(_) => unreachable!("the name is not shared"),
        }
    }

    /// A client of a name that several processes serve, one of which is connected.
    pub(crate) fn of_many(
        domain: &Domain,
        address: &str,
        options: ServiceOptions,
        first: Calls,
    ) -> Client {
        let workers = Workers::new(domain, address, options, Arc::new(first));
        let to = To::Many(Arc::new(workers));
        Client { to }
    }

    /// The connection for the next call. One of several is kept in `chosen`.
    #[inline(always)]
    fn idle<'a>(&'a self, chosen: &'a mut Option<Arc<Calls>>) -> Result<&'a Arc<Calls>, Error> {
        match &self.to {
            To::One(calls) => Ok(calls),
            To::Many(workers) => Ok(chosen.insert(workers.idle()?)),
        }
    }

    /// Calls the service, and waits for its answer, for ever. The payload's type says what happens to it, as for [`Sender::send`](tranship_core::Sender::send).
    ///
    /// The answer's [word](Message::word) is 0.
    ///
    /// # Errors
    /// [`CallError`] says whether the request was sent. As [`Sender::send`](tranship_core::Sender::send); `PeerDied`, `PeerGone`: the service is over; and errors of the service's own.
    #[inline(always)]
    pub fn call<P: Payload>(&self, payload: P) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.call_with(payload, CallOptions::new())
    }

    /// Calls the service, and waits at most `timeout` for its answer. The deadline travels along: a worker takes no request whose time is over.
    ///
    /// # Errors
    /// As [`call`](Client::call), and `TimedOut`. The service is told that no caller waits any more.
    #[inline(always)]
    pub fn call_timeout<P: Payload>(
        &self,
        payload: P,
        timeout: Duration,
    ) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.call_with(payload, CallOptions::new().timeout(timeout))
    }

    /// Calls the service with options, and waits for its answer.
    ///
    /// # Errors
    /// As [`call_timeout`](Client::call_timeout).
    #[inline(always)]
    pub fn call_with<P: Payload>(
        &self,
        payload: P,
        options: CallOptions,
    ) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let mut chosen = None;
        let calls = match self.idle(&mut chosen) {
            Ok(calls) => calls,
            Err(error) => return Err(CallError::Unsent(SendError::new(error, payload.unsent()))),
        };
        let times = options.times();
        let call = calls
            .begin(payload, options, times)
            .map_err(CallError::Unsent)?;
        match calls.answer(call, times.map(|times| times.deadline)) {
            Ok(Some(answer)) => calls.result(Ok(answer)),
            late => {
                calls.abandon(call);
                let error = late.err();
                calls.result(Err(error.unwrap_or_else(|| calls.late_since(times))))
            }
        }
    }

    /// Calls the service, for awaiting in any runtime. A future that is dropped cancels its call.
    ///
    /// # Errors
    /// As [`call`](Client::call), and `System` as for [`Receiver::recv_async`](tranship_core::Receiver::recv_async).
    pub async fn call_async<P: Payload>(&self, payload: P) -> Result<Message, CallError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let call = self.begin_async(payload, CallOptions::new()).await;
        let answer = call.map_err(CallError::Unsent)?.wait_async().await;
        answer.map_err(|error| error.map(|never| match never {}))
    }

    /// Sends a request, and does not wait for its answer: [`Call::wait`] does. Several calls may be in flight.
    ///
    /// It waits as [`Sender::send`](tranship_core::Sender::send) does, and while half as many calls are in flight as the channels have [lines](ServiceOptions::lines). A call with streams counts as 7.
    /// An answered call counts as none.
    ///
    /// # Errors
    /// As [`Sender::send`](tranship_core::Sender::send), with the payload; `Limit`: the answers of 32,768 calls were not taken.
    #[inline(always)]
    pub fn begin<P: Payload>(&self, payload: P) -> Result<Call, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        self.begin_with(payload, CallOptions::new())
    }

    /// Sends a request with options, and does not wait for its answer.
    ///
    /// # Errors
    /// As [`begin`](Client::begin), and `TimedOut` after the options' time.
    #[inline(always)]
    pub fn begin_with<P: Payload>(
        &self,
        payload: P,
        options: CallOptions,
    ) -> Result<Call, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let mut chosen = None;
        let calls = match self.idle(&mut chosen) {
            Ok(calls) => calls,
            Err(error) => return Err(SendError::new(error, payload.unsent())),
        };
        let times = options.times();
        let id = calls.begin(payload, options, times)?;
        Ok(Call::new(Arc::clone(calls), id, times, options.streams))
    }

    /// Sends a request with options, for awaiting in any runtime. The deadline is the service's to keep: drop the future, or the call, to cancel it here.
    ///
    /// # Errors
    /// As [`begin`](Client::begin), and `System` as for [`Receiver::recv_async`](tranship_core::Receiver::recv_async).
    pub async fn begin_async<P: Payload>(
        &self,
        payload: P,
        options: CallOptions,
    ) -> Result<Call, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let mut chosen = None;
        let calls = match self.idle(&mut chosen) {
            Ok(calls) => calls,
            Err(error) => return Err(SendError::new(error, payload.unsent())),
        };
        let times = options.times();
        let id = calls.begin_async(payload, options, times).await?;
        Ok(Call::new(Arc::clone(calls), id, times, options.streams))
    }

    /// Allocates a buffer for a request, from the pool that no domain but the service's can read ([`Sender::alloc`](tranship_core::Sender::alloc)). If several processes serve the name, all of
    /// them can read the pool. It waits for memory, for ever; other callers go on meanwhile.
    ///
    /// # Errors
    /// As [`Sender::alloc`](tranship_core::Sender::alloc), and as [`Domain::create_pool`].
    pub fn alloc(&self, len: usize) -> Result<BufferMut, Error> {
        self.pool()?.alloc(len)
    }

    /// Allocates a buffer for a request as [`alloc`](Client::alloc) does, or fails with `OutOfMemory` after `timeout`.
    ///
    /// # Errors
    /// As [`alloc`](Client::alloc).
    pub fn alloc_timeout(&self, len: usize, timeout: Duration) -> Result<BufferMut, Error> {
        self.pool()?.alloc_timeout(len, timeout)
    }

    fn pool(&self) -> Result<&Pool, Error> {
        match &self.to {
            To::One(calls) => calls.pool(),
            To::Many(workers) => workers.pool(),
        }
    }

    /// Returns how many processes are connected that serve the name, and looks for further ones. It does not wait.
    pub fn workers(&self) -> usize {
        match &self.to {
            To::One(calls) => usize::from(calls.ended().is_none()),
            To::Many(workers) => workers.count(),
        }
    }

    /// Returns how many calls are in flight, those included that were cancelled and whose answer has still to come.
    pub fn in_flight(&self) -> usize {
        match &self.to {
            To::One(calls) => calls.in_flight(),
            To::Many(workers) => workers.in_flight(),
        }
    }
}
