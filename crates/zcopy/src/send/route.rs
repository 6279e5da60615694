//! Whom a socket reaches.

use rustix::net::{AddressFamily, SocketAddrAny, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Whom a socket reaches, and how: what each way costs depends on it.
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
    /// None of these: copied.
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

    /// Asks the kernel: two calls for a stream to this machine, three for others.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Route> {
        match sockopt::socket_type(fd)? {
            SocketType::STREAM => {
                let Some(peer) = rustix::net::getpeername(fd)? else {
                    return Ok(Route::Other);
                };
                Ok(match peer.address_family() {
                    AddressFamily::UNIX => Route::Unix,
                    AddressFamily::INET | AddressFamily::INET6 if is_here(fd, &peer)? => {
                        Route::Loopback
                    }
                    AddressFamily::INET | AddressFamily::INET6 => Route::Remote,
                    _ => Route::Other,
                })
            }
            SocketType::DGRAM => Ok(match sockopt::socket_domain(fd)? {
                AddressFamily::INET | AddressFamily::INET6 => {
                    // Not connected: each datagram says where it goes.
                    let peer = rustix::net::getpeername(fd).ok().flatten();
                    if peer.is_some_and(|peer| is_here(fd, &peer).unwrap_or(false)) {
                        Route::LocalDatagrams
                    } else {
                        Route::Datagrams
                    }
                }
                _ => Route::Other,
            }),
            _ => Ok(Route::Other),
        }
    }

    /// That of one datagram of a socket.
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

    /// Does the kernel leave what it sends there in its pages? It copies what is looped to this machine.
    pub(super) fn leaves(self) -> bool {
        matches!(self, Route::Remote | Route::Datagrams)
    }
}

/// Is the peer this machine?
fn is_here(fd: BorrowedFd<'_>, peer: &SocketAddrAny) -> io::Result<bool> {
    let Some(peer) = ip_of(peer) else {
        return Ok(false);
    };
    Ok(peer.is_loopback() || ip_of(&rustix::net::getsockname(fd)?) == Some(peer))
}

fn ip_of(address: &SocketAddrAny) -> Option<IpAddr> {
    let address = SocketAddr::try_from(address.clone()).ok()?;
    Some(address.ip().to_canonical())
}
