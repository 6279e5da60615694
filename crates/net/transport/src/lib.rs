//! Connections: they carry frames in order between two ends, and report when frames have been taken.
//!
//! * [`Transport`], [`Backend`]: the traits, small so that new carriers (a DMA engine, a mailbox) fit in.
//! * [`Copying`] over Unix stream sockets, [`net::Net`] over TCP and TLS.
//! * [`Source`], [`Target`]: the memory of the bytes that go with a frame, by reference.
//!
//! NOT here: channels, credit, and the meaning of a frame (`channel`); pools and their buffers (`core`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod door;
pub mod net;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tranship_region::View;

pub use net::Copying;
pub use tranship_error::{Error, ErrorKind};

/// Bytes of a frame; most frames fit without a heap allocation.
pub type FrameBytes = smallvec::SmallVec<[u8; 64]>;

/// Memory whose bytes go out with a frame, by reference.
///
/// The bytes must not change until the other end has taken the frame; their owner keeps this rule. An owner that breaks
/// it sends the bytes that are there at that time, and harms only its own message. A carrier may read the bytes any
/// number of times.
pub trait Source: Send + Sync + Debug {
    /// Returns the bytes. Their number stays the same.
    fn view(&self) -> View<'_>;
}

impl Source for Vec<u8> {
    fn view(&self) -> View<'_> {
        View::from(&self[..])
    }
}

/// Memory to which the bytes of a frame arrive: exactly as many as there are.
pub trait Target {
    /// Copies in bytes, which all fit.
    ///
    /// # Errors
    /// The error that kept them from being written.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error>;
    /// Takes the bytes that wait in a stream socket, from `offset` to at most the end. Returns how many came. 0: the
    /// end of the stream.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    fn receive(&mut self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize>;
}

/// One end of a connection. Nothing here blocks, but [`Transport::wait`].
///
/// ```
/// use std::sync::Arc;
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tranship_transport::{Backend, Copying};
///
/// # let name = format!("doc-transport-{}", std::process::id());
/// let (come, comes) = channel();
/// let _listens = Copying.listen(&name, Arc::new(move |end| drop(come.send(end))))?;
/// let mut here = Copying.connect(&name)?;
/// let mut there = comes.recv().unwrap();
/// here.send(b"hello", None)?;
/// let (frame, follows) = loop {
///     match there.recv()? {
///         Some(frame) => break frame,
///         None => there.wait(Duration::from_secs(1)),
///     }
/// };
/// assert_eq!((&frame[..], follows), (&b"hello"[..], 0));
/// # Ok::<(), tranship_transport::Error>(())
/// ```
pub trait Transport: Send + Debug {
    /// Sends a frame, with the bytes of a buffer; frames arrive whole, once, in order, or the connection ends. `Full`:
    /// no room now, and nothing has changed. The buffer is dropped when the other end has taken the frame.
    ///
    /// # Errors
    /// `Full`; `PeerGone` when the connection is over; `System`.
    fn send(&mut self, frame: &[u8], buffer: Option<&Arc<dyn Source>>) -> Result<(), Error>;
    /// Takes the next frame, if one is there, and says how many bytes of a buffer follow it. The caller takes these
    /// before the next frame.
    ///
    /// # Errors
    /// Nothing comes now or later. `PeerGone`: all that the other end sent has been taken. `PeerViolation`: the other
    /// end sent bytes that the protocol does not allow.
    fn recv(&mut self) -> Result<Option<(FrameBytes, usize)>, Error>;
    /// Returns the number of those following bytes that were taken.
    fn came(&self) -> usize;
    /// Takes the next bytes that are there to their place (of exactly the buffer's length); returns whether all have
    /// come. The frame counts as taken only then.
    ///
    /// # Errors
    /// As [`recv`](Transport::recv).
    fn fill(&mut self, place: &mut dyn Target) -> Result<bool, Error>;
    /// Returns the number of our frames that the other end is known to have taken, from the first on. The caller asks
    /// before it waits, even if the number means nothing to it: a report may be news until then.
    fn done(&mut self) -> u64;
    /// Returns the address of the other end in words.
    fn peer_place(&self) -> String;
    /// Returns in words why [`Transport::recv`] reports that nothing more will come.
    fn why(&self) -> Option<String>;
    /// Returns the descriptor to wait on, always the same. It becomes readable with news for [`Transport::recv`] or
    /// [`Transport::done`] after [`Transport::arm`]. The flag says whether to watch it for being writable, too.
    fn watched(&self) -> (BorrowedFd<'_>, bool);
    /// Makes the descriptor report news from now on; false: there are news already, and the caller looks again. With
    /// `_tells` it first reports that frames with a buffer's bytes were taken. Otherwise that report goes with the next
    /// frame, or after a while.
    fn arm(&mut self, _tells: bool) -> bool {
        true
    }
    /// Waits for news since the last call, at most `limit`; may come back early.
    fn wait(&mut self, limit: Duration) {
        if self.arm(true) {
            let (fd, wants_room) = self.watched();
            // Whatever the kernel returns, the caller checks again.
            let _ = tranship_sys::stream::wait(Some(fd), wants_room, None::<BorrowedFd<'_>>, limit);
        }
    }
}

/// Takes a new connection. It may block: it has a thread of its own.
pub type Met = Arc<dyn Fn(Box<dyn Transport>) + Send + Sync>;

/// A way to make connections: [`Copying`], or `net::Net`. [`Transport`] has an example.
pub trait Backend: Send + Sync + Debug {
    /// Takes the name, and gives each connection to `met`, on a thread of its own, until the result is dropped.
    ///
    /// # Errors
    /// `NameTaken`, `InvalidEndpoint`; `System`. It does not block.
    fn listen(&self, name: &str, met: Met) -> Result<Box<dyn Any + Send + Sync>, Error>;
    /// Connects to the listener of that name.
    ///
    /// # Errors
    /// `InvalidEndpoint` if no process listens; `PeerGone`, `System`. It waits as long as the backend's timing says.
    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error>;
}
