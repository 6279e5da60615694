//! A buffer's bytes as carriers see them.

use super::Memory;
use crate::{Error, Kind};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tranship_region::View;
use tranship_transport::{Payload, Place, Source, Target};

/// On their way out, through a mapping that is readable whatever the buffer's state.
#[derive(Debug)]
struct Out {
    memory: Arc<Memory>,
    file: Arc<OwnedFd>,
    at: usize,
}

impl Source for Out {
    fn len(&self) -> usize {
        self.memory.buffer_bytes()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), self.at as u64))
    }

    fn view(&self) -> Result<View<'_>, Error> {
        let piece = self.memory.readable()?.sub(self.at..self.at + self.len());
        piece.map_err(Error::of(Kind::BufferInvalid))
    }
}

/// Where they arrive: the memory of a buffer that is writable here.
#[derive(Debug)]
struct In {
    memory: Arc<Memory>,
    at: usize,
}

impl Target for In {
    fn len(&self) -> usize {
        self.memory.buffer_bytes()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let map = &self.memory.map;
        let written = map.write(self.at + offset, View::from_slice(bytes));
        written.map_err(Error::of(Kind::BadArgument))
    }

    fn receive(&self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let left = self.len().saturating_sub(offset);
        self.memory.map.receive(self.at + offset, left, socket)
    }
}

impl Memory {
    /// None for memory that is in pieces: each of them is one by itself.
    pub(crate) fn payload(self: &Arc<Memory>, index: u32) -> Option<Payload> {
        let (memory, at) = (Arc::clone(self), self.offset(index));
        let file = memory.fd()?;
        Some(Payload::from(Out { memory, file, at }))
    }

    pub(crate) fn place(self: &Arc<Memory>, index: u32) -> Place {
        let (memory, at) = (Arc::clone(self), self.offset(index));
        Place::from(In { memory, at })
    }
}
