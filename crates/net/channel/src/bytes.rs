//! Buffers as carriers see them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tranship_core::{Buffer, BufferMut, Error};
use tranship_region::View;
use tranship_sys::stream;
use tranship_transport::{Source, Target};

/// Bytes that are copied at once to a destination without a slice.
const SOME_BYTES: usize = 16 << 10;

/// Buffer on its way out that is still its sender's.
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) Buffer);

impl Source for Shared {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn view(&self) -> Result<View<'_>, Error> {
        Ok(self.0.view())
    }
}

/// Buffer on its way out that is free when the other end has taken it.
#[derive(Debug)]
pub(crate) struct Moved(pub(crate) BufferMut);

impl Source for Moved {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn view(&self) -> Result<View<'_>, Error> {
        Ok(self.0.view())
    }
}

/// Destination of an arriving buffer: a whole buffer that nobody else uses meanwhile.
#[derive(Debug)]
pub(crate) struct Room(Arc<Mutex<BufferMut>>);

impl Room {
    pub(crate) fn of(buffer: &Arc<Mutex<BufferMut>>) -> Room {
        Room(Arc::clone(buffer))
    }

    fn lock(&self) -> MutexGuard<'_, BufferMut> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Room {
    fn len(&self) -> usize {
        self.lock().len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.lock().write(offset, bytes)
    }

    fn receive(&self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut buffer = self.lock();
        if let Some(bytes) = buffer.bytes_mut() {
            let room = bytes.get_mut(offset..).unwrap_or_default();
            return stream::recv(socket, room);
        }
        // Other processes may write there, so there is no slice.
        let mut some = [0; SOME_BYTES];
        let most = buffer.len().saturating_sub(offset).min(SOME_BYTES);
        let got = stream::recv(socket, &mut some[..most])?;
        let written = buffer.write(offset, &some[..got]);
        written.map_err(io::Error::other)?;
        Ok(got)
    }
}
