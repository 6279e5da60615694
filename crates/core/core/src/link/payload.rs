//! Payloads that a sender sends: the type decides what happens.

use super::inline;
use super::inline::Inline;
use super::message::{Body, Message};
use super::sender::Sender;
use crate::aggregate::Aggregate;
use crate::aggregate_mut::AggregateMut;
use crate::buffer::{Buffer, BufferMut};
use crate::error::{Error, ErrorKind, SendError};
use crate::options::Outcome;
use tranship_ring::{INLINE_BYTES, Publish};

/// Payloads of [`Sender::send`](crate::Sender::send). The type says what happens.
///
/// | payload | what happens | a failed send gives back |
/// |---|---|---|
/// | [`Buffer`] | It is shared: clones of it may stay here. | the buffer |
/// | [`BufferMut`] | It is given away. | the buffer |
/// | [`Aggregate`], [`AggregateMut`] | All pieces go as one message, shared or given away. | the aggregate |
/// | `&[u8; N]`, `&[u8]` | At most [`INLINE_BYTES`](crate::INLINE_BYTES) bytes are copied into the line. The length of an array is checked when the program is compiled. | `()` |
/// | [`Body`] | What a message carried goes on, each kind as above. [`Body::Released`] is `BadArgument`. | the body |
/// | `(payload, u64)` | The word arrives with the message. | the pair |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent over a channel",
    note = "a `Buffer` is shared, a `BufferMut` is given away, `&[u8]` is copied into the line, `(payload, word)` has a word with it"
)]
pub trait Payload: sealed::Sealed + Sized + Send + Unpin {
    /// Content that a failed send gives back.
    type Unsent: Send + Unpin;

    #[doc(hidden)]
    fn go(self, over: &mut Sender, word: u64, how: Publish) -> Result<Outcome, SendError<Self>>;

    #[doc(hidden)]
    fn unsent(self) -> Self::Unsent;

    /// Returns the message as it would arrive. An abandoned send keeps it.
    #[doc(hidden)]
    fn into_message(self, word: u64) -> Option<Message>;
}

pub(super) mod sealed {
    /// No other crate adds a payload.
    pub trait Sealed {}
    /// Every payload but a pair: no word goes with a pair.
    pub trait Single {}
}

/// Payloads that a failed send gives back as they are.
macro_rules! whole {
    ($type:ident, $send:ident) => {
        impl sealed::Sealed for $type {}
        impl sealed::Single for $type {}
        impl Payload for $type {
            type Unsent = $type;

            #[inline(always)]
            fn go(
                self,
                over: &mut Sender,
                word: u64,
                how: Publish,
            ) -> Result<Outcome, SendError<$type>> {
                over.$send(self, word, how)
            }

            #[inline(always)]
            fn unsent(self) -> $type {
                self
            }

            fn into_message(self, word: u64) -> Option<Message> {
                let body = Body::$type(self);
                Some(Message { word, body })
            }
        }
    };
}

whole!(Buffer, share);
whole!(BufferMut, give);
whole!(Aggregate, share_all);
whole!(AggregateMut, give_all);

impl sealed::Sealed for Body {}
impl sealed::Single for Body {}
impl Payload for Body {
    type Unsent = Body;

    #[inline(always)]
    fn go(self, over: &mut Sender, word: u64, how: Publish) -> Result<Outcome, SendError<Body>> {
        fn body<T: Into<Body>>(failed: SendError<T>) -> SendError<Body> {
            failed.map(Into::into)
        }
        match self {
            Body::Buffer(buf) => over.share(buf, word, how).map_err(body),
            Body::BufferMut(buf) => over.give(buf, word, how).map_err(body),
            Body::Aggregate(all) => over.share_all(all, word, how).map_err(body),
            Body::AggregateMut(all) => over.give_all(all, word, how).map_err(body),
            Body::Inline(bytes) => over
                .copy_in(&bytes, word, how)
                .map_err(|error| SendError::new(error, Body::Inline(bytes))),
            Body::Released(_) => Err(SendError::new(not_to_send(), self)),
        }
    }

    fn unsent(self) -> Body {
        self
    }

    fn into_message(self, word: u64) -> Option<Message> {
        Some(Message { word, body: self })
    }
}

#[cold]
fn not_to_send() -> Error {
    let text = "word of a release (Body::Released) is not to be sent: send a buffer or bytes";
    Error::new(ErrorKind::BadArgument, text)
}

impl sealed::Sealed for &[u8] {}
impl sealed::Single for &[u8] {}
impl Payload for &[u8] {
    type Unsent = ();

    #[inline(always)]
    fn go(self, over: &mut Sender, word: u64, how: Publish) -> Result<Outcome, SendError<Self>> {
        if self.len() > INLINE_BYTES {
            return Err(SendError::new(inline::too_long(self), self));
        }
        over.copy_in(self, word, how)
            .map_err(|error| SendError::new(error, self))
    }

    fn unsent(self) {}

    fn into_message(self, word: u64) -> Option<Message> {
        let body = Body::Inline(Inline::try_from(self).ok()?);
        Some(Message { word, body })
    }
}

impl<const N: usize> sealed::Sealed for &[u8; N] {}
impl<const N: usize> sealed::Single for &[u8; N] {}
impl<const N: usize> Payload for &[u8; N] {
    type Unsent = ();

    #[inline(always)]
    fn go(self, over: &mut Sender, word: u64, how: Publish) -> Result<Outcome, SendError<Self>> {
        const {
            assert!(
                N <= INLINE_BYTES,
                "more bytes than a line holds: put them into a buffer"
            )
        };
        over.copy_in(self, word, how)
            .map_err(|error| SendError::new(error, self))
    }

    fn unsent(self) {}

    fn into_message(self, word: u64) -> Option<Message> {
        self.as_slice().into_message(word)
    }
}

impl<P> sealed::Sealed for (P, u64) {}
impl<P: Payload + sealed::Single> Payload for (P, u64) {
    type Unsent = (P::Unsent, u64);

    #[inline(always)]
    fn go(self, over: &mut Sender, _: u64, how: Publish) -> Result<Outcome, SendError<Self>> {
        let (payload, word) = self;
        payload
            .go(over, word, how)
            .map_err(|failed| failed.map(|payload| (payload, word)))
    }

    #[inline(always)]
    fn unsent(self) -> (P::Unsent, u64) {
        (self.0.unsent(), self.1)
    }

    fn into_message(self, _: u64) -> Option<Message> {
        self.0.into_message(self.1)
    }
}
