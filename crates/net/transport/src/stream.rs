//! Backend `copy:`: every frame, with the bytes of its buffer, is copied into a Unix stream socket and out of it. The
//! baseline.

use crate::door::{Door, thread};
use crate::{Backend, Error, ErrorKind, FrameBytes, Met, Source, Target, Transport};
use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tranship_sys::{epoll, eventfd, socket, stream};

/// Longest frame without the bytes of a buffer; a longer one is a violation.
const MAX_FRAME_BYTES: usize = 1 << 16;
/// Bytes that may wait for the socket to have room.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Frames received before the sender is told.
const TELL_EVERY: u32 = 32;
/// Bytes of the header of each frame: its length, how many were taken, the length of the buffer's bytes that follow.
const HEADER: usize = 16;

/// The backend of abstract socket names on this machine. [`Transport`] has an example.
#[derive(Debug, Default)]
pub struct Copying;

/// One end.
#[derive(Debug)]
struct End {
    stream: UnixStream,
    out: VecDeque<u8>,
    inward: Vec<u8>,
    /// The number of frames that this end has sent, and of those that the other end has reported as taken.
    sent: u64,
    taken: u64,
    /// The number of the other end's frames that were taken and not reported yet.
    untold: u32,
    /// Bytes of the buffer that belongs to the frame given last: how many there are, how many of them came.
    brings: usize,
    came: usize,
    hung_up: bool,
}

/// Returns the address of a name on this machine.
fn abstract_name(name: &str) -> Result<SocketAddr, Error> {
    let name = format!("tranship/copy/{name}");
    SocketAddr::from_abstract_name(name)
        .map_err(tranship_error::of_kind(ErrorKind::InvalidEndpoint))
}

/// Returns a function that makes an error of the system's, unless it is of this kind: then the name is at fault.
fn unless(kind: io::ErrorKind) -> impl Fn(std::io::Error) -> Error {
    move |error| match error.kind() == kind {
        true => tranship_error::of_kind(ErrorKind::InvalidEndpoint)(error),
        false => tranship_error::of_kind(ErrorKind::System)(error),
    }
}

/// A listener's thread; it ends when this is dropped.
#[derive(Debug)]
struct Name {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Name {
    fn drop(&mut self) {
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.stop);
        // The name is thus free once this is gone.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Backend for Copying {
    fn listen(&self, name: &str, met: Met) -> Result<Box<dyn Any + Send + Sync>, Error> {
        let address = abstract_name(name)?;
        let listener =
            UnixListener::bind_addr(&address).map_err(unless(io::ErrorKind::AddrInUse))?;
        listener
            .set_nonblocking(true)
            .map_err(tranship_error::system("fcntl"))?;
        // Connections inherit the setting, so none has descriptors in it when it is accepted.
        let _ = socket::pass_rights(&listener, false);
        let stop = Arc::new(eventfd::create().map_err(tranship_error::system("eventfd"))?);
        let (own, door) = (Arc::clone(&stop), Door::new(met));
        let thread = thread("tranship-listen", move || listen(&listener, &own, &door))
            .map_err(tranship_error::system("starting a carrier's thread"))?;
        let thread = Some(thread);
        Ok(Box::new(Name { stop, thread }))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let address = abstract_name(name)?;
        let nobody = unless(io::ErrorKind::ConnectionRefused);
        let stream = UnixStream::connect_addr(&address).map_err(nobody)?;
        Ok(Box::new(End::over(stream)?))
    }
}

fn listen(listener: &UnixListener, stop: &OwnedFd, door: &Arc<Door>) {
    loop {
        // Whatever the kernel returns, both are checked.
        let _ = stream::wait(Some(listener), false, Some(stop), Duration::from_secs(3600));
        // The descriptor is readable once the listener is to end, and stays so.
        if epoll::wait_readable(stop, Some(Duration::ZERO)).unwrap_or(true) {
            return;
        }
        let made = match listener.accept() {
            Ok((stream, _)) => welcome(stream, door),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // No descriptors, or no memory: connections wait in the kernel's queue meanwhile.
            Err(error) => {
                let _ = epoll::wait_readable(stop, Some(Duration::from_millis(50)));
                Err(tranship_error::system("accept")(error))
            }
        };
        if let Err(error) = made {
            tracing::debug!(%error, "a connection was not made");
        }
    }
}

fn welcome(stream: UnixStream, door: &Arc<Door>) -> Result<(), Error> {
    let peer = socket::peer_credentials(&stream).map_err(tranship_error::system("getsockopt"))?;
    let place = door.place(format!("user {}", peer.uid));
    let place =
        place.ok_or_else(|| Error::new(ErrorKind::Limit, "too many are about to connect"))?;
    let end = Box::new(End::over(stream)?);
    let started = thread("tranship-greet", move || place.go_in(end));
    started
        .map_err(tranship_error::system("starting a carrier's thread"))
        .map(drop)
}

impl End {
    fn over(stream: UnixStream) -> Result<End, Error> {
        stream
            .set_nonblocking(true)
            .map_err(tranship_error::system("fcntl"))?;
        // No code takes any; an older kernel does not know how to refuse them.
        let _ = socket::pass_rights(&stream, false);
        Ok(End {
            stream,
            out: VecDeque::new(),
            inward: Vec::new(),
            sent: 0,
            taken: 0,
            untold: 0,
            brings: 0,
            came: 0,
            hung_up: false,
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        while !self.out.is_empty() {
            let (first, _) = self.out.as_slices();
            match self.stream.write(first) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(tranship_error::of_kind(ErrorKind::PeerGone)(error)),
            }
        }
        Ok(())
    }

    /// Says how many frames were taken, in front of a frame or on its own (`bytes` empty).
    fn put(&mut self, bytes: &[u8], follows: usize) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.out.extend(len.to_le_bytes());
        self.out.extend(self.untold.to_le_bytes());
        self.out.extend((follows as u64).to_le_bytes());
        self.out.extend(bytes);
        self.untold = 0;
    }

    /// Reads a piece; false: nothing waits.
    fn read(&mut self) -> bool {
        let mut piece = [0; 1 << 16];
        loop {
            match self.stream.read(&mut piece) {
                Ok(n @ 1..) => {
                    self.inward.extend_from_slice(&piece[..n]);
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    self.hung_up = true;
                    return false;
                }
            }
        }
    }

    /// Takes the first waiting message; an empty one only reports how many frames were taken.
    fn take(&mut self) -> Result<Option<FrameBytes>, Error> {
        let Some((header, rest)) = self.inward.split_at_checked(HEADER) else {
            return Ok(None);
        };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let (len, taken, brings) = (
            number(&header[..4]),
            number(&header[4..8]),
            number(&header[8..]),
        );
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MAX_FRAME_BYTES || len == 0 && brings > 0 {
            return Err(ErrorKind::PeerViolation.into());
        }
        let Some(bytes) = rest.get(..len).map(FrameBytes::from_slice) else {
            return Ok(None);
        };
        self.taken += taken;
        if self.taken > self.sent {
            return Err(ErrorKind::PeerViolation.into());
        }
        self.brings =
            usize::try_from(brings).map_err(tranship_error::of_kind(ErrorKind::PeerViolation))?;
        self.came = 0;
        self.inward.drain(..HEADER + len);
        Ok(Some(bytes))
    }

    /// Counts the frame, with its bytes, as taken.
    fn count(&mut self) {
        self.untold += 1;
        if self.untold >= TELL_EVERY {
            self.put(&[], 0);
            let _ = self.flush();
        }
    }
}

impl Transport for End {
    fn send(&mut self, frame: &[u8], buffer: Option<&Arc<dyn Source>>) -> Result<(), Error> {
        self.flush()?;
        if frame.len() > MAX_FRAME_BYTES || self.out.len() > MAX_WAITING_BYTES {
            return Err(ErrorKind::Full.into());
        }
        let bytes = buffer.map_or_else(Vec::new, |buffer| buffer.view().to_vec());
        self.put(frame, bytes.len());
        self.out.extend(bytes);
        self.sent += 1;
        // The frame is on its way even if the other end is found to be gone now; that is learned by receiving.
        let _ = self.flush();
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<(FrameBytes, usize)>, Error> {
        let _ = self.flush();
        if self.brings > 0 {
            return Ok(None);
        }
        loop {
            match self.take()? {
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => {
                    if self.brings == 0 {
                        self.count();
                    }
                    return Ok(Some((bytes, self.brings)));
                }
                None => {}
            }
            if !self.hung_up && self.read() {
                continue;
            }
            if self.hung_up {
                return Err(ErrorKind::PeerGone.into());
            }
            // Nothing waits: a good moment to report the taken frames.
            if self.untold > 0 && self.out.is_empty() {
                self.put(&[], 0);
                let _ = self.flush();
            }
            return Ok(None);
        }
    }

    fn came(&self) -> usize {
        self.came
    }

    fn fill(&mut self, place: &mut dyn Target) -> Result<bool, Error> {
        let _ = self.flush();
        while self.came < self.brings {
            let left = self.brings - self.came;
            let got = match self.inward.len().min(left) {
                0 if self.hung_up => return Err(ErrorKind::PeerGone.into()),
                0 => match place.receive(self.came, self.stream.as_fd()) {
                    Ok(got @ 1..) => got,
                    Err(error)
                        if error.kind() == io::ErrorKind::WouldBlock
                            || socket::is_shortage(&error) =>
                    {
                        return Ok(false);
                    }
                    Ok(0) | Err(_) => {
                        self.hung_up = true;
                        continue;
                    }
                },
                got => {
                    let written = place.write(self.came, &self.inward[..got]);
                    written.map_err(tranship_error::of_kind(ErrorKind::PeerViolation))?;
                    self.inward.drain(..got);
                    got
                }
            };
            self.came += got;
        }
        self.brings = 0;
        self.count();
        Ok(true)
    }

    fn done(&mut self) -> u64 {
        self.taken
    }

    fn peer_place(&self) -> String {
        "this machine".to_owned()
    }

    fn why(&self) -> Option<String> {
        None
    }

    fn watched(&self) -> (BorrowedFd<'_>, bool) {
        (self.stream.as_fd(), !self.out.is_empty())
    }
}
