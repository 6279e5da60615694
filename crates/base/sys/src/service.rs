//! Telling the service manager things (sd_notify(3)).

use crate::socket;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where the service manager listens.
#[derive(Debug)]
pub struct Notifier(UnixDatagram);

impl Notifier {
    /// As the environment says (`NOTIFY_SOCKET`), if it does. No call waits if it is not to.
    pub fn from_environment(waits: bool) -> io::Result<Option<Notifier>> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
            return Ok(None);
        };
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(!waits)?;
        socket.connect_addr(&address?)?;
        Ok(Some(Notifier(socket)))
    }

    /// Says something.
    pub fn say(&self, text: &str) -> io::Result<()> {
        self.0.send(text.as_bytes()).map(drop)
    }

    /// Has a descriptor kept, until it is removed or the service ends for good. It is not looked at there, so that only we say when it goes.
    pub fn store(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        socket::sendmsg(&self.0, text.as_bytes(), &[fd], false)
    }

    /// Has what is kept under a name closed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"))
    }
}

impl From<UnixDatagram> for Notifier {
    fn from(socket: UnixDatagram) -> Notifier {
        Notifier(socket)
    }
}
