//! Typed streams: items that a method and its caller send each other before the method's result.

use crate::answer::{Answer, came, read, with};
use crate::pass::{Packed, Parcel, Pass};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use tranship_core::Error;
use tranship_service::{Call, Client, Request};

/// The items of a call, as its method has them: `In` come from the caller, `Out` go to it. A method that has an argument `&Stream<In, Out>`, one at most, is called
/// with streams.
///
/// At most 8 items of each direction are on their way, or have come and were not taken.
pub struct Stream<'a, In, Out> {
    request: &'a Request,
    kind: PhantomData<fn(Out) -> In>,
}

impl<In, Out> fmt::Debug for Stream<'_, In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(self.request).finish()
    }
}

impl<'a, In: Pass, Out: Pass> Stream<'a, In, Out> {
    #[doc(hidden)]
    pub fn of(request: &'a Request) -> Stream<'a, In, Out> {
        let kind = PhantomData;
        Stream { request, kind }
    }

    /// Adds the lines that both sides compare.
    #[doc(hidden)]
    pub fn describe(place: &str, text: &mut String) {
        In::describe(&format!("{place} from the caller"), text);
        Out::describe(&format!("{place} to the caller"), text);
    }

    /// Takes the next item of the caller's. `None`: the caller has finished. It waits as [`Request::recv`] does.
    ///
    /// # Errors
    /// As [`Request::recv`]; `PeerViolation`: the caller sent what is no `In`.
    pub fn recv(&self) -> Result<Option<In>, Error> {
        self.request.recv()?.map(read).transpose()
    }

    /// Takes the next item of the caller's, or fails with `TimedOut` after `timeout`. The call goes on then.
    ///
    /// # Errors
    /// As [`recv`](Stream::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<In>, Error> {
        self.request.recv_timeout(timeout)?.map(read).transpose()
    }

    /// Sends the caller an item. It waits as [`Request::send`] does.
    ///
    /// # Errors
    /// As [`Request::send`], and as [`Request::alloc`] for what is copied.
    pub fn send(&self, item: Out) -> Result<(), Error> {
        let packed = packed(item, |len| self.request.alloc(len))?;
        with!(packed, |payload| self
            .request
            .send(payload)
            .map_err(|failed| failed.error))
    }

    /// Whether no caller waits for the result any more: as [`Request::is_cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.request.is_cancelled()
    }
}

fn packed<P: Pass>(
    item: P,
    alloc: impl FnOnce(usize) -> Result<tranship_core::BufferMut, Error>,
) -> Result<Packed, Error> {
    let mut parcel = Parcel::new();
    item.put(&mut parcel)?;
    parcel.pack(alloc)
}

/// A call with typed streams, at its caller: `In` go to the method, `Out` come from it, and `R` is the method's result. Dropping it cancels the call.
#[must_use = "a call that is dropped is cancelled"]
pub struct Streaming<In, Out, R> {
    call: Call,
    client: Client,
    kind: PhantomData<fn(In) -> (Out, R)>,
}

impl<In, Out, R> fmt::Debug for Streaming<In, Out, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Streaming").field(&self.call).finish()
    }
}

impl<In: Pass, Out: Pass, R: Answer> Streaming<In, Out, R> {
    pub(crate) fn new(call: Call, client: Client) -> Streaming<In, Out, R> {
        let kind = PhantomData;
        Streaming { call, client, kind }
    }

    /// Sends the method an item. It waits until the method has taken enough of the earlier ones, until the call's deadline at most.
    ///
    /// # Errors
    /// As [`Call::send`], and as [`Client::alloc`] for what is copied.
    pub fn send(&self, item: In) -> Result<(), Error> {
        let packed = packed(item, |len| self.client.alloc(len))?;
        with!(packed, |payload| self
            .call
            .send(payload)
            .map_err(|failed| failed.error))
    }

    /// Sends the method an item, for awaiting in any runtime. Memory for what is copied is waited for by the thread.
    ///
    /// # Errors
    /// As [`send`](Streaming::send).
    pub async fn send_async(&self, item: In) -> Result<(), Error> {
        let packed = packed(item, |len| self.client.alloc(len))?;
        with!(packed, |payload| self
            .call
            .send_async(payload)
            .await
            .map_err(|failed| failed.error))
    }

    /// Says that no further item comes: the method's [`Stream::recv`] ends. It does not wait.
    pub fn finish(&self) {
        self.call.finish();
    }

    /// Takes the next item of the method's. `None`: the method has ended, and [`wait`](Streaming::wait) gives its result. It waits until the call's deadline, or for
    /// ever.
    ///
    /// # Errors
    /// As [`Call::recv`]; `PeerViolation`: the service sent what is no `Out`.
    pub fn recv(&self) -> Result<Option<Out>, Error> {
        self.call.recv()?.map(read).transpose()
    }

    /// Takes the next item of the method's, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Streaming::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Out>, Error> {
        self.call.recv_timeout(timeout)?.map(read).transpose()
    }

    /// Takes the next item of the method's, for awaiting in any runtime. A future that is dropped has taken none.
    ///
    /// # Errors
    /// As [`recv`](Streaming::recv).
    pub async fn recv_async(&self) -> Result<Option<Out>, Error> {
        self.call.recv_async().await?.map(read).transpose()
    }

    /// Waits for the method's result: until the call's deadline, or for ever. Items that were not taken are let go.
    ///
    /// # Errors
    /// As [`Call::wait`], and the method's own error.
    pub fn wait(self) -> R::Got {
        R::got(came(self.call.wait()))
    }

    /// Waits for the method's result, for awaiting in any runtime. Drop the future to cancel the call.
    ///
    /// # Errors
    /// As [`wait`](Streaming::wait).
    pub async fn wait_async(self) -> R::Got {
        R::got(came(self.call.wait_async().await))
    }
}
