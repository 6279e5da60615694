//! Two connected ends.

use rustix::net::sockopt;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

pub enum Pair {
    Tcp(TcpStream, TcpStream),
    Unix(UnixStream, UnixStream),
}

pub fn tcp() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    near.set_nonblocking(true).expect("nonblocking");
    Pair::Tcp(near, far)
}

/// Returns a connection like [`tcp`], with little room at the other end and much at this one.
pub fn narrow() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    sockopt::set_socket_recv_buffer_size(&listener, 32 << 10).expect("a buffer");
    let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    sockopt::set_socket_send_buffer_size(&near, 4 << 20).expect("a buffer");
    near.set_nonblocking(true).expect("nonblocking");
    Pair::Tcp(near, far)
}

pub fn unix() -> Pair {
    let (near, far) = UnixStream::pair().expect("pair");
    near.set_nonblocking(true).expect("nonblocking");
    Pair::Unix(near, far)
}

impl Pair {
    pub fn near(&self) -> BorrowedFd<'_> {
        match self {
            Pair::Tcp(near, _) => near.as_fd(),
            Pair::Unix(near, _) => near.as_fd(),
        }
    }

    pub fn far(&self) -> Box<dyn Read + '_> {
        match self {
            Pair::Tcp(_, far) => Box::new(far),
            Pair::Unix(_, far) => Box::new(far),
        }
    }

    /// Takes so many bytes, and checks that there are no more.
    pub fn takes(&self, len: usize) -> Vec<u8> {
        let mut got = vec![0; len];
        self.far().read_exact(&mut got).expect("read");
        assert!(self.is_dry(), "more came than was sent");
        got
    }

    /// Returns whether nothing is there to be read.
    fn is_dry(&self) -> bool {
        let dry = |read: std::io::Result<usize>| matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        match self {
            Pair::Tcp(_, far) => {
                far.set_nonblocking(true).expect("nonblocking");
                dry((&mut &*far).read(&mut [0]))
            }
            Pair::Unix(_, far) => {
                far.set_nonblocking(true).expect("nonblocking");
                dry((&mut &*far).read(&mut [0]))
            }
        }
    }
}
