//! Payloads that a receiver sends back: the type decides what happens.

use super::inline;
use super::inline::Inline;
use super::message::{Body, Name};
use super::payload::sealed;
use super::receiver::Receiver;
use crate::aggregate::Aggregate;
use crate::aggregate_mut::AggregateMut;
use crate::buffer::{Buffer, BufferMut};
use crate::error::SendError;
use tranship_ring::INLINE_BYTES;

/// Payloads of [`Receiver::send_back`](crate::Receiver::send_back). The type says what happens.
///
/// | payload | what happens | a failed call gives back |
/// |---|---|---|
/// | [`BufferMut`] | It is handed back to the pool's writer. | the buffer |
/// | [`Buffer`] | If it was given to this receiver, the handle that arrived hands it back. Clones cannot, nor what was shared. | the buffer |
/// | [`Released`] | It is released, and the sender gets [`Body::Released`](crate::Body::Released). | what was to be released |
/// | `&[u8; N]`, `&[u8]` | At most [`INLINE_BYTES`](crate::INLINE_BYTES) bytes are copied into the line. The length of an array is checked when the program is compiled. | `()` |
/// | `(payload, u64)` | The word arrives with the message. | the pair |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent back over a channel",
    note = "what was given away is handed back, `Released(x)` is let go of, `&[u8]` is copied into the line, `(payload, word)` has a word with it"
)]
pub trait PayloadBack: sealed::Sealed + Sized + Send + Unpin {
    /// Content that a failed call gives back.
    type Unsent: Send + Unpin;

    #[doc(hidden)]
    fn go_back(self, over: &mut Receiver, word: u64) -> Result<(), SendError<Self>>;

    #[doc(hidden)]
    fn unsent_back(self) -> Self::Unsent;
}

/// A payload that came by a channel and that its receiver releases: the sender is told
/// ([`Receiver::send_back`](crate::Receiver::send_back)).
#[derive(Debug)]
pub struct Released<T>(
    /// The released payload: a buffer of either kind, an aggregate, inline bytes, or the body of a message.
    pub T,
);

/// The name and the kind of a payload that is about to be released.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "no program sees one")]
pub struct Held(pub(super) Name);

impl PayloadBack for BufferMut {
    type Unsent = BufferMut;

    #[inline(always)]
    fn go_back(self, over: &mut Receiver, word: u64) -> Result<(), SendError<BufferMut>> {
        over.hand_back(self, word)
    }

    #[inline(always)]
    fn unsent_back(self) -> BufferMut {
        self
    }
}

impl PayloadBack for Buffer {
    type Unsent = Buffer;

    #[inline(always)]
    fn go_back(self, over: &mut Receiver, word: u64) -> Result<(), SendError<Buffer>> {
        over.hand_back_shared(self, word)
    }

    #[inline(always)]
    fn unsent_back(self) -> Buffer {
        self
    }
}

impl PayloadBack for &[u8] {
    type Unsent = ();

    fn go_back(self, over: &mut Receiver, word: u64) -> Result<(), SendError<Self>> {
        if self.len() > INLINE_BYTES {
            return Err(SendError::new(inline::too_long(self), self));
        }
        over.say(self, word)
            .map_err(|error| SendError::new(error, self))
    }

    fn unsent_back(self) {}
}

impl<const N: usize> PayloadBack for &[u8; N] {
    type Unsent = ();

    fn go_back(self, over: &mut Receiver, word: u64) -> Result<(), SendError<Self>> {
        const {
            assert!(
                N <= INLINE_BYTES,
                "more bytes than a line holds: put them into a buffer"
            )
        };
        over.say(self, word)
            .map_err(|error| SendError::new(error, self))
    }

    fn unsent_back(self) {}
}

impl<T> sealed::Sealed for Released<T> {}
impl<T> sealed::Single for Released<T> {}
impl<T: Releasable> PayloadBack for Released<T> {
    type Unsent = T;

    fn go_back(self, over: &mut Receiver, word: u64) -> Result<(), SendError<Self>> {
        let Held(name) = self.0.held();
        over.release(name, self, word)
    }

    fn unsent_back(self) -> T {
        self.0
    }
}

impl<P: PayloadBack + sealed::Single> PayloadBack for (P, u64) {
    type Unsent = (P::Unsent, u64);

    #[inline(always)]
    fn go_back(self, over: &mut Receiver, _: u64) -> Result<(), SendError<Self>> {
        let (payload, word) = self;
        payload
            .go_back(over, word)
            .map_err(|failed| failed.map(|payload| (payload, word)))
    }

    #[inline(always)]
    fn unsent_back(self) -> (P::Unsent, u64) {
        (self.0.unsent_back(), self.1)
    }
}

/// Content of a [`Released`]: anything that a [`Body`] has.
pub trait Releasable: Send + Unpin {
    #[doc(hidden)]
    fn held(&self) -> Held;
}

impl Releasable for Buffer {
    fn held(&self) -> Held {
        Held(Name::Buffer(self.handle()))
    }
}

impl Releasable for BufferMut {
    fn held(&self) -> Held {
        Held(Name::Buffer(self.handle()))
    }
}

impl Releasable for Aggregate {
    fn held(&self) -> Held {
        Held(Name::None)
    }
}

impl Releasable for AggregateMut {
    fn held(&self) -> Held {
        Held(Name::None)
    }
}

impl Releasable for Inline {
    fn held(&self) -> Held {
        Held(Name::None)
    }
}

impl Releasable for Body {
    fn held(&self) -> Held {
        match self {
            Body::Buffer(buf) => buf.held(),
            Body::BufferMut(buf) => buf.held(),
            Body::Inline(_) | Body::Aggregate(_) | Body::AggregateMut(_) => Held(Name::None),
            Body::Released(_) => Held(Name::Gone),
        }
    }
}
