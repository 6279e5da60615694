//! Typed streams: items that a method and its caller send each other before the method's result.

use crate::answer::{Answer, came, read, with};
use crate::pass::{Packed, Parcel, Pass};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use tranship_core::Error;
use tranship_service::{Call, Client, Request};

/// The streams of a call, on the side of the method: items `In` come from the caller, items `Out` go to the caller. A
/// method is called with streams if it has an argument `&Stream<In, Out>`. It has at most one.
///
/// In each direction at most 8 items are on their way or not yet taken.
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

    /// Adds the lines of the streams to the text that both sides compare.
    #[doc(hidden)]
    pub fn describe(place: &str, text: &mut String) {
        In::describe(&format!("{place} from the caller"), text);
        Out::describe(&format!("{place} to the caller"), text);
    }

    /// Takes the caller's next item. `None`: the caller has finished. The function waits as [`Request::recv`] does.
    ///
    /// # Errors
    /// As [`Request::recv`]; `PeerViolation`: the caller sent an item that is not an `In`.
    pub fn recv(&self) -> Result<Option<In>, Error> {
        self.request.recv()?.map(read).transpose()
    }

    /// Takes the caller's next item, or fails with `TimedOut` after `timeout`. The call then goes on.
    ///
    /// # Errors
    /// As [`recv`](Stream::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<In>, Error> {
        self.request.recv_timeout(timeout)?.map(read).transpose()
    }

    /// Sends the caller an item. The function waits as [`Request::send`] does.
    ///
    /// # Errors
    /// As [`Request::send`]. For an item that is copied, also as [`Request::alloc`].
    pub fn send(&self, item: Out) -> Result<(), Error> {
        let packed = packed(item, |len| self.request.alloc(len))?;
        with!(packed, |payload| self
            .request
            .send(payload)
            .map_err(|failed| failed.error))
    }

    /// Returns whether no caller waits for the result any more. See [`Request::is_cancelled`].
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

/// A call with typed streams, on the side of the caller: items `In` go to the method, items `Out` come from it, and `R`
/// is the method's result. Dropping this value cancels the call.
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

    /// Sends the method an item. The function waits until the method has taken enough of the earlier items, but not
    /// longer than the call's deadline.
    ///
    /// # Errors
    /// As [`Call::send`]. For an item that is copied, also as [`Client::alloc`].
    pub fn send(&self, item: In) -> Result<(), Error> {
        let packed = packed(item, |len| self.client.alloc(len))?;
        with!(packed, |payload| self
            .call
            .send(payload)
            .map_err(|failed| failed.error))
    }

    /// Sends the method an item without blocking the thread, in any runtime. Only where an item is copied and its
    /// memory is not free, the thread waits.
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

    /// Tells the method that no further item comes: its [`Stream::recv`] returns `None`. The function does not wait.
    pub fn finish(&self) {
        self.call.finish();
    }

    /// Takes the method's next item. `None`: the method has ended, and [`wait`](Streaming::wait) returns its result.
    /// The function waits until the call's deadline, if the call has one.
    ///
    /// # Errors
    /// As [`Call::recv`]; `PeerViolation`: the service sent an item that is not an `Out`.
    pub fn recv(&self) -> Result<Option<Out>, Error> {
        self.call.recv()?.map(read).transpose()
    }

    /// Takes the method's next item, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Streaming::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Out>, Error> {
        self.call.recv_timeout(timeout)?.map(read).transpose()
    }

    /// Takes the method's next item without blocking the thread, in any runtime. A future that is dropped has taken no
    /// item.
    ///
    /// # Errors
    /// As [`recv`](Streaming::recv).
    pub async fn recv_async(&self) -> Result<Option<Out>, Error> {
        self.call.recv_async().await?.map(read).transpose()
    }

    /// Waits for the method's result, up to the call's deadline if it has one. Items that were not taken are dropped.
    ///
    /// # Errors
    /// As [`Call::wait`], and the method's own error.
    pub fn wait(self) -> R::Got {
        R::got(came(self.call.wait()))
    }

    /// Waits for the method's result without blocking the thread, in any runtime. Dropping the future cancels the call.
    ///
    /// # Errors
    /// As [`wait`](Streaming::wait).
    pub async fn wait_async(self) -> R::Got {
        R::got(came(self.call.wait_async().await))
    }
}
