//! Buffers as carriers see them.

use std::io;
use std::os::fd::BorrowedFd;
use tranship_core::{Buffer, BufferMut, Error};
use tranship_region::View;
use tranship_sys::stream;
use tranship_transport::{Source, Target};

/// Bytes that are copied at once to a destination without a slice.
const SOME_BYTES: usize = 16 << 10;

/// Buffer on its way out. It is free when the other end has taken it, or still its sender's if it is shared.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Shared(Buffer),
    Moved(BufferMut),
}

impl Source for Outgoing {
    fn view(&self) -> View<'_> {
        match self {
            Outgoing::Shared(buffer) => buffer.view(),
            Outgoing::Moved(buffer) => buffer.view(),
        }
    }
}

/// Destination of an arriving buffer: all of a buffer.
pub(crate) struct Room<'a>(pub(crate) &'a mut BufferMut);

impl Target for Room<'_> {
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.0.write(offset, bytes)
    }

    fn receive(&mut self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize> {
        if let Some(bytes) = self.0.bytes_mut() {
            let room = bytes.get_mut(offset..).unwrap_or_default();
            return stream::recv(socket, room);
        }
        // Other processes may write there, so there is no slice.
        let mut some = [0; SOME_BYTES];
        let most = self.0.len().saturating_sub(offset).min(SOME_BYTES);
        let got = stream::recv(socket, &mut some[..most])?;
        let written = self.0.write(offset, &some[..got]);
        written.map_err(io::Error::other)?;
        Ok(got)
    }
}
