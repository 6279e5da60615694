//! A buffer's bytes as carriers see them: on their way out, and the place where they arrive.

use crate::memory::Memory;
use crate::{Error, Kind};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tranship_core::{Cbuf, CbufMut};
use tranship_region::View;
use tranship_sys::stream;

/// Bytes that are copied at once to where there is no slice.
const SOME_BYTES: usize = 16 << 10;

/// A buffer's bytes on their way out: a reference to pool memory, no copy.
///
/// Until the other end has taken the frame they stay as they are by the rules of ownership: the buffer is on its way
/// itself, or is not written while copies are out. Who breaks the rules of its own pool sends what it then finds there,
/// and harms only what it sends. A carrier may read them any number of times.
#[derive(Clone, Debug)]
pub struct Payload {
    of: Of,
    at: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum Of {
    Memory(Arc<Memory>, Arc<OwnedFd>),
    Shared(Cbuf),
    Moved(Arc<CbufMut>),
}

impl From<Cbuf> for Payload {
    /// All of it.
    fn from(buf: Cbuf) -> Payload {
        let (at, len) = (0, buf.len());
        Payload {
            of: Of::Shared(buf),
            at,
            len,
        }
    }
}

impl From<CbufMut> for Payload {
    /// All of it. It is dropped when the other end has taken it.
    fn from(buf: CbufMut) -> Payload {
        let (at, len) = (0, buf.len());
        let of = Of::Moved(Arc::new(buf));
        Payload { of, at, len }
    }
}

impl Payload {
    /// None for memory that is in pieces: each of them is one by itself.
    pub(crate) fn new(memory: &Arc<Memory>, index: u32) -> Option<Payload> {
        Some(Payload {
            of: Of::Memory(Arc::clone(memory), memory.fd()?),
            at: memory.offset(index),
            len: memory.buffer_bytes(),
        })
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory file, and where in it the bytes begin: for `sendfile` and the like. None: they are not in one, or in several.
    #[must_use]
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.of {
            Of::Memory(_, file) => Some((file.as_fd(), self.at as u64)),
            Of::Shared(_) | Of::Moved(_) => None,
        }
    }

    /// The bytes, through a mapping that is readable whatever the buffer's state.
    pub fn view(&self) -> Result<View<'_>, Error> {
        let all = match &self.of {
            Of::Memory(memory, _) => memory.readable()?,
            Of::Shared(buf) => buf.view(),
            Of::Moved(buf) => buf.view(),
        };
        let piece = all.sub(self.at..self.at + self.len);
        piece.map_err(Error::of(Kind::BufferInvalid))
    }
}

/// Where a buffer's bytes go that arrive.
#[derive(Clone, Debug)]
pub struct Place {
    to: To,
    at: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum To {
    Memory(Arc<Memory>),
    Buffer(Arc<Mutex<CbufMut>>),
    /// They are here already, and what arrives is passed over.
    Nowhere,
}

impl Place {
    /// The memory of a buffer that is writable here.
    pub(crate) fn new(memory: &Arc<Memory>, index: u32) -> Place {
        Place {
            to: To::Memory(Arc::clone(memory)),
            at: memory.offset(index),
            len: memory.buffer_bytes(),
        }
    }

    /// All of a buffer of one's own, which nobody else uses meanwhile.
    #[must_use]
    pub fn of(buffer: &Arc<Mutex<CbufMut>>) -> Place {
        let (at, len) = (0, lock(buffer).len());
        let to = To::Buffer(Arc::clone(buffer));
        Place { to, at, len }
    }

    /// As many bytes, nowhere.
    #[must_use]
    pub fn nowhere(len: usize) -> Place {
        let (to, at) = (To::Nowhere, 0);
        Place { to, at, len }
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is room for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes in; [`Kind::BadArgument`] where they reach beyond it.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let inside = offset.checked_add(bytes.len());
        if inside.is_none_or(|end| end > self.len) {
            return Err(Kind::BadArgument.into());
        }
        match &self.to {
            To::Memory(memory) => {
                let written = memory.map.write(self.at + offset, View::from_slice(bytes));
                written.map_err(Error::of(Kind::BadArgument))
            }
            To::Buffer(buffer) => lock(buffer).write(self.at + offset, bytes),
            To::Nowhere => Ok(()),
        }
    }

    /// Takes what waits in a stream socket straight into memory, from `offset` to at most the end; says how many bytes
    /// came. 0: the end of the stream, or of the place.
    pub fn receive(&self, offset: usize, socket: impl AsFd) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset);
        match &self.to {
            To::Memory(memory) => memory.map.receive(self.at + offset, left, socket),
            To::Buffer(buffer) => {
                let (mut buffer, from) = (lock(buffer), self.at + offset);
                if let Some(bytes) = buffer.bytes_mut() {
                    return stream::recv(socket, &mut bytes[from..from + left]);
                }
                // Others may write there, so there is no slice.
                let mut some = [0; SOME_BYTES];
                let most = left.min(SOME_BYTES);
                let got = stream::recv(socket, &mut some[..most])?;
                buffer.write(from, &some[..got]).map_err(io::Error::other)?;
                Ok(got)
            }
            To::Nowhere => stream::discard(socket, left),
        }
    }
}

fn lock(buffer: &Mutex<CbufMut>) -> MutexGuard<'_, CbufMut> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}
