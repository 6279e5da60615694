//! What is known about a socket.

use super::choice::Way;
use rustix::net::{SocketType, sockopt};
use std::io;
use std::os::fd::AsFd;

/// Whom a socket reaches, and how: what each way costs depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Route {
    /// A Unix stream.
    Unix,
    /// TCP to this machine.
    Loopback,
    /// TCP to another.
    Remote,
    /// Neither: copied.
    Other,
}

/// What was found out about a connected socket; goes with it to each send.
#[derive(Debug)]
pub struct Socket {
    pub(super) route: Route,
    pub(super) notified: Notified,
}

/// MSG_ZEROCOPY on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notified {
    /// Not asked for yet.
    Untried,
    /// In use; so many notifications are outstanding.
    On { outstanding: u32 },
    /// It cannot, or the kernel copied all the same.
    Off,
}

impl Socket {
    /// Looks at a connected socket.
    ///
    /// # Errors
    /// If it is no socket.
    pub fn new(fd: impl AsFd) -> io::Result<Socket> {
        let fd = fd.as_fd();
        let stream = sockopt::socket_type(fd)? == SocketType::STREAM;
        let route = match sockopt::socket_domain(fd)? {
            _ if !stream => Route::Other,
            rustix::net::AddressFamily::UNIX => Route::Unix,
            rustix::net::AddressFamily::INET | rustix::net::AddressFamily::INET6 => {
                let own = rustix::net::getsockname(fd)?;
                let peer = rustix::net::getpeername(fd)?;
                if peer.is_some_and(|peer| same_host(own, peer)) {
                    Route::Loopback
                } else {
                    Route::Remote
                }
            }
            _ => Route::Other,
        };
        let notified = if route == Route::Remote {
            Notified::Untried
        } else {
            // The kernel copies what is looped to this machine; asking it not to only costs.
            Notified::Off
        };
        Ok(Socket { route, notified })
    }

    /// Is it a stream, of which parts can go by reference?
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.route != Route::Other
    }

    pub(super) fn allows(&self, way: Way) -> bool {
        match way {
            Way::Copy => true,
            Way::Splice | Way::File => self.route != Route::Other,
            Way::Notified => self.notified != Notified::Off,
        }
    }
}

fn same_host(own: rustix::net::SocketAddrAny, peer: rustix::net::SocketAddrAny) -> bool {
    let ip = |addr: rustix::net::SocketAddrAny| {
        std::net::SocketAddr::try_from(addr)
            .ok()
            .map(|addr| addr.ip().to_canonical())
    };
    match (ip(own), ip(peer)) {
        (Some(own), Some(peer)) => own == peer || peer.is_loopback(),
        _ => false,
    }
}
