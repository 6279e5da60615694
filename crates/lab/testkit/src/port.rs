//! Ports for servers that have to be told theirs.

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// A port of 127.0.0.1 that the kernel gives to no other socket while this lives. A server that reuses addresses
/// (`SO_REUSEADDR`, as the standard library's listeners do) can have it, again and again. Until then a client that
/// connects is refused.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Bound, and never listening.
    _socket: OwnedFd,
}

impl Port {
    /// Takes one that is free.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn reserve() -> io::Result<Port> {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let at = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Port {
            number: at.port(),
            _socket: socket,
        })
    }

    /// Returns its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_reserved_port_is_a_servers_and_nobody_elses() {
        let port = Port::reserve().expect("a port");
        let at = (Ipv4Addr::LOCALHOST, port.number());
        let refused = TcpStream::connect(at).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            let server = TcpListener::bind(at).expect("its own");
            let _client = TcpStream::connect(at).expect("connect");
            server.accept().expect("accept");
        }
        // A program that takes any port gets another one.
        let others: Vec<_> = (0..200).map(|_| Port::reserve().expect("one")).collect();
        let given: Vec<_> = (0..200)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("one"))
            .collect();
        let given = given.iter().map(|one| one.local_addr().expect("it").port());
        let mut all = others.iter().map(Port::number).chain(given);
        assert!(all.all(|other| other != port.number()));
    }
}
