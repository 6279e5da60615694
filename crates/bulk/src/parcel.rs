//! Messages of any length in buffers of one size: written and read as streams.
//!
//! One that fits into a buffer is moved alone, its length in front of the metadata; a longer one is an
//! [`Aggregate`], whose last piece ends where the message does. So a channel needs [`LENGTH_BYTES`] of metadata for it.

use crate::channel::{Channel, Event};
use crate::{Aggregate, Buffer, Completion, Error, Kind, MAX_PIECES, Pool, SendError};
use std::io;

/// What it takes of the metadata, bytes.
pub const LENGTH_BYTES: usize = 8;

/// A message that is being written, into buffers of a pool as they are needed. Dropped unsent, it lets them go.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pool: &'a Pool,
    buffers: Vec<Buffer>,
    len: usize,
}

impl<'a> Outgoing<'a> {
    /// An empty one.
    #[must_use]
    pub fn new(pool: &'a Pool) -> Outgoing<'a> {
        Outgoing {
            pool,
            buffers: Vec::new(),
            len: 0,
        }
    }

    /// Length so far, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has nothing been written?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds bytes; all or nothing of them. [`Kind::AllocCount`] if buffers are missing, [`Kind::AllocSize`] if it would
    /// need more than [`MAX_PIECES`].
    pub fn add(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let size =
            usize::try_from(self.pool.info().buffer_bytes).map_err(Error::of(Kind::AllocSize))?;
        let need = (self.len + bytes.len()).div_ceil(size);
        if need > MAX_PIECES {
            return Err(Kind::AllocSize.into());
        }
        let had = self.buffers.len();
        while self.buffers.len() < need {
            match self.pool.alloc() {
                Ok(buffer) => self.buffers.push(buffer),
                Err(code) => {
                    self.buffers.truncate(had);
                    return Err(code);
                }
            }
        }
        while !bytes.is_empty() {
            let (at, offset) = (self.len / size, self.len % size);
            let (now, later) = bytes.split_at(bytes.len().min(size - offset));
            self.buffers[at].write(offset, now)?;
            self.len += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Sends it, with metadata of the program's; on an error it comes back.
    pub fn send(mut self, channel: &Channel, meta: &[u8]) -> Result<Completion, SendError<Self>> {
        let refused = |error, buffers, (pool, len)| SendError {
            error,
            unsent: Outgoing { pool, buffers, len },
        };
        let (pool, len) = (self.pool, self.len);
        if self.buffers.is_empty() {
            match pool.alloc() {
                Ok(buffer) => self.buffers.push(buffer),
                Err(error) => return Err(refused(error, Vec::new(), (pool, len))),
            }
        }
        if let [_] = self.buffers[..]
            && let Some(buffer) = self.buffers.pop()
        {
            let mut head = (len as u64).to_le_bytes().to_vec();
            head.extend_from_slice(meta);
            let sent = channel.move_(buffer, &head);
            return sent.map_err(|no| refused(no.error, vec![no.unsent], (pool, len)));
        }
        let mut whole = Aggregate::new();
        let mut left = len as u64;
        for buffer in self.buffers {
            let piece = left.min(pool.info().buffer_bytes);
            left -= piece;
            if let Err(no) = whole.insert(whole.pieces().len(), buffer, 0, piece) {
                return Err(refused(no.error, whole.into_buffers(), (pool, len)));
            }
        }
        let sent = channel.move_aggregate(whole, meta);
        sent.map_err(|no| refused(no.error, no.unsent.into_buffers(), (pool, len)))
    }
}

impl io::Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message that has arrived, with its buffers; dropping it lets them go.
#[derive(Debug)]
pub struct Incoming {
    buffers: Vec<Buffer>,
    meta: Vec<u8>,
    len: usize,
    read: usize,
}

impl Incoming {
    /// The message of an event; any other event comes back. [`Kind::PeerViolation`] if its length cannot be: what sent it
    /// sends no messages like these.
    pub fn of(event: Event) -> Result<Result<Incoming, Error>, Event> {
        match event {
            Event::Moved(buffer, meta) => {
                let Some((len, meta)) = meta.split_first_chunk::<LENGTH_BYTES>() else {
                    return Ok(Err(Kind::PeerViolation.into()));
                };
                let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
                if len > buffer.len() {
                    return Ok(Err(Kind::PeerViolation.into()));
                }
                Ok(Ok(Incoming {
                    buffers: vec![buffer],
                    meta: meta.to_vec(),
                    len,
                    read: 0,
                }))
            }
            Event::MovedAll(whole, meta) => {
                let size = whole.buffers().first().map_or(0, Buffer::len) as u64;
                let last = whole.pieces().len().saturating_sub(1);
                let in_order = (0..).zip(whole.pieces()).all(|(number, piece)| {
                    let full = piece.len == size || number == last;
                    piece.buffer as usize == number && piece.offset == 0 && full
                });
                let len = usize::try_from(whole.len_bytes());
                let (Ok(len), true) = (len, in_order) else {
                    return Ok(Err(Kind::PeerViolation.into()));
                };
                Ok(Ok(Incoming {
                    buffers: whole.into_buffers(),
                    meta: meta.to_vec(),
                    len,
                    read: 0,
                }))
            }
            other => Err(other),
        }
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is it one of no bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the sender's program said beside it.
    #[must_use]
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// All of it.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; self.len];
        self.copy(0, &mut out)?;
        Ok(out)
    }

    /// Copies bytes out that are there.
    fn copy(&self, mut at: usize, mut to: &mut [u8]) -> Result<(), Error> {
        while !to.is_empty() {
            let size = self.buffers.first().map_or(0, Buffer::len);
            let (number, offset) = (at / size, at % size);
            let now = to.len().min(size - offset);
            let (piece, rest) = std::mem::take(&mut to).split_at_mut(now);
            self.buffers[number].read(offset, piece)?;
            at += now;
            to = rest;
        }
        Ok(())
    }
}

impl io::Read for Incoming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let now = to.len().min(self.len - self.read);
        self.copy(self.read, &mut to[..now])
            .map_err(io::Error::other)?;
        self.read += now;
        Ok(now)
    }
}
