//! Telling the service manager things (sd_notify(3)).

use crate::socket;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A connection to the service manager.
#[derive(Debug)]
pub struct Notifier(UnixDatagram);

impl Notifier {
    /// Makes a notifier from the environment (`NOTIFY_SOCKET`), if it names one. Calls wait only if `waits` is set.
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

    /// Asks the service manager to keep a descriptor until it is removed or the service ends for good. The service
    /// manager does not poll it, so it goes only when this process says so.
    pub fn store(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        socket::sendmsg(&self.0, text.as_bytes(), &[fd], false)
    }

    /// Asks the service manager to close the descriptors kept under a name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"))
    }
}

impl From<UnixDatagram> for Notifier {
    fn from(socket: UnixDatagram) -> Notifier {
        Notifier(socket)
    }
}
