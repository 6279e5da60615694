//! Messages of a channel.

use crate::aggregate::Aggregate;
use crate::aggregate_mut::AggregateMut;
use crate::buffer::{Buffer, BufferMut, Handle};
use crate::link::inline::Inline;
use std::io;
use tranship_proto::BufferId;

/// A received message.
///
/// ```
/// # use tranship_core as tranship;
/// # use tranship_core::{Domain, PoolOptions, Receiver, Sender};
/// use tranship::Body;
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
///
/// sender.send((pool.copy(b"a frame")?.freeze(), 60))?;
/// let message = receiver.recv()?;
/// assert_eq!((message.word, message.len()), (60, 7));
/// match message.body {
///     Body::Buffer(frame) => assert_eq!(frame.view().read::<u8>(0)?, b'a'), // read where it lies
///     other => panic!("not a shared buffer: {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Message {
    /// The sender's word, not interpreted.
    pub word: u64,
    /// The message's content.
    pub body: Body,
}

/// Content of a message.
#[derive(Debug)]
pub enum Body {
    /// Up to [`INLINE_BYTES`](crate::INLINE_BYTES) bytes, copied with the descriptor.
    Inline(Inline),
    /// A buffer, by reference: shared with its other holders.
    Buffer(Buffer),
    /// Pieces of several buffers, by reference.
    Aggregate(Aggregate),
    /// A buffer that its sender gave away, and that can be written here: its pool's level is [`Half`](crate::Trust::Half) or
    /// [`Full`](crate::Trust::Full), or its bytes were copied or carried. Others that are given away arrive as [`Buffer`](Body::Buffer).
    BufferMut(BufferMut),
    /// Several buffers that their sender gave away as one message, if all can be written here. Else they arrive as
    /// [`Aggregate`](Body::Aggregate).
    AggregateMut(AggregateMut),
    /// Only from [`Sender::recv_back`](crate::Sender::recv_back): the receiver has [released](crate::Released) something that this sender sent.
    /// The id is the buffer's where its memory is shared. A copy, a carried buffer, inline bytes and an aggregate have none.
    Released(Option<BufferId>),
}

impl Message {
    /// Returns the total length in bytes.
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Inline(inline) => inline.len(),
            Body::Buffer(buf) => buf.len(),
            Body::Aggregate(aggregate) => aggregate.len(),
            Body::BufferMut(buf) => buf.len(),
            Body::AggregateMut(all) => all.len(),
            Body::Released(_) => 0,
        }
    }
    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes all bytes, with little memory whatever length the sender names; see [`Buffer::write_to`].
    ///
    /// # Errors
    /// Errors of `to`. The call blocks as long as `to` does.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        match &self.body {
            Body::Inline(inline) => to.write_all(inline),
            Body::Buffer(buf) => buf.write_to(to),
            Body::Aggregate(aggregate) => aggregate.write_to(to),
            Body::BufferMut(buf) => buf.write_to(to),
            Body::AggregateMut(all) => all.write_to(to),
            Body::Released(_) => Ok(()),
        }
    }
    /// Returns a private copy of all bytes. Check [`len`](Message::len) first if the sender of an aggregate may be
    /// hostile ([`Aggregate::to_vec`]).
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.body {
            Body::Inline(inline) => inline.to_vec(),
            Body::Buffer(buf) => buf.to_vec(),
            Body::Aggregate(aggregate) => aggregate.to_vec(),
            Body::BufferMut(buf) => buf.to_vec(),
            Body::AggregateMut(all) => all.to_vec(),
            Body::Released(_) => Vec::new(),
        }
    }
    /// Takes the buffer out, if there is one: shared or given away.
    #[inline(always)]
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.body {
            Body::Buffer(buf) => Some(buf),
            other => frozen(other),
        }
    }
    /// Takes the buffer out, if it can be written.
    ///
    /// # Errors
    /// The message, unchanged.
    #[inline(always)]
    pub fn into_buffer_mut(self) -> Result<BufferMut, Message> {
        match self.body {
            Body::BufferMut(buf) => Ok(buf),
            body => Err(Message { body, ..self }),
        }
    }
}

impl Body {
    /// Returns another handle of the same contents; no byte of a buffer is copied. `None` for contents that have one owner: a
    /// [`BufferMut`](Body::BufferMut), an [`AggregateMut`](Body::AggregateMut).
    pub fn share(&self) -> Option<Body> {
        match self {
            Body::Inline(bytes) => Some(Body::Inline(*bytes)),
            Body::Buffer(buf) => Some(Body::Buffer(buf.clone())),
            Body::Aggregate(all) => Some(Body::Aggregate(all.clone())),
            Body::Released(id) => Some(Body::Released(*id)),
            Body::BufferMut(_) | Body::AggregateMut(_) => None,
        }
    }
}

/// A body that is not a shared buffer is taken by value, in a call of its own: if it were dropped in place, the whole message would have an address, and so
/// lie in memory on the way of a buffer, too. There it would be written word by word and moved two words at a time, and such a load waits for all older stores.
#[cold]
#[inline(never)]
fn frozen(other: Body) -> Option<Buffer> {
    match other {
        Body::BufferMut(buf) => Some(buf.freeze()),
        _ => None,
    }
}

macro_rules! bodies {
    ($($kind:ident),+) => {$(
        impl From<$kind> for Body {
            fn from(it: $kind) -> Body {
                Body::$kind(it)
            }
        }
    )+};
}

bodies!(Buffer, BufferMut, Aggregate, AggregateMut, Inline);

/// The name of something that a receiver is about to release.
pub(super) enum Name {
    Buffer(Handle),
    /// The released object has no name that both ends know.
    None,
    /// The object was released already.
    Gone,
}
