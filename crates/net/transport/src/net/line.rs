//! One TCP connection, with or without TLS: bytes of frames, and bytes of buffers straight between it and pool memory.
//!
//! Nothing here blocks: `WouldBlock` says that there is no room, or that nothing waits.

use super::wire::{HEADER_BYTES, MAX_FRAME_BYTES};
use crate::Target;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use tranship_region::View;
use tranship_sys::stream;

/// Bytes that are encrypted at once: one record of TLS. It holds more than the header of one of our records.
const RECORD_BYTES: usize = 16 << 10;
const _: () = assert!(RECORD_BYTES > HEADER_BYTES + MAX_FRAME_BYTES);
/// Encrypted bytes that may wait for the socket to have room.
const ENCRYPTED_BYTES: usize = 256 << 10;
/// Encrypted bytes that are taken from the socket at once; rustls by itself takes 4 KiB, a quarter of a record.
const TAKEN_BYTES: usize = 128 << 10;

/// A connection after the handshake.
#[derive(Debug)]
pub(super) struct Line {
    socket: Arc<TcpStream>,
    tls: Option<Secured>,
}

/// TLS, with the bytes that were taken from the socket for it and wait to be decrypted.
#[derive(Debug)]
struct Secured {
    tls: Box<rustls::Connection>,
    taken: Box<[u8]>,
    waits: Range<usize>,
}

impl Line {
    pub(super) fn new(socket: TcpStream, tls: Option<Box<rustls::Connection>>) -> io::Result<Line> {
        socket.set_nonblocking(true)?;
        if socket.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
            // If a sandbox does not allow the option, the connection is only slower.
            let _ = stream::hurry(&socket);
        }
        let tls = tls.map(|mut tls| {
            tls.set_buffer_limit(Some(ENCRYPTED_BYTES));
            Secured {
                tls,
                taken: vec![0; TAKEN_BYTES].into(),
                waits: 0..0,
            }
        });
        let socket = Arc::new(socket);
        Ok(Line { socket, tls })
    }

    /// Returns whether bytes come as they were sent.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns the socket, for waiting.
    pub(super) fn socket(&self) -> Arc<TcpStream> {
        Arc::clone(&self.socket)
    }

    /// Sends some bytes; with `more`, others follow at once.
    pub(super) fn send(&mut self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let Some(Secured { tls, .. }) = &mut self.tls else {
            return stream::send(&*self.socket, bytes, more);
        };
        loop {
            let taken = tls.writer().write(bytes)?;
            if taken > 0 && more {
                return Ok(taken);
            }
            match push(tls, &self.socket) {
                // Bytes that were taken go out with the next push.
                Err(error) if taken == 0 || error.kind() != ErrorKind::WouldBlock => {
                    return Err(error);
                }
                _ if taken > 0 => return Ok(taken),
                _ => {}
            }
        }
    }

    /// Sends some of a record: of its head, and of the buffer's bytes that follow, from `at` on.
    pub(super) fn send_record(
        &mut self,
        head: &[u8],
        bytes: Option<View<'_>>,
        at: usize,
    ) -> io::Result<usize> {
        let rest = head.get(at..).unwrap_or_default();
        let Some(bytes) = bytes else {
            return self.send(rest, false);
        };
        let done = at.saturating_sub(head.len());
        if self.tls.is_none() {
            let left = bytes.sub(done..bytes.len()).map_err(io::Error::other)?;
            return left.send_after(rest, &*self.socket);
        }
        let left = bytes.len() - done;
        // A copy: encrypted bytes must not change meanwhile, and others may write there at some levels of trust.
        let mut record = [0; RECORD_BYTES];
        let (front, back) = record.split_at_mut(rest.len());
        front.copy_from_slice(rest);
        let taken = left.min(back.len());
        let copied = bytes.copy_to_slice(done, &mut back[..taken]);
        copied.map_err(io::Error::other)?;
        self.send(&record[..rest.len() + taken], taken < left)
    }

    /// Sends the encrypted bytes that wait.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(Secured { tls, .. }) => push(tls, &self.socket),
            None => Ok(()),
        }
    }

    /// Returns whether encrypted output waits.
    pub(super) fn has_output(&self) -> bool {
        let waits = |Secured { tls, .. }: &Secured| tls.wants_write();
        self.tls.as_ref().is_some_and(waits)
    }

    /// Returns whether there is input to take, or the end.
    pub(super) fn has_input(&self) -> bool {
        let waits = |secured: &Secured| !secured.waits.is_empty();
        self.tls.as_ref().is_some_and(waits) || stream::has_input(&*self.socket)
    }

    /// Takes some bytes; 0: the end.
    pub(super) fn recv(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(secured) = &mut self.tls else {
            return stream::recv(&*self.socket, to);
        };
        loop {
            match secured.tls.reader().read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return at_end(other),
            }
            secured.pull(&self.socket)?;
        }
    }

    /// Takes some of the last `left` bytes of a place, which begin at `at`; 0: the end.
    pub(super) fn recv_to(
        &mut self,
        place: &mut dyn Target,
        at: usize,
        left: usize,
    ) -> io::Result<usize> {
        let Some(secured) = &mut self.tls else {
            return place.receive(at, self.socket.as_fd());
        };
        loop {
            let mut reader = secured.tls.reader();
            match reader.fill_buf() {
                Ok([]) => return Ok(0),
                Ok(bytes) => {
                    let some = bytes.len().min(left);
                    place.write(at, &bytes[..some]).map_err(io::Error::other)?;
                    reader.consume(some);
                    return Ok(some);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return at_end(Err(error)),
            }
            secured.pull(&self.socket)?;
        }
    }

    /// Says that nothing more will come, as TLS wants it said.
    pub(super) fn close(&mut self) {
        if let Some(Secured { tls, .. }) = &mut self.tls {
            tls.send_close_notify();
            // Best effort: the session's own farewell has been sent.
            let _ = push(tls, &self.socket);
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

/// Turns an end without TLS's own farewell into the end of the connection.
fn at_end(got: io::Result<usize>) -> io::Result<usize> {
    match got {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
        other => other,
    }
}

/// Sends the output of TLS. Bytes that do not fit stay.
fn push(tls: &mut rustls::Connection, socket: &TcpStream) -> io::Result<()> {
    let mut socket = socket;
    while tls.wants_write() {
        match tls.write_tls(&mut socket) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Secured {
    /// Takes the bytes that wait in the socket, and decrypts some of them.
    fn pull(&mut self, socket: &TcpStream) -> io::Result<()> {
        if self.waits.is_empty() {
            let got = stream::recv(socket, &mut self.taken)?;
            self.waits = 0..got;
        }
        // `read_tls` takes a part of a record at a time. If it gets nothing at all, it takes that for the end.
        let some = self.tls.read_tls(&mut &self.taken[self.waits.clone()])?;
        self.waits.start += some;
        if let Err(error) = self.tls.process_new_packets() {
            // The error is told to the other end, if it still listens.
            let _ = push(&mut self.tls, socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        match push(&mut self.tls, socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }
}
