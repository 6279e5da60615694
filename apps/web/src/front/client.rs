//! A client's byte stream: a socket of the kernel, or a connection of the component `tcpip`.

use super::streams::Stream;
use crate::os::{Piece, write_pieces};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::OwnedFd;
use tranship::{Buffer, BufferMut, Pool};

#[derive(Debug)]
pub(super) enum Client {
    Socket(OwnedFd),
    Stream(Stream),
}

/// Bytes of a client, or the reason why there are none.
#[derive(Debug)]
pub(super) enum Read {
    /// Bytes; `true`: there are no more now.
    Bytes(Buffer, bool),
    /// Nothing now.
    Nothing,
    /// The client sends no more.
    End,
    /// The connection is gone.
    Broken,
    /// There is no memory for it.
    NoMemory,
}

impl Client {
    /// Takes bytes, at most `most` of a socket. Its buffer is allocated from `pool`, or is the spare one.
    pub(super) fn read(&mut self, pool: &Pool, spare: &mut Option<BufferMut>, most: usize) -> Read {
        let socket = match self {
            Client::Socket(socket) => socket,
            Client::Stream(stream) => return stream.read(),
        };
        let mut buffer = match spare.take().filter(|spare| spare.len() >= most) {
            Some(spare) => spare,
            None => match pool.try_alloc(most) {
                Ok(buffer) => buffer,
                Err(_) => return Read::NoMemory,
            },
        };
        let got = loop {
            match rustix::net::recv(&*socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                got => break got,
            }
        };
        match got {
            Ok((got @ 1.., _)) => {
                let all = got < buffer.len();
                buffer.truncate(got);
                return Read::Bytes(buffer.freeze(), all);
            }
            _ => *spare = Some(buffer),
        }
        match got {
            Ok(_) => Read::End,
            Err(Errno::AGAIN) => Read::Nothing,
            Err(_) => Read::Broken,
        }
    }

    /// Takes all bytes that are there, and forgets them.
    pub(super) fn discard(&mut self) -> Read {
        let socket = match self {
            Client::Socket(socket) => socket,
            Client::Stream(stream) => loop {
                match stream.read() {
                    Read::Bytes(..) => {}
                    other => return other,
                }
            },
        };
        let mut bytes = [0; 4096];
        loop {
            match rustix::net::recv(&*socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((1.., _)) | Err(Errno::INTR) => {}
                Ok(_) => return Read::End,
                Err(Errno::AGAIN) => return Read::Nothing,
                Err(_) => return Read::Broken,
            }
        }
    }

    /// Sends pieces, from byte `skip` of the first on. Returns the number of bytes that were taken.
    pub(super) fn write<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a Piece>,
        skip: usize,
    ) -> Result<usize, Errno> {
        match self {
            Client::Socket(socket) => write_pieces(&*socket, pieces, skip),
            Client::Stream(stream) => stream.write(pieces, skip),
        }
    }

    /// Ends the bytes to the client.
    pub(super) fn finish(&mut self) {
        match self {
            // A client that is gone shows by the next read.
            Client::Socket(socket) => {
                let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Write);
            }
            Client::Stream(stream) => stream.finish(),
        }
    }
}
