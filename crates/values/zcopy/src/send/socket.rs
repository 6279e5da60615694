//! Record of a socket.

use super::held::Held;
use super::linger;
use super::marks;
use super::route::Route;
use super::way::Way;
use crate::kernel::scatter;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Properties of a socket, and the buffers of shared pools that the kernel may still read for it. Each send takes this
/// record. A stream is connected, and no other code takes its notifications (`MSG_ERRQUEUE`).
#[derive(Debug)]
pub struct Socket {
    pub(super) route: Route,
    pub(super) notified: Notified,
    /// Notifications that have not come yet.
    pub(super) outstanding: u32,
    /// The number of the next send with MSG_ZEROCOPY, as the kernel counts them.
    pub(super) next: u32,
    /// Pages that it is likely to have room for.
    pub(super) appetite: usize,
    /// The kernel takes several datagrams in one call.
    pub(super) together: bool,
    /// Most of the send under way lies in pages that were registered.
    pub(super) registered: bool,
    /// Number by which the notifications of such sends name it.
    pub(super) number: u32,
    /// The kernel copied data of registered pages all the same.
    pub(super) copies_registered: bool,
    /// Buffers that wait for notifications.
    pub(super) held: Held,
}

/// MSG_ZEROCOPY on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notified {
    /// Not asked for yet.
    Untried,
    /// In use.
    On,
    /// The socket cannot, or the kernel copied all the same.
    Off,
}

impl Socket {
    /// Looks at a socket.
    ///
    /// # Errors
    /// If it is no socket.
    pub fn new(fd: impl AsFd) -> io::Result<Socket> {
        let route = Route::of(fd.as_fd())?;
        // Another process had it, or another program does it: the owner of a notification cannot be known.
        let others = route.leaves() && scatter::allows_zerocopy(&fd)?;
        // The kernel copies data that is looped to this machine; asking it not to only costs.
        let notified = match route {
            Route::Remote if !others => Notified::Untried,
            _ => Notified::Off,
        };
        Ok(Socket {
            route,
            notified,
            // Notifications of the others are taken all the same.
            outstanding: if others { u32::MAX } else { 0 },
            next: 0,
            appetite: usize::MAX,
            together: true,
            registered: false,
            number: marks::number_of_socket(),
            copies_registered: false,
            held: Held::default(),
        })
    }

    /// Records a socket whose other end is on another machine although its address is one of this machine's, as that of
    /// a forwarder: MSG_ZEROCOPY is tried there too.
    ///
    /// # Errors
    /// As [`Socket::new`].
    #[doc(hidden)]
    pub fn elsewhere(fd: impl AsFd) -> io::Result<Socket> {
        let mut socket = Socket::new(fd)?;
        if socket.route == Route::Loopback {
            socket.route = Route::Remote;
            socket.notified = Notified::Untried;
        }
        Ok(socket)
    }

    /// Records a socket whose owner does not know of notifications: without MSG_ZEROCOPY, which would make poll(2)
    /// report an error.
    ///
    /// # Errors
    /// As [`Socket::new`].
    #[doc(hidden)]
    pub fn without_notifications(fd: impl AsFd) -> io::Result<Socket> {
        let mut socket = Socket::new(fd)?;
        socket.notified = Notified::Off;
        Ok(socket)
    }

    /// Returns whether it is a stream, of which parts can go by reference.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.route.is_stream()
    }

    /// Returns the bytes of shared pools' buffers that are kept for it until the kernel has reported that it is done
    /// with them, as of the last [`crate::Sender::send`] or [`crate::Sender::settle`].
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Waits until none are kept any more, at most that long; false if some still are. Call it before a program ends:
    /// at that time connections with kept buffers are reset, because nothing would keep the buffers.
    ///
    /// # Errors
    /// As poll(2) and recvmsg(2).
    pub fn finish(&mut self, limit: Duration) -> io::Result<bool> {
        self.held.finish(limit)
    }

    /// Resets the connection, so that the kernel forgets unsent data, and releases the buffers that were kept for it.
    /// Data that a device still has goes in the background.
    ///
    /// # Errors
    /// As connect(2).
    pub fn abort(mut self) -> io::Result<()> {
        self.held.abort()
    }

    pub(super) fn allows(&self, route: Route, way: Way) -> bool {
        match way {
            Way::Copy => true,
            Way::Splice => route.is_stream(),
            Way::File => false,
            Way::Notified => route == Route::Remote && self.notified != Notified::Off,
            Way::Registered => route == Route::Datagrams && self.registered,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        linger::keep(std::mem::take(&mut self.held));
    }
}
