//! Backend `copy:`: a session over a Unix stream socket, which is not made again. The baseline: the bytes of a buffer
//! are copied into the socket and out of it.

use super::line::Line;
use super::session::{End, Session};
use super::settings::Timing;
use super::timer;
use crate::door::{Door, Listens, thread};
use crate::{Backend, Error, ErrorKind, Met, Transport};
use std::any::Any;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;
use tranship_error::{of_kind, system};
use tranship_sys::socket;

/// The backend of abstract socket names on this machine. [`Transport`] has an example.
#[derive(Debug, Default)]
pub struct Copying;

/// Returns the address of a name on this machine.
fn abstract_name(name: &str) -> Result<SocketAddr, Error> {
    SocketAddr::from_abstract_name(format!("tranship/copy/{name}"))
        .map_err(of_kind(ErrorKind::InvalidEndpoint))
}

/// Returns a function that makes an error of the system's, unless it is of this kind: then the name is at fault.
fn unless(kind: io::ErrorKind) -> impl Fn(io::Error) -> Error {
    move |error| match error.kind() == kind {
        true => of_kind(ErrorKind::InvalidEndpoint)(error),
        false => of_kind(ErrorKind::System)(error),
    }
}

impl Backend for Copying {
    fn listen(&self, name: &str, met: Met) -> Result<Box<dyn Any + Send + Sync>, Error> {
        let listener = UnixListener::bind_addr(&abstract_name(name)?);
        let listener = listener.map_err(unless(io::ErrorKind::AddrInUse))?;
        let nonblocking = listener.set_nonblocking(true);
        nonblocking.map_err(system("fcntl"))?;
        // Connections inherit the setting, so none has descriptors in it when it is accepted.
        let _ = socket::pass_rights(&listener, false);
        let door = Door::new(met);
        let listens = Listens::start("tranship-listen", listener, move |listener| {
            let (stream, _) = listener.accept()?;
            if let Err(error) = welcome(stream, &door) {
                tracing::debug!(%error, "a connection was not made");
            }
            Ok(())
        });
        Ok(Box::new(listens.map_err(system("a carrier's thread"))?))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let stream = UnixStream::connect_addr(&abstract_name(name)?);
        over(stream.map_err(unless(io::ErrorKind::ConnectionRefused))?)
    }
}

fn welcome(stream: UnixStream, door: &Arc<Door>) -> Result<(), Error> {
    let peer = socket::peer_credentials(&stream).map_err(system("getsockopt"))?;
    let place = door.place(format!("user {}", peer.uid));
    let place =
        place.ok_or_else(|| Error::new(ErrorKind::Limit, "too many are about to connect"))?;
    let end = over(stream)?;
    let started = thread("tranship-greet", move || place.go_in(end));
    started.map_err(system("a carrier's thread")).map(drop)
}

/// Makes an end of a connection that is up. If it is lost, the other process is gone: nobody connects again.
fn over(stream: UnixStream) -> Result<Box<dyn Transport>, Error> {
    // No code takes descriptors; an older kernel does not know how to refuse them.
    let _ = socket::pass_rights(&stream, false);
    let timing = Timing {
        idle_timeout: Duration::MAX,
        grace: Duration::ZERO,
        ..Timing::default()
    };
    let made = || -> io::Result<Arc<Session>> {
        let session = Session::new([0; 16], timing, "this machine".to_owned(), None, None)?;
        // A stream socket is used alike whatever its family; options of TCP fail, and are only hints.
        let line = Line::new(TcpStream::from(OwnedFd::from(stream)), None)?;
        session.attach(&mut session.lock(), line, 0);
        timer::keep(Arc::clone(&session))?;
        Ok(session)
    };
    Ok(Box::new(End(made().map_err(system("a connection"))?)))
}
