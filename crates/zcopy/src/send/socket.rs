//! What is known about a socket.

use super::route::Route;
use super::way::Way;
use std::io;
use std::os::fd::AsFd;

/// What was found out about a socket; goes with it to each send. A stream is connected.
#[derive(Debug)]
pub struct Socket {
    pub(super) route: Route,
    pub(super) notified: Notified,
    /// Notifications that have not come yet.
    pub(super) outstanding: u32,
    /// Pages that it is likely to have room for.
    pub(super) appetite: usize,
    /// The kernel takes several datagrams in one call.
    pub(super) together: bool,
}

/// MSG_ZEROCOPY on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notified {
    /// Not asked for yet.
    Untried,
    /// In use.
    On,
    /// It cannot, or the kernel copied all the same.
    Off,
}

impl Socket {
    /// Looks at a socket.
    ///
    /// # Errors
    /// If it is no socket.
    pub fn new(fd: impl AsFd) -> io::Result<Socket> {
        let route = Route::of(fd.as_fd())?;
        let notified = if route.leaves() {
            Notified::Untried
        } else {
            // The kernel copies what is looped to this machine; asking it not to only costs.
            Notified::Off
        };
        Ok(Socket {
            route,
            notified,
            outstanding: 0,
            appetite: usize::MAX,
            together: true,
        })
    }

    /// As [`Socket::new`], for a socket whose owner does not know of notifications: without MSG_ZEROCOPY, which would have poll(2)
    /// say that there is an error.
    ///
    /// # Errors
    /// As [`Socket::new`].
    pub fn without_notifications(fd: impl AsFd) -> io::Result<Socket> {
        Ok(Socket {
            notified: Notified::Off,
            ..Socket::new(fd)?
        })
    }

    /// Is it a stream, of which parts can go by reference?
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.route.is_stream()
    }

    pub(super) fn allows(&self, route: Route, way: Way) -> bool {
        match way {
            Way::Copy => true,
            Way::Splice | Way::File => route.is_stream(),
            Way::Notified => route.leaves() && self.notified != Notified::Off,
        }
    }
}
