//! Messages in buffers: one that is being written, and one that was received.

use crate::message::{Items, Message, first};
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;
use tranship_core::error::Cause;
use tranship_core::{self as core, Body, BufferMut, Error, ErrorKind, View};
use zerocopy::{FromBytes, TryFromBytes};

/// A message that is being written, in the memory where the receiver will read it.
///
/// [`Sender::alloc`](crate::Sender::alloc) makes a draft, and [`Sender::send`](crate::Sender::send) gives it away.
pub struct Draft<M, T: Items + ?Sized = ()> {
    pub(crate) buffer: BufferMut,
    kind: PhantomData<fn() -> (M, *const T)>,
}

impl<M: Message, T: Items + ?Sized> Draft<M, T> {
    pub(crate) fn of(buffer: BufferMut) -> Draft<M, T> {
        Draft {
            buffer,
            kind: PhantomData,
        }
    }

    /// Allocates a message with `items` items.
    pub(crate) fn new(
        items: usize,
        alloc: impl FnOnce(usize) -> Result<BufferMut, Error>,
    ) -> Result<Draft<M, T>, Error> {
        let bytes = items.checked_mul(size_of::<T::Item>());
        let bytes = bytes.and_then(|bytes| bytes.checked_add(first::<M, T::Item>()));
        let Some(bytes) = bytes else {
            let text = format!("{items} items are more than can be addressed");
            return Err(Error::new(ErrorKind::TooLarge, text));
        };
        alloc(bytes).map(Draft::of)
    }

    /// Writes the message itself. The items stay as they are.
    ///
    /// # Errors
    /// As [`BufferMut::write`].
    pub fn write(&mut self, message: &M) -> Result<(), Error> {
        self.buffer.write(0, message.as_bytes())
    }

    /// Returns the message, to be written where it lies. At first it has the bytes that the memory held before.
    ///
    /// # Errors
    /// `BufferState`: other domains can write the memory, or the buffer's address is not a multiple of the type's
    /// alignment. Use [`write`](Draft::write) then.
    pub fn get_mut(&mut self) -> Result<&mut M, Error>
    where
        M: FromBytes,
    {
        let bytes = self.buffer.bytes_mut().ok_or_else(not_alone)?;
        let bytes = bytes.get_mut(..size_of::<M>());
        bytes
            .and_then(|bytes| M::mut_from_bytes(bytes).ok())
            .ok_or_else(not_alone)
    }

    /// Returns the items, to be written where they lie. At first they have the bytes that the memory held before.
    ///
    /// # Errors
    /// As [`get_mut`](Draft::get_mut).
    pub fn items_mut(&mut self) -> Result<&mut [T::Item], Error>
    where
        T::Item: FromBytes,
    {
        if size_of::<T::Item>() == 0 {
            return Ok(&mut []);
        }
        let bytes = self.buffer.bytes_mut().ok_or_else(not_alone)?;
        let bytes = bytes.get_mut(first::<M, T::Item>()..);
        bytes
            .and_then(|bytes| <[T::Item]>::mut_from_bytes(bytes).ok())
            .ok_or_else(not_alone)
    }

    /// Freezes the draft into a [`Value`]: the message can be read here, and no longer written. It can be sent over
    /// this channel only.
    pub fn freeze(self) -> Value<M, T> {
        Value::of(core::Message {
            word: 0,
            body: Body::Buffer(self.buffer.freeze()),
        })
    }
}

fn not_alone() -> Error {
    let text = "the message cannot be written in place, as other domains can write it, or its buffer is not aligned for it: use Draft::write";
    Error::new(ErrorKind::BufferState, text)
}

impl<M, T: Items + ?Sized> fmt::Debug for Draft<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Draft").field(&self.buffer).finish()
    }
}

/// Returns the bytes of a buffer if no domain can change them any more.
#[cfg(any(feature = "flatbuffers", feature = "arrow"))]
pub(crate) fn unchanging(buffer: &core::Buffer) -> Result<&[u8], Error> {
    buffer.bytes().ok_or_else(|| {
        let text = "the sender can still change the bytes, so that no check of them holds: let its pool be of level none, trust the writer, or copy them";
        Error::new(ErrorKind::BufferState, text)
    })
}

/// The received bytes are not a value of the channel's type. The sender broke the definition that it agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NoValue {
    Length { bytes: usize, name: String },
    Bytes { name: String },
    Index { index: usize, items: usize },
    Pieces { name: String },
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoValue::Length { bytes, name } => {
                write!(f, "a message of {bytes} bytes came, which no `{name}` has")
            }
            NoValue::Bytes { name } => write!(f, "bytes came that are no value of `{name}`"),
            NoValue::Index { index, items } => write!(f, "item {index} of {items}"),
            NoValue::Pieces { name } => {
                write!(f, "several pieces came: a `{name}` lies in one buffer")
            }
        }
    }
}

impl std::error::Error for NoValue {}

impl Cause for NoValue {
    fn kind(&self) -> ErrorKind {
        match self {
            NoValue::Index { .. } => ErrorKind::BadArgument,
            _ => ErrorKind::PeerViolation,
        }
    }
}

/// A message that was received or frozen: `M`, and the items `T` behind it. Dropping it lets the sender use the memory
/// again.
///
/// The sender may still be able to change the bytes. [`read`](Value::read) therefore copies the message out before it
/// checks the bytes, and [`get`](Value::get) gives a reference only where the bytes cannot change.
pub struct Value<M, T: Items + ?Sized = ()> {
    pub(crate) message: core::Message,
    kind: PhantomData<fn() -> (M, *const T)>,
}

/// Messages of at most this many bytes are copied without an allocation.
const SMALL: usize = 256;

impl<M: Message, T: Items + ?Sized> Value<M, T> {
    pub(crate) fn of(message: core::Message) -> Value<M, T> {
        Value {
            message,
            kind: PhantomData,
        }
    }

    /// Checks the length of a message, and makes the value.
    pub(crate) fn checked(message: core::Message) -> Result<Value<M, T>, Error> {
        let name = || T::behind::<M>().name().to_owned();
        match &message.body {
            Body::Inline(_) | Body::Buffer(_) | Body::BufferMut(_) => {}
            Body::Aggregate(_) | Body::AggregateMut(_) | Body::Released(_) => {
                return Err(NoValue::Pieces { name: name() }.into());
            }
        }
        let bytes = message.len();
        match T::count::<M>(bytes) {
            Some(_) => Ok(Value::of(message)),
            None => Err(NoValue::Length {
                bytes,
                name: name(),
            }
            .into()),
        }
    }

    /// Returns the sender's word.
    pub fn word(&self) -> u64 {
        self.message.word
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        T::count::<M>(self.message.len()).unwrap_or(0)
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes as they now are in the sender's memory.
    pub fn view(&self) -> View<'_> {
        match &self.message.body {
            Body::Inline(inline) => View::from(&**inline),
            Body::Buffer(buffer) => buffer.view(),
            Body::BufferMut(buffer) => buffer.view(),
            // A value never has these bodies.
            Body::Aggregate(_) | Body::AggregateMut(_) | Body::Released(_) => View::from(&[][..]),
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match &self.message.body {
            Body::Inline(inline) => Some(inline),
            Body::Buffer(buffer) => buffer.bytes(),
            Body::BufferMut(buffer) => buffer.bytes(),
            Body::Aggregate(_) | Body::AggregateMut(_) | Body::Released(_) => None,
        }
    }

    /// Copies the message out, and checks that its bytes are a value.
    ///
    /// # Errors
    /// `PeerViolation`: the bytes are not a value.
    pub fn read(&self) -> Result<M, Error> {
        self.copied(0)
    }

    /// Copies an item out, and checks that its bytes are a value.
    ///
    /// # Errors
    /// `PeerViolation`: the bytes are not a value. `BadArgument`: there is no such item.
    pub fn item(&self, index: usize) -> Result<T::Item, Error> {
        let items = self.len();
        if index >= items {
            return Err(NoValue::Index { index, items }.into());
        }
        self.copied(first::<M, T::Item>() + index * size_of::<T::Item>())
    }

    fn copied<V: Message>(&self, at: usize) -> Result<V, Error> {
        let mut copy: SmallVec<[u8; SMALL]> = SmallVec::from_elem(0, size_of::<V>());
        self.view().copy_to_slice(at, &mut copy)?;
        let read = V::try_read_from_bytes(&copy);
        read.map_err(|_: zerocopy::TryReadError<&[u8], V>| no_value::<V>())
    }

    /// Returns the message where it lies, if nobody can change its bytes
    /// ([`Buffer::bytes`](tranship_core::Buffer::bytes) lists the cases). Returns `None` too if its address is not a
    /// multiple of the type's alignment.
    ///
    /// # Errors
    /// `PeerViolation`: its bytes are not a value.
    pub fn get(&self) -> Result<Option<&M>, Error> {
        let bytes = self.bytes().and_then(|bytes| bytes.get(..size_of::<M>()));
        in_place(bytes.map(M::try_ref_from_bytes))
    }

    /// Returns the items where they lie, if nobody can change their bytes.
    ///
    /// # Errors
    /// As [`get`](Value::get).
    pub fn items(&self) -> Result<Option<&[T::Item]>, Error> {
        if size_of::<T::Item>() == 0 {
            return Ok(Some(&[]));
        }
        let bytes = self
            .bytes()
            .and_then(|bytes| bytes.get(first::<M, T::Item>()..));
        in_place(bytes.map(<[T::Item]>::try_ref_from_bytes))
    }

    /// Returns the bytes of the items, as they now are in the sender's memory.
    pub fn items_view(&self) -> View<'_> {
        let view = self.view();
        let items = view.sub(first::<M, T::Item>().min(view.len())..view.len());
        items.unwrap_or(View::from(&[][..]))
    }

    /// Takes the message out, without its type.
    pub fn into_message(self) -> core::Message {
        self.message
    }
}

/// Turns the result of a cast into a reference: `None` if the bytes are not aligned, an error if they are not a value.
fn in_place<'a, V: TryFromBytes + ?Sized>(
    tried: Option<Result<&'a V, zerocopy::TryCastError<&'a [u8], V>>>,
) -> Result<Option<&'a V>, Error> {
    match tried {
        None | Some(Err(zerocopy::ConvertError::Alignment(_))) => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(NoValue::Bytes {
            name: std::any::type_name::<V>().to_owned(),
        }
        .into()),
    }
}

fn no_value<V: Message>() -> Error {
    let name = V::layout().name().to_owned();
    NoValue::Bytes { name }.into()
}

impl<M, T: Items + ?Sized> fmt::Debug for Value<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&self.message).finish()
    }
}
