//! Connections: they carry frames in order between two ends, and report when frames have been taken.
//!
//! * [`Transport`], [`Listener`], [`Backend`]: the traits, small so that new carriers (a DMA engine, a mailbox) fit in.
//! * [`Copying`] over Unix stream sockets, `net::Net` over TCP and TLS (feature `net`).
//! * [`Payload`], [`Place`]: the bytes that go with a frame, by reference: where they lie, and where they go.
//!
//! NOT here: channels, credit, and the meaning of a frame (`channel`); pools and their buffers (`core`): they reach
//! this crate as [`Source`] and [`Target`].

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

#[cfg(feature = "net")]
pub mod net;
mod payload;
mod stream;

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use payload::{Payload, Place, Source, Target};
pub use stream::{Copying, Readable};
pub use tranship_error::{Error, ErrorKind};

/// Bytes of a frame; most frames fit without a heap allocation.
pub type FrameBytes = smallvec::SmallVec<[u8; 64]>;

/// One message.
///
/// ```
/// # mod tranship { pub use tranship_transport as transport; }
/// use tranship::transport::{Frame, FrameBytes, Payload};
///
/// let frame = Frame {
///     bytes: FrameBytes::from_slice(b"a picture follows"),
///     payload: Some(Payload::from(vec![7; 1 << 20])), // by reference, until the other end has it
/// };
/// assert_eq!(frame.payload.map(|bytes| bytes.len()), Some(1 << 20));
/// ```
#[derive(Debug, Default)]
pub struct Frame {
    /// Bytes of the frame itself, before the payload.
    pub bytes: FrameBytes,
    /// A buffer's bytes, which go with it; only on the way out.
    pub payload: Option<Payload>,
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        Frame {
            // Copied as a block; a derived clone goes byte by byte.
            bytes: FrameBytes::from_slice(&self.bytes),
            payload: self.payload.clone(),
        }
    }
}

/// Reason for which nothing comes now.
#[derive(Debug)]
pub enum RecvError {
    /// There is a frame, and this process lacks the means to take it (memory, descriptors): the frame waits for them.
    NotNow(Error),
    /// Nothing comes now or later. `PeerGone`: all that the other end sent has been taken. `PeerViolation`: the other
    /// end sent bytes that the protocol does not allow. `Limit`: something that came was lost because this process had
    /// no free descriptors.
    Over(Error),
}

impl<E: Into<Error>> From<E> for RecvError {
    fn from(why: E) -> RecvError {
        RecvError::Over(why.into())
    }
}

/// One end of a connection. Nothing here blocks.
///
/// ```
/// # mod tranship { pub use tranship_transport as transport; }
/// use std::time::Duration;
/// use tranship::transport::{Backend, Copying, Frame, FrameBytes, RecvError, Transport};
///
/// /// The next frame; the end is an error.
/// fn next(end: &mut dyn Transport) -> Result<Frame, RecvError> {
///     loop {
///         if let Some(frame) = end.recv()? {
///             return Ok(frame);
///         }
///         end.waiter().wait(Duration::from_secs(1));
///     }
/// }
///
/// # let name = format!("doc-transport-{}", std::process::id());
/// let mut listener = Copying.listen(&name)?;
/// let mut here = Copying.connect(&name)?;
/// let mut there = loop {
///     match listener.accept()? {
///         Some(end) => break end,
///         None => listener.waiter().wait(Duration::from_secs(1)),
///     }
/// };
/// here.send(&Frame { bytes: FrameBytes::from_slice(b"hello"), payload: None })?;
/// let frame = next(&mut *there).unwrap();
/// assert_eq!(&frame.bytes[..], b"hello");
/// # Ok::<(), tranship_transport::Error>(())
/// ```
pub trait Transport: Send + Debug {
    /// Sends a frame; frames arrive whole, once, in order, or the connection ends. `Full`: no room now, and nothing has
    /// changed.
    ///
    /// # Errors
    /// `Full`; `PeerGone` when the connection is over; `System`. It does not block.
    fn send(&mut self, frame: &Frame) -> Result<(), Error>;
    /// Takes the next frame, if one is there. The bytes of a buffer may follow it.
    ///
    /// # Errors
    /// The connection is over, or the peer broke the protocol. It does not block.
    fn recv(&mut self) -> Result<Option<Frame>, RecvError>;
    /// Returns the number of bytes that follow the frame that [`Transport::recv`] returned last. The caller takes them
    /// before the next frame.
    fn brings(&self) -> usize {
        0
    }
    /// Returns the number of those following bytes that were taken.
    fn came(&self) -> usize {
        0
    }
    /// Takes the next bytes that are there to their place (of exactly the buffer's length); returns whether all have
    /// come. The frame counts as taken only then.
    ///
    /// # Errors
    /// As [`recv`](Transport::recv). It does not block.
    fn fill(&mut self, _place: &Place) -> Result<bool, RecvError> {
        Ok(true)
    }
    /// Adds the numbers, from 0, of our frames that the other end has taken since the last call. They come in any
    /// order, however late, each once. It is called before each [`Transport::recv`]; a carrier may have none for some
    /// calls.
    fn done(&mut self, numbers: &mut Vec<u64>);
    /// Returns the address of the other end, where it has one.
    fn peer_place(&self) -> Option<String> {
        None
    }
    /// Returns the owner of the other end in words: its process, or its host. All connections of one owner are counted
    /// together. Empty: not known.
    fn peer_owner(&self) -> String {
        let place = self.peer_place().unwrap_or_default();
        place
            .rsplit_once(':')
            .map_or_else(String::new, |(host, _)| host.to_owned())
    }
    /// Returns in words why [`Transport::recv`] reports that nothing more will come.
    fn why(&self) -> Option<String> {
        None
    }
    /// Returns the object to wait on until [`Transport::recv`] or [`Transport::done`] has something new.
    fn waiter(&self) -> Arc<dyn Wait>;
    /// Returns the descriptor for a caller that also waits for other things. The descriptor is always the same; it
    /// becomes readable with news after [`Transport::arm`]. The flag says whether to watch it for being writable, too.
    /// None: the transport has no descriptor.
    fn watched(&self) -> Option<(BorrowedFd<'_>, bool)> {
        None
    }
    /// Makes the descriptor report news from now on; false: there are news already. With `_tells` it first reports that
    /// frames with a buffer's bytes were taken. Otherwise that report goes with the next frame, or after a while.
    fn arm(&mut self, _tells: bool) -> bool {
        true
    }
}

/// Wait for news of a connection.
pub trait Wait: Send + Sync + Debug {
    /// Waits for news since the last call, at most `limit`; may come back early.
    fn wait(&self, limit: Duration);
    /// Returns the descriptor that becomes readable with news after [`Wait::arm`]. None: there is none, and the caller
    /// checks now and then.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Makes the descriptor report news from now on; false: there are news already.
    fn arm(&self) -> bool {
        true
    }
}

/// A name to which one client may connect.
pub trait Listener: Send + Debug {
    /// Returns the connection, if one is there.
    ///
    /// # Errors
    /// No client can be accepted any more. It does not block.
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error>;
    /// Returns the object to wait on until [`Listener::accept`] has a connection.
    fn waiter(&self) -> Arc<dyn Wait>;
}

/// A way to make connections: [`Copying`], or `net::Net`. [`Transport`] has an example.
pub trait Backend: Send + Sync + Debug {
    /// Takes the name, and listens at it.
    ///
    /// # Errors
    /// `NameTaken`, `InvalidEndpoint`; `System`. It does not block.
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error>;
    /// Connects to the listener of that name.
    ///
    /// # Errors
    /// `InvalidEndpoint` if no process listens; `PeerGone`, `System`. It waits as long as the backend's timing says.
    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error>;
}
