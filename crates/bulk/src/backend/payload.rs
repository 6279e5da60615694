//! A buffer's bytes as carriers see them: on their way out, and the place where they arrive.

use crate::memory::Memory;
use crate::{Error, Kind};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tranship_region::View;

/// A buffer's bytes on their way out: a reference to pool memory, no copy.
///
/// Until the other end has taken the frame they stay as they are by the rules of ownership: the buffer is on its way
/// itself, or is not written while copies are out. Who breaks the rules of its own pool sends what it then finds there,
/// and harms only what it sends. A carrier may read them any number of times.
#[derive(Clone, Debug)]
pub struct Payload {
    memory: Arc<Memory>,
    file: Arc<OwnedFd>,
    at: usize,
    len: usize,
}

impl Payload {
    /// None for memory that is in pieces: each of them is one by itself.
    pub(crate) fn new(memory: &Arc<Memory>, index: u32) -> Option<Payload> {
        Some(Payload {
            file: memory.fd()?,
            memory: Arc::clone(memory),
            at: memory.offset(index),
            len: memory.buffer_bytes(),
        })
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a buffer has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory file, and where in it the bytes begin: for `sendfile` and the like.
    #[must_use]
    pub fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.file.as_fd(), self.at as u64)
    }

    /// The bytes, through a mapping that is readable whatever the buffer's state.
    pub fn view(&self) -> Result<View<'_>, Error> {
        let all = self.memory.readable()?;
        let piece = all.sub(self.at..self.at + self.len);
        piece.map_err(Error::of(Kind::BufferInvalid))
    }
}

/// Where a buffer's bytes go that arrive.
#[derive(Clone, Debug)]
pub struct Place {
    /// None: they are here already, and what arrives is passed over.
    memory: Option<Arc<Memory>>,
    at: usize,
    len: usize,
}

impl Place {
    /// The memory of a buffer that is writable here.
    pub(crate) fn new(memory: &Arc<Memory>, index: u32) -> Place {
        Place {
            memory: Some(Arc::clone(memory)),
            at: memory.offset(index),
            len: memory.buffer_bytes(),
        }
    }

    /// As many bytes, nowhere.
    pub(crate) fn nowhere(len: usize) -> Place {
        let (memory, at) = (None, 0);
        Place { memory, at, len }
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a buffer has at least one page.
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
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        let written = memory.map.write(self.at + offset, View::from_slice(bytes));
        written.map_err(Error::of(Kind::BadArgument))
    }

    /// Takes what waits in a stream socket straight into memory, from `offset` to at most the end; says how many bytes
    /// came. 0: the end of the stream, or of the place.
    pub fn receive(&self, offset: usize, socket: impl AsFd) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset);
        match &self.memory {
            Some(memory) => memory.map.receive(self.at + offset, left, socket),
            None => tranship_sys::stream::discard(socket, left),
        }
    }
}
