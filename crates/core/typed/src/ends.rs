//! The two ends of a channel that carries messages of one type.

use crate::layout::Layout;
use crate::message::{Items, Message};
use crate::value::{Draft, Value};
use std::marker::PhantomData;
use std::time::Duration;
use tranship_core::ends::{End, Role, Sealed};
use tranship_core::{
    self as core, Body, Buffer, BufferMut, ChannelOptions, Error, INLINE_BYTES, Inline, Outcome,
    SendError,
};
use zerocopy::FromBytes;

/// Sends messages of the type `M`, with the items `T` behind each: nothing, or `[T]`, any number of them.
///
/// The sender opens as every channel's end does. Its receiver must have the same type: [`ChannelOptions::message_type`]
/// describes what happens otherwise.
///
/// ```
/// # extern crate tranship_typed as typed;
/// # mod tranship { pub use tranship_core::*; pub use tranship_typed as typed; }
/// use tranship::Domain;
/// use tranship::typed::{Message, Receiver, Sender};
/// use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// # #[message(crate = typed)]
/// #[repr(C)]
/// struct Frame {
///     taken_ns: u64,
///     width: u32,
///     height: u32,
/// }
///
/// let domain = Domain::embedded()?;
/// let listener = domain.listen::<Receiver<Frame, [u8]>>("local:video")?;
/// let mut sender = domain.open::<Sender<Frame, [u8]>>("local:video")?;
/// let mut receiver = listener.accept()?;
///
/// let mut frame = sender.alloc(640 * 480)?; // a frame and its pixels, in one buffer
/// frame.write(&Frame { taken_ns: 0, width: 640, height: 480 })?;
/// frame.items_mut()?[0] = 7;
/// sender.send(frame)?;
///
/// let frame = receiver.recv()?;
/// assert_eq!((frame.read()?.width, frame.len(), frame.item(0)?), (640, 640 * 480, 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender<M, T: Items + ?Sized = ()> {
    end: core::Sender,
    kind: PhantomData<fn() -> (M, *const T)>,
}

/// Receives messages of the type `M`, with the items `T` behind each. See [`Sender`].
pub struct Receiver<M, T: Items + ?Sized = ()> {
    end: core::Receiver,
    /// Error of a message that was not an `M`. The receiver takes no messages after it.
    over: Option<Error>,
    kind: PhantomData<fn() -> (M, *const T)>,
}

/// Shows a typed end as its field without a type.
macro_rules! shows {
    ($($type:ident: $field:ident),+) => {$(
        impl<M, T: $crate::message::Items + ?Sized> std::fmt::Debug for $type<M, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.$field.fmt(f)
            }
        }
    )+};
}
#[cfg(any(feature = "queue", feature = "topic"))]
pub(crate) use shows;
shows!(Sender: end, Receiver: end);

impl<M: Message, T: Items + ?Sized> Sender<M, T> {
    /// Returns the layout of the channel's messages: of the struct and of the items behind it.
    pub fn layout() -> Layout {
        T::behind::<M>()
    }
}

fn asks<M: Message, T: Items + ?Sized>(options: ChannelOptions) -> ChannelOptions {
    options.message_type(&T::behind::<M>().to_string())
}

impl<M: Message, T: Items + ?Sized> Sealed for Sender<M, T> {
    const ROLE: Role = Role::Source;

    fn asks(options: ChannelOptions) -> ChannelOptions {
        asks::<M, T>(options)
    }

    fn of(end: End) -> Result<Self, Error> {
        Ok(Sender {
            end: core::Sender::of(end)?,
            kind: PhantomData,
        })
    }
}

impl<M: Message, T: Items + ?Sized> Sealed for Receiver<M, T> {
    const ROLE: Role = Role::Sink;

    fn asks(options: ChannelOptions) -> ChannelOptions {
        asks::<M, T>(options)
    }

    fn of(end: End) -> Result<Self, Error> {
        Ok(Receiver {
            end: core::Receiver::of(end)?,
            over: None,
            kind: PhantomData,
        })
    }
}

/// Allocates memory for a message that is too long for a line.
#[doc(hidden)]
pub type Alloc<'a> = &'a mut dyn FnMut(usize) -> Result<BufferMut, Error>;

/// The form in which a message is sent.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "no program sees one")]
pub enum Ready {
    /// Copied into the line itself.
    Copied(Inline),
    Given(BufferMut),
    Shared(Buffer),
}

/// Payloads of a [`Sender`].
///
/// | payload | what happens | a failed send gives back |
/// |---|---|---|
/// | `&M` | It is copied, into the line itself if it has at most [`INLINE_BYTES`]. For channels without items. | `()` |
/// | [`Draft`] | It is given away. | the draft |
/// | [`Value`] | It is sent on as it came, or shared if it was frozen here. | the value |
/// | `(payload, u64)` | The word arrives with the message. | the pair |
pub trait Sendable<M, T: Items + ?Sized>: Sized {
    /// Content that a failed send gives back.
    type Unsent;

    #[doc(hidden)]
    fn ready(self, alloc: Alloc<'_>) -> Result<(Ready, u64), SendError<Self::Unsent>>;

    #[doc(hidden)]
    fn unsent(ready: Ready, word: u64) -> Self::Unsent;
}

impl<M: Message> Sendable<M, ()> for &M {
    type Unsent = ();

    fn ready(self, alloc: Alloc<'_>) -> Result<(Ready, u64), SendError<()>> {
        // A line's bytes lie at a multiple of 8.
        if size_of::<M>() <= INLINE_BYTES
            && align_of::<M>() <= 8
            && let Ok(inline) = Inline::try_from(self.as_bytes())
        {
            return Ok((Ready::Copied(inline), 0));
        }
        let filled = alloc(size_of::<M>()).and_then(|mut buffer| {
            buffer.write(0, self.as_bytes())?;
            Ok(buffer)
        });
        match filled {
            Ok(buffer) => Ok((Ready::Given(buffer), 0)),
            Err(error) => Err(SendError::new(error, ())),
        }
    }

    fn unsent(_: Ready, _: u64) {}
}

impl<M: Message, T: Items + ?Sized> Sendable<M, T> for Draft<M, T> {
    type Unsent = Draft<M, T>;

    fn ready(self, _: Alloc<'_>) -> Result<(Ready, u64), SendError<Self>> {
        Ok((Ready::Given(self.buffer), 0))
    }

    fn unsent(ready: Ready, _: u64) -> Self {
        match ready {
            Ready::Given(buffer) => Draft::of(buffer),
            Ready::Copied(_) | Ready::Shared(_) => unreachable!("a draft is given away"),
        }
    }
}

impl<M: Message, T: Items + ?Sized> Sendable<M, T> for Value<M, T> {
    type Unsent = Value<M, T>;

    fn ready(self, _: Alloc<'_>) -> Result<(Ready, u64), SendError<Self>> {
        let core::Message { word, body } = self.message;
        match body {
            Body::Inline(inline) => Ok((Ready::Copied(inline), word)),
            Body::Buffer(buffer) => Ok((Ready::Shared(buffer), word)),
            Body::BufferMut(buffer) => Ok((Ready::Given(buffer), word)),
            Body::Aggregate(_) | Body::AggregateMut(_) | Body::Released(_) => {
                unreachable!("a value lies in one buffer")
            }
        }
    }

    fn unsent(ready: Ready, word: u64) -> Self {
        let body = match ready {
            Ready::Copied(inline) => Body::Inline(inline),
            Ready::Given(buffer) => Body::BufferMut(buffer),
            Ready::Shared(buffer) => Body::Buffer(buffer),
        };
        Value::of(core::Message { word, body })
    }
}

impl<M, T: Items + ?Sized, P: Sendable<M, T>> Sendable<M, T> for (P, u64) {
    type Unsent = (P::Unsent, u64);

    fn ready(self, alloc: Alloc<'_>) -> Result<(Ready, u64), SendError<Self::Unsent>> {
        let (payload, word) = self;
        match payload.ready(alloc) {
            Ok((ready, _)) => Ok((ready, word)),
            Err(failed) => Err(failed.map(|unsent| (unsent, word))),
        }
    }

    fn unsent(ready: Ready, word: u64) -> Self::Unsent {
        (P::unsent(ready, word), word)
    }
}

/// Writes one form of a send for each variant of [`Ready`].
macro_rules! go {
    ($self:ident, $payload:ident, |$end:ident, $what:ident| $send:expr) => {{
        let $end = &mut $self.end;
        let (ready, word) = $payload.ready(&mut |len| $end.alloc(len))?;
        let unsent = |ready, word| P::unsent(ready, word);
        match ready {
            Ready::Copied(inline) => {
                let $what = (&*inline, word);
                $send.map_err(|e| e.map(|_| unsent(Ready::Copied(inline), word)))
            }
            Ready::Given(buffer) => {
                let $what = (buffer, word);
                $send.map_err(|e| e.map(|(buffer, word)| unsent(Ready::Given(buffer), word)))
            }
            Ready::Shared(buffer) => {
                let $what = (buffer, word);
                $send.map_err(|e| e.map(|(buffer, word)| unsent(Ready::Shared(buffer), word)))
            }
        }
    }};
}

impl<M: Message, T: Items + ?Sized> Sender<M, T> {
    fn new_draft(&mut self, items: usize) -> Result<Draft<M, T>, Error> {
        Draft::new(items, |bytes| self.end.alloc(bytes))
    }

    /// Sends a message. It waits as [`Sender::send`](tranship_core::Sender::send) does.
    ///
    /// # Errors
    /// As [`Sender::send`](tranship_core::Sender::send). For a message that is copied into a buffer, also as
    /// [`Sender::alloc`](tranship_core::Sender::alloc).
    pub fn send<P: Sendable<M, T>>(&mut self, payload: P) -> Result<Outcome, SendError<P::Unsent>> {
        go!(self, payload, |end, what| end.send(what))
    }

    /// Sends a message without waiting for the receiver.
    ///
    /// # Errors
    /// As [`send`](Sender::send), and `Full`, `PoolPending`.
    pub fn try_send<P: Sendable<M, T>>(
        &mut self,
        payload: P,
    ) -> Result<Outcome, SendError<P::Unsent>> {
        go!(self, payload, |end, what| end.try_send(what))
    }

    /// Sends a message, or fails after `timeout`.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send), after `timeout`.
    pub fn send_timeout<P: Sendable<M, T>>(
        &mut self,
        payload: P,
        timeout: Duration,
    ) -> Result<Outcome, SendError<P::Unsent>> {
        go!(self, payload, |end, what| end.send_timeout(what, timeout))
    }

    /// Sends a message without blocking the thread, in any runtime.
    ///
    /// # Errors
    /// As [`send`](Sender::send), and `System` as for [`Sender::send_async`](tranship_core::Sender::send_async).
    pub async fn send_async<P: Sendable<M, T>>(
        &mut self,
        payload: P,
    ) -> Result<Outcome, SendError<P::Unsent>> {
        go!(self, payload, |end, what| end.send_async(what).await)
    }

    /// Returns the channel's end without its type, for waiting on several channels
    /// ([`PollItem`](tranship_core::PollItem)) and for its status. A payload that is sent through it is not checked
    /// here. The receiver ends the channel if the payload is not a message.
    pub fn untyped(&mut self) -> &mut core::Sender {
        &mut self.end
    }
}

impl<M: Message + FromBytes> Sender<M, ()> {
    /// Allocates a message from the channel's own pool, to be written where it will be read.
    ///
    /// # Errors
    /// As [`Sender::alloc`](tranship_core::Sender::alloc).
    pub fn alloc(&mut self) -> Result<Draft<M, ()>, Error> {
        self.new_draft(0)
    }
}

impl<M: Message + FromBytes, T: Message + FromBytes> Sender<M, [T]> {
    /// Allocates a message with `items` items from the channel's own pool, to be written where it will be read.
    ///
    /// # Errors
    /// As [`Sender::alloc`](tranship_core::Sender::alloc).
    pub fn alloc(&mut self, items: usize) -> Result<Draft<M, [T]>, Error> {
        self.new_draft(items)
    }
}

impl<M: Message, T: Items + ?Sized> Receiver<M, T> {
    /// Takes a received message, and ends the channel if its bytes are not an `M`.
    fn take(&mut self, message: core::Message) -> Result<Value<M, T>, Error> {
        Value::checked(message).inspect_err(|error| self.over = Some(error.clone()))
    }

    fn look(&self) -> Result<(), Error> {
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Receives the next message. It waits as [`Receiver::recv`](tranship_core::Receiver::recv) does.
    ///
    /// # Errors
    /// As [`Receiver::recv`](tranship_core::Receiver::recv). `PeerViolation`, from then on in every call, if no message
    /// of this type has the length.
    pub fn recv(&mut self) -> Result<Value<M, T>, Error> {
        self.look()?;
        let message = self.end.recv()?;
        self.take(message)
    }

    /// Receives the next message, if one is there.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv).
    pub fn try_recv(&mut self) -> Result<Option<Value<M, T>>, Error> {
        self.look()?;
        let message = self.end.try_recv()?;
        message.map(|message| self.take(message)).transpose()
    }

    /// Receives the next message, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Value<M, T>, Error> {
        self.look()?;
        let message = self.end.recv_timeout(timeout)?;
        self.take(message)
    }

    /// Receives the next message without blocking the thread, in any runtime.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv), and `System` as for [`Receiver::recv_async`](tranship_core::Receiver::recv_async).
    pub async fn recv_async(&mut self) -> Result<Value<M, T>, Error> {
        self.look()?;
        let message = self.end.recv_async().await?;
        self.take(message)
    }

    /// Returns the channel's end without its type, for waiting on several channels
    /// ([`PollItem`](tranship_core::PollItem)), for trusting the writer, and for sending something back.
    pub fn untyped(&mut self) -> &mut core::Receiver {
        &mut self.end
    }
}
