//! Arguments and results of methods: values by their bytes, buffers by reference.

use crate::message::{Items, Message};
use crate::value::Value;
use std::collections::VecDeque;
use std::fmt::Write;
use tranship_core::{
    self as core, Aggregate, Body, Buffer, BufferMut, Error, ErrorKind, INLINE_BYTES,
};
use zerocopy::IntoBytes;

/// The most bytes that are copied for a call's arguments, or for its result: for values, texts and slices.
const MOST_COPIED: usize = 1 << 20;

/// A call's arguments, or its result, on the way: bytes that are copied, and buffers that go by reference.
#[derive(Debug, Default)]
pub struct Parcel {
    bytes: Vec<u8>,
    /// The number of bytes that were taken out.
    taken: usize,
    buffers: VecDeque<Buffer>,
}

/// A parcel as a channel carries it.
pub(crate) enum Packed {
    Inline(Vec<u8>),
    Buffer(Buffer),
    Aggregate(Aggregate),
}

/// A type that a method can take or give.
///
/// | type | how it goes |
/// |---|---|
/// | a [`Message`] | its bytes are copied |
/// | `Vec<T>` of messages, `String`; as arguments also `&[T]`, `&str` | copied; all of a call together at most 1 MiB |
/// | [`Buffer`] | by reference |
/// | [`Value<M, [T]>`](Value) | by reference: a struct and items in one buffer |
pub trait Pass: Sized {
    /// The number of buffers that go by reference.
    #[doc(hidden)]
    const BUFFERS: usize = 0;
    /// Whether bytes are copied.
    #[doc(hidden)]
    const BYTES: bool = true;

    /// Adds this type's lines to the text that both sides compare.
    #[doc(hidden)]
    fn describe(place: &str, text: &mut String);

    #[doc(hidden)]
    fn put(self, into: &mut Parcel) -> Result<(), Error>;

    #[doc(hidden)]
    fn take(from: &mut Parcel) -> Result<Self, Error>;
}

impl<M: Message> Pass for M {
    const BYTES: bool = size_of::<M>() > 0;

    fn describe(place: &str, text: &mut String) {
        lines(place, &M::layout().to_string(), text);
    }

    fn put(self, into: &mut Parcel) -> Result<(), Error> {
        into.copy(self.as_bytes())
    }

    fn take(from: &mut Parcel) -> Result<M, Error> {
        let read = M::try_read_from_bytes(from.bytes(size_of::<M>())?);
        read.map_err(|_: zerocopy::TryReadError<&[u8], M>| no_value(M::layout().name()))
    }
}

impl<T: Message> Pass for Vec<T> {
    fn describe(place: &str, text: &mut String) {
        lines(&format!("{place}[]"), &T::layout().to_string(), text);
    }

    fn put(self, into: &mut Parcel) -> Result<(), Error> {
        (self.len() as u64).put(into)?;
        into.copy(self.as_slice().as_bytes())
    }

    fn take(from: &mut Parcel) -> Result<Vec<T>, Error> {
        const { assert!(size_of::<T>() > 0, "items have bytes") };
        let items = usize::try_from(u64::take(from)?).ok();
        let bytes = items.and_then(|items| items.checked_mul(size_of::<T>()));
        let bytes = from.bytes(bytes.unwrap_or(usize::MAX))?;
        let each = bytes.chunks_exact(size_of::<T>());
        let read: Option<Vec<T>> = each.map(|item| T::try_read_from_bytes(item).ok()).collect();
        read.ok_or_else(|| no_value(T::layout().name()))
    }
}

impl Pass for String {
    fn describe(place: &str, text: &mut String) {
        lines(place, "text", text);
    }

    fn put(self, into: &mut Parcel) -> Result<(), Error> {
        self.into_bytes().put(into)
    }

    fn take(from: &mut Parcel) -> Result<String, Error> {
        let text = String::from_utf8(Vec::take(from)?);
        text.map_err(|_: std::string::FromUtf8Error| no_value("text"))
    }
}

impl Pass for Buffer {
    const BUFFERS: usize = 1;
    const BYTES: bool = false;

    fn describe(place: &str, text: &mut String) {
        lines(place, "a buffer", text);
    }

    fn put(self, into: &mut Parcel) -> Result<(), Error> {
        into.buffers.push_back(self);
        Ok(())
    }

    fn take(from: &mut Parcel) -> Result<Buffer, Error> {
        from.buffers.pop_front().ok_or_else(|| no_value("a buffer"))
    }
}

impl<M: Message, T: Items + ?Sized> Pass for Value<M, T> {
    const BUFFERS: usize = 1;
    const BYTES: bool = false;

    fn describe(place: &str, text: &mut String) {
        lines(place, &format!("in a buffer: {}", T::behind::<M>()), text);
    }

    fn put(self, into: &mut Parcel) -> Result<(), Error> {
        let text = "the value lies in a line of a channel: copy it into a Client::draft, or a Draft of a reply";
        let buffer = self.into_message().into_buffer();
        let buffer = buffer.ok_or_else(|| Error::new(ErrorKind::BadArgument, text))?;
        buffer.put(into)
    }

    fn take(from: &mut Parcel) -> Result<Value<M, T>, Error> {
        let body = Body::Buffer(Buffer::take(from)?);
        Value::checked(core::Message { word: 0, body })
    }
}

/// Adds the lines of a layout's text: the first one behind `place`, each other one with its field's name.
fn lines(place: &str, of: &str, text: &mut String) {
    for (at, line) in of.lines().enumerate() {
        let between = if at == 0 { ": " } else { "." };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{place}{between}{line}");
    }
}

fn no_value(name: &str) -> Error {
    let text = format!("the other side passed bytes that are no value of `{name}`");
    Error::new(ErrorKind::PeerViolation, text)
}

impl Parcel {
    /// Makes an empty parcel.
    #[doc(hidden)]
    pub fn new() -> Parcel {
        Parcel::default()
    }

    fn copy(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > MOST_COPIED - self.bytes.len() {
            let text = format!(
                "{} bytes are more than a call copies ({MOST_COPIED} in all): pass a Buffer, or a Value with items",
                bytes.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes out the next `count` bytes.
    fn bytes(&mut self, count: usize) -> Result<&[u8], Error> {
        let left = &self.bytes[self.taken..];
        let Some(bytes) = left.get(..count) else {
            let text = format!("{} bytes were passed where {count} belong", left.len());
            return Err(Error::new(ErrorKind::PeerViolation, text));
        };
        self.taken += count;
        Ok(bytes)
    }

    /// Packs the parcel. `alloc` gives memory for bytes that are too many for a line.
    pub(crate) fn pack(
        self,
        alloc: impl FnOnce(usize) -> Result<BufferMut, Error>,
    ) -> Result<Packed, Error> {
        let Parcel {
            bytes, mut buffers, ..
        } = self;
        if buffers.is_empty() && bytes.len() <= INLINE_BYTES {
            return Ok(Packed::Inline(bytes));
        }
        if !bytes.is_empty() {
            let mut head = alloc(bytes.len())?;
            head.write(0, &bytes)?;
            buffers.push_front(head.freeze());
        }
        if buffers.len() == 1
            && let Some(buffer) = buffers.pop_front()
        {
            return Ok(Packed::Buffer(buffer));
        }
        let mut aggregate = Aggregate::new();
        for buffer in buffers {
            aggregate.push_back(buffer).map_err(|failed| failed.error)?;
        }
        Ok(Packed::Aggregate(aggregate))
    }

    /// Unpacks a received body. It must have `buffers` buffers, and bytes if `bytes` says so.
    pub(crate) fn unpack(body: Body, buffers: usize, bytes: bool) -> Result<Parcel, Error> {
        let mut parcel = Parcel::default();
        match body {
            Body::Inline(inline) => parcel.bytes = inline.to_vec(),
            Body::Buffer(buffer) => parcel.buffers.push_back(buffer),
            Body::BufferMut(buffer) => parcel.buffers.push_back(buffer.freeze()),
            Body::Aggregate(aggregate) => parcel.buffers.extend(aggregate.pieces().iter().cloned()),
            Body::AggregateMut(aggregate) => {
                parcel
                    .buffers
                    .extend(aggregate.freeze().pieces().iter().cloned());
            }
            Body::Released(_) => {}
        }
        let has_head = bytes && parcel.bytes.is_empty() && parcel.buffers.len() == buffers + 1;
        if has_head && let Some(head) = parcel.buffers.pop_front() {
            if head.len() > MOST_COPIED {
                let text = format!(
                    "{} bytes came; a call copies at most {MOST_COPIED}",
                    head.len()
                );
                return Err(Error::new(ErrorKind::PeerViolation, text));
            }
            parcel.bytes = head.to_vec();
        }
        if parcel.buffers.len() != buffers {
            let text = format!(
                "{} buffers came where {buffers} belong",
                parcel.buffers.len()
            );
            return Err(Error::new(ErrorKind::PeerViolation, text));
        }
        Ok(parcel)
    }

    /// Checks that all bytes were taken out. Bytes that are left belong to no argument of this definition.
    #[doc(hidden)]
    pub fn end(self) -> Result<(), Error> {
        match self.bytes.len() - self.taken {
            0 => Ok(()),
            left => {
                let text = format!("{left} bytes were passed that no argument has");
                Err(Error::new(ErrorKind::PeerViolation, text))
            }
        }
    }
}
