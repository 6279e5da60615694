//! Content of a `Buffer` of Python's: its states, and the place of the bytes.

use std::mem::take;
use std::ptr::NonNull;
use tranship::{Aggregate, Body, Buffer, BufferId, BufferMut, Inline, Trust, View};

/// Content of a `Buffer`.
#[derive(Debug)]
pub(crate) enum Held {
    /// Nobody else has it.
    Own(BufferMut),
    /// Others may have it.
    Shared(Buffer),
    /// A block of a pool of level `full`, which all that have it write.
    Block(Buffer),
    /// The bytes came inside the message.
    Copy(Box<[u8]>),
    /// The bytes lie in several buffers.
    Pieces(Vec<Buffer>),
    /// No bytes: the receiver has let go of something, which had this name if the sender knows it by one.
    Word(Option<BufferId>),
    /// The buffer was given back, or away.
    Gone(&'static str),
}

/// A buffer's origin, as far as this process knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) trust: Option<Trust>,
    /// Process of the sender. `None`: the buffer was allocated here.
    pub(crate) sender_pid: Option<u32>,
}

/// Bytes that Python may look at, and write if it says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) writable: bool,
}

impl Held {
    pub(crate) fn of(body: Body) -> Held {
        let inline = |inline: &Inline| Held::Copy(Box::from(&**inline));
        match body {
            Body::Inline(bytes) => inline(&bytes),
            Body::Buffer(buf) => Held::Shared(buf),
            Body::BufferMut(buf) => Held::Own(buf),
            Body::Aggregate(all) => Held::Pieces(all.pieces().iter().cloned().collect()),
            Body::AggregateMut(all) => {
                Held::Pieces(all.freeze().pieces().iter().cloned().collect())
            }
            Body::Released(id) => Held::Word(id),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Held::Own(buf) => buf.len(),
            Held::Shared(buf) | Held::Block(buf) => buf.len(),
            Held::Copy(bytes) => bytes.len(),
            Held::Pieces(pieces) => pieces.iter().map(Buffer::len).sum(),
            Held::Word(_) | Held::Gone(_) => 0,
        }
    }

    /// Returns the place of the bytes, if they are in one place.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        let at = |ptr: *const u8, len, writable| {
            let ptr = NonNull::new(ptr.cast_mut()).unwrap_or(NonNull::dangling());
            Some(Bytes { ptr, len, writable })
        };
        match self {
            Held::Own(buf) => at(buf.view().as_ptr(), buf.len(), true),
            Held::Shared(buf) => at(buf.view().as_ptr(), buf.len(), false),
            Held::Block(buf) => at(buf.view().as_ptr(), buf.len(), true),
            Held::Copy(bytes) => at(bytes.as_ptr(), bytes.len(), false),
            Held::Word(_) => at(NonNull::dangling().as_ptr(), 0, false),
            Held::Pieces(_) | Held::Gone(_) => None,
        }
    }

    /// Returns the byte at a position, if the buffer is that long.
    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        let byte = |view: View<'_>, at| view.read::<u8>(at).ok();
        match self {
            Held::Own(buf) => byte(buf.view(), at),
            Held::Shared(buf) | Held::Block(buf) => byte(buf.view(), at),
            Held::Copy(bytes) => bytes.get(at).copied(),
            Held::Pieces(pieces) => {
                let mut at = at;
                let piece = pieces.iter().find(|piece| {
                    let here = at < piece.len();
                    at -= if here { 0 } else { piece.len() };
                    here
                });
                byte(piece?.view(), at)
            }
            Held::Word(_) | Held::Gone(_) => None,
        }
    }

    /// Cuts out the bytes between two positions, which are in order and within. Only for read-only content.
    pub(crate) fn cut(&self, start: usize, stop: usize) -> Held {
        match self {
            Held::Shared(buf) => Held::Shared(buf.slice(start..stop)),
            Held::Block(buf) => Held::Block(buf.slice(start..stop)),
            Held::Copy(bytes) => Held::Copy(bytes.get(start..stop).unwrap_or_default().into()),
            Held::Pieces(pieces) => {
                let (mut begin, mut parts) = (0, Vec::new());
                for piece in pieces {
                    let end = begin + piece.len();
                    let (from, to) = (start.clamp(begin, end), stop.clamp(begin, end));
                    if from < to {
                        parts.push(piece.slice(from - begin..to - begin));
                    }
                    begin = end;
                }
                match <[Buffer; 1]>::try_from(parts) {
                    Ok([part]) => Held::Shared(part),
                    Err(parts) => Held::Pieces(parts),
                }
            }
            Held::Own(_) | Held::Word(_) | Held::Gone(_) => Held::Copy(Box::default()),
        }
    }

    /// Returns a private copy of all bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        match self {
            Held::Own(buf) => buf.to_vec(),
            Held::Shared(buf) | Held::Block(buf) => buf.to_vec(),
            Held::Copy(bytes) => bytes.to_vec(),
            Held::Pieces(pieces) => pieces.iter().flat_map(|piece| piece.to_vec()).collect(),
            Held::Word(_) | Held::Gone(_) => Vec::new(),
        }
    }

    /// Makes it the body of a message, to be given back to its sender. `Err`: it is gone, or more than a message holds.
    pub(crate) fn into_body(self) -> Result<Body, Held> {
        match self {
            Held::Own(buf) => Ok(Body::BufferMut(buf)),
            Held::Shared(buf) | Held::Block(buf) => Ok(Body::Buffer(buf)),
            Held::Copy(bytes) => match Inline::try_from(&bytes[..]) {
                Ok(inline) => Ok(Body::Inline(inline)),
                Err(_) => Err(Held::Copy(bytes)),
            },
            Held::Pieces(pieces) => {
                let mut all = Aggregate::new();
                let pushed = pieces
                    .iter()
                    .cloned()
                    .try_for_each(|piece| all.push_back(piece));
                match pushed {
                    Ok(()) => Ok(Body::Aggregate(all)),
                    Err(_) => Err(Held::Pieces(pieces)),
                }
            }
            Held::Word(id) => Ok(Body::Released(id)),
            Held::Gone(how) => Err(Held::Gone(how)),
        }
    }

    /// Freezes it: from here on it is read-only, and may be shared.
    pub(crate) fn freeze(&mut self) {
        *self = match take(self) {
            Held::Own(buf) => Held::Shared(buf.freeze()),
            other => other,
        };
    }
}

impl Default for Held {
    fn default() -> Held {
        Held::Gone("is in use")
    }
}
