//! Ways to send, and why one was taken.

use std::{fmt, io};

/// A way to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Way {
    /// sendmsg(2): the kernel copies, many pieces in one call.
    Copy,
    /// vmsplice(2) and splice(2): references to pages by way of a pipe.
    Splice,
    /// sendfile(2): parts of files ([`crate::Piece::File`]), and nothing else.
    File,
    /// MSG_ZEROCOPY: references to pages, and a notification when they are free. Streams to other machines.
    Notified,
    /// io_uring's SENDMSG_ZC: datagrams to other machines, out of pages that were registered before.
    Registered,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [
        Way::Copy,
        Way::Splice,
        Way::File,
        Way::Notified,
        Way::Registered,
    ];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Copy => "copy",
            Way::Splice => "vmsplice",
            Way::File => "sendfile",
            Way::Notified => "MSG_ZEROCOPY",
            Way::Registered => "registered",
        })
    }
}

/// Reason for the way of a send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// Nothing of it could go by reference: see [`Cause`].
    Nothing,
    /// Too little of it could for references to pay on that kind of socket.
    Small,
    /// Enough of it could for references to pay on that kind of socket.
    Large,
    /// Datagrams whose pages are not registered yet.
    Unregistered,
    /// The program said so ([`crate::Sender::force`]).
    Told,
    /// The kernel copies by every other way, refused one a short time ago, or a signal ended it before the first byte.
    Refused,
    /// The socket has no other way, or cannot do as the program said.
    Socket,
    /// Buffers of shared pools: they are kept until the kernel says that it is done with them.
    Kept,
    /// A file's pages.
    File,
}

impl Why {
    /// All of them.
    pub const ALL: [Why; 9] = [
        Why::Nothing,
        Why::Small,
        Why::Large,
        Why::Unregistered,
        Why::Told,
        Why::Refused,
        Why::Socket,
        Why::Kept,
        Why::File,
    ];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Nothing => "nothing of it could go by reference",
            Why::Small => "too few bytes for references to pay there",
            Why::Large => "enough bytes for references to pay there",
            Why::Unregistered => "its pages are not registered yet",
            Why::Told => "the program said so",
            Why::Refused => "the kernel copies or refused otherwise, or a signal ended it",
            Why::Socket => "the socket has no other way, or not what the program said",
            Why::Kept => "buffers of shared pools, kept until the kernel is done with them",
            Why::File => "a file's pages",
        })
    }
}

/// Reason for which bytes were copied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Memory that may change afterwards, as headers are ([`crate::Piece::Bytes`]).
    Plain,
    /// A value whose pageblock is not full, and so not protected.
    Unprotected,
    /// A page that was written since it was protected.
    Written,
    /// The bytes could have gone by reference, but this send was made by copying.
    Chosen,
    /// Buffers of shared pools to a socket on which the kernel does not say when it is done with them (one of this
    /// machine), or too few bytes of them.
    Shared,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 5] = [
        Cause::Plain,
        Cause::Unprotected,
        Cause::Written,
        Cause::Chosen,
        Cause::Shared,
    ];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Plain => "memory that may change (headers)",
            Cause::Unprotected => "values in pageblocks that are not full",
            Cause::Written => "pages that were written since they were protected",
            Cause::Chosen => "copying was the way of the send",
            Cause::Shared => "buffers of shared pools, to this machine or few bytes of them",
        })
    }
}

/// Returns whether an error means "not now", which socket and way report with the same number.
pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Returns whether the error is one that a socket keeps for its sender and reports once.
pub(super) fn is_the_sockets(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EPIPE
                | libc::ECONNRESET
                | libc::ECONNABORTED
                | libc::ECONNREFUSED
                | libc::ETIMEDOUT
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::ENETRESET
        )
    )
}

/// Returns the result of a send that was refused by reference, with nothing sent, and then copied: usually the result
/// of the copy. A connection that is over has reported its error to the first attempt, and a signal ended that one.
pub(super) fn said<T>(refused: io::Error, copied: io::Result<T>) -> io::Result<T> {
    let first = match &copied {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => is_the_sockets(&refused),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock && is_later(&refused),
    };
    if first { Err(refused) } else { copied }
}
