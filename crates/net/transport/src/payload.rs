//! The bytes that go with a frame: on their way out, and the place where they arrive.

use crate::{Error, ErrorKind};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tranship_region::View;
use tranship_sys::stream;

/// Memory whose bytes go out.
///
/// The bytes must not change until the other end has taken the frame; their owner keeps this rule. An owner that breaks
/// it sends the bytes that are there at that time, and harms only its own message. A carrier may read the bytes any
/// number of times.
pub trait Source: Send + Sync + Debug {
    /// Returns the bytes. Their number stays the same.
    ///
    /// # Errors
    /// The error that kept them from being mapped.
    fn view(&self) -> Result<View<'_>, Error>;
    /// Returns their number.
    fn len(&self) -> usize;
    /// Returns whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the memory file, and the offset of the bytes in it: for `sendfile` and the like. None: they are not in
    /// one file, or in several.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
}

impl Source for Vec<u8> {
    fn view(&self) -> Result<View<'_>, Error> {
        Ok(View::from_slice(self))
    }

    fn len(&self) -> usize {
        Vec::len(self)
    }
}

/// Memory to which bytes go that arrive.
pub trait Target: Send + Sync + Debug {
    /// Returns the room in bytes. It stays the same.
    fn len(&self) -> usize;
    /// Returns whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies in bytes, which all fit.
    ///
    /// # Errors
    /// The error that kept them from being written.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error>;
    /// Takes the bytes that wait in a stream socket, from `offset` to at most the end. Returns how many came. 0: the
    /// end of the stream, or of the room.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    fn receive(&self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize>;
}

/// Bytes on their way out: a reference to memory, no copy. It is dropped when the other end has taken them.
///
/// ```
/// # mod tranship { pub use tranship_transport as transport; }
/// use tranship::transport::Payload;
///
/// let payload = Payload::from(b"some bytes".to_vec()); // of any [`Source`]
/// assert_eq!(payload.view()?.to_vec(), b"some bytes");
/// assert!(payload.file().is_none()); // a pool's buffer has one, which `sendfile` takes
/// # Ok::<(), tranship_transport::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Payload(Arc<dyn Source>);

impl<S: Source + 'static> From<S> for Payload {
    /// Makes a payload of all of it.
    fn from(source: S) -> Payload {
        Payload(Arc::new(source))
    }
}

impl Payload {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the file and the offset of the bytes, if they are a part of a file ([`Source::file`]).
    #[must_use]
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.0.file()
    }

    /// Returns the bytes as they are now ([`Source::view`]).
    ///
    /// # Errors
    /// The error that kept them from being mapped.
    pub fn view(&self) -> Result<View<'_>, Error> {
        self.0.view()
    }
}

/// Destination of arriving bytes.
///
/// ```
/// # mod tranship { pub use tranship_transport::{self as transport, Error, ErrorKind}; }
/// use std::io::{self, Read};
/// use std::os::fd::BorrowedFd;
/// use std::sync::Mutex;
/// use tranship::transport::{Place, Target};
/// use tranship::{Error, ErrorKind};
///
/// /// Memory of this process; a pool's buffer takes bytes out of the socket without a copy in between.
/// #[derive(Debug)]
/// struct Room(Mutex<[u8; 16]>);
///
/// impl Target for Room {
///     fn len(&self) -> usize {
///         16
///     }
///     fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
///         self.0.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
///         Ok(())
///     }
///     fn receive(&self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize> {
///         let mut socket = std::fs::File::from(socket.try_clone_to_owned()?);
///         socket.read(&mut self.0.lock().unwrap()[offset..])
///     }
/// }
///
/// let place = Place::from(Room(Mutex::new([0; 16])));
/// place.write(11, b"bytes")?;
/// assert_eq!(place.write(12, b"bytes").unwrap_err().kind(), ErrorKind::BadArgument); // beyond its end
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Place(To);

#[derive(Clone, Debug)]
enum To {
    Memory(Arc<dyn Target>),
    /// The bytes are here already, and so many arriving bytes are discarded.
    Nowhere(usize),
}

impl<T: Target + 'static> From<T> for Place {
    /// Makes a place of all of it.
    fn from(target: T) -> Place {
        Place(To::Memory(Arc::new(target)))
    }
}

impl Place {
    /// Returns a place of that length that discards its bytes.
    #[must_use]
    pub fn nowhere(len: usize) -> Place {
        Place(To::Nowhere(len))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            To::Memory(memory) => memory.len(),
            To::Nowhere(len) => *len,
        }
    }

    /// Returns whether there is room for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] where they reach beyond it.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let inside = offset.checked_add(bytes.len());
        if inside.is_none_or(|end| end > self.len()) {
            return Err(ErrorKind::BadArgument.into());
        }
        match &self.0 {
            To::Memory(memory) => memory.write(offset, bytes),
            To::Nowhere(_) => Ok(()),
        }
    }

    /// Takes the bytes that wait in a stream socket straight into memory, from `offset` to at most the end. Returns how
    /// many came. 0: the end of the stream, or of the place.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub fn receive(&self, offset: usize, socket: impl AsFd) -> io::Result<usize> {
        match &self.0 {
            To::Memory(memory) => memory.receive(offset, socket.as_fd()),
            To::Nowhere(len) => stream::discard(socket, len.saturating_sub(offset)),
        }
    }
}
