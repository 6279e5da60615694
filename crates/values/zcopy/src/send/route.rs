//! Peer that a socket reaches.

use rustix::net::{AddressFamily, SocketAddrAny, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Peer that a socket reaches, and the path to it: the cost of each way depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Route {
    /// A Unix stream.
    Unix,
    /// TCP to this machine.
    Loopback,
    /// TCP to another.
    Remote,
    /// UDP to this machine.
    LocalDatagrams,
    /// UDP to another.
    Datagrams,
    /// Any other route. The bytes are copied.
    Other,
}

impl Route {
    pub(crate) const ALL: [Route; 6] = [
        Route::Unix,
        Route::Loopback,
        Route::Remote,
        Route::LocalDatagrams,
        Route::Datagrams,
        Route::Other,
    ];

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Route::Unix => "unix",
            Route::Loopback => "loopback",
            Route::Remote => "remote",
            Route::LocalDatagrams => "udp-local",
            Route::Datagrams => "udp",
            Route::Other => "other",
        }
    }

    /// Asks the kernel for a socket's type and family, and for its peer if that is an address of the Internet.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Route> {
        let is_ip = |family| matches!(family, AddressFamily::INET | AddressFamily::INET6);
        match (sockopt::socket_type(fd)?, sockopt::socket_domain(fd)?) {
            (SocketType::STREAM, AddressFamily::UNIX) => Ok(Route::Unix),
            (SocketType::STREAM, family) if is_ip(family) => Ok(if is_local(fd)? {
                Route::Loopback
            } else {
                Route::Remote
            }),
            (SocketType::DGRAM, family) if is_ip(family) => {
                // Not connected: each datagram says where it goes.
                Ok(if is_local(fd).unwrap_or(false) {
                    Route::LocalDatagrams
                } else {
                    Route::Datagrams
                })
            }
            _ => Ok(Route::Other),
        }
    }

    /// Returns the route of one datagram of a socket.
    pub(super) fn to(self, to: Option<SocketAddr>) -> Route {
        match to {
            Some(to) if self == Route::Datagrams && to.ip().to_canonical().is_loopback() => {
                Route::LocalDatagrams
            }
            _ => self,
        }
    }

    pub(super) fn is_stream(self) -> bool {
        matches!(self, Route::Unix | Route::Loopback | Route::Remote)
    }

    /// Returns whether the kernel leaves the sent data in its pages. It copies data that is looped to this machine.
    pub(super) fn leaves(self) -> bool {
        matches!(self, Route::Remote | Route::Datagrams)
    }
}

/// Returns whether the peer is this machine. An error if there is none.
fn is_local(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let Some(peer) = rustix::net::getpeername(fd)?.and_then(ip_of) else {
        return Ok(false);
    };
    Ok(peer.is_loopback() || ip_of(rustix::net::getsockname(fd)?) == Some(peer))
}

fn ip_of(address: SocketAddrAny) -> Option<IpAddr> {
    let address = SocketAddr::try_from(address).ok()?;
    Some(address.ip().to_canonical())
}
