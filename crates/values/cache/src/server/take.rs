//! The successor's side of a hand-over.

use super::handover::{PATIENCE, Say, hear, is_friend, odd, read_file, say};
use crate::image::{Client, FORMAT, Image};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use tranship_sys::{machine, pidfd, socket};

/// Offer of a server that hands over, until the successor says that it can be used.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) image: Image,
    pub(super) arena: OwnedFd,
    pub(super) control: OwnedFd,
    pub(super) listener: TcpListener,
    pub(super) datagrams: Option<UdpSocket>,
    pub(super) streams: Vec<(TcpStream, Client)>,
    /// The number of the process.
    pub(super) from: u32,
    process: Option<OwnedFd>,
    socket: OwnedFd,
}

/// Asks the server at a socket; none if there is none.
pub(super) fn ask(at: &Path) -> io::Result<Option<Offered>> {
    let socket = match socket::connect(at) {
        Ok(socket) => socket,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !is_friend(&socket)? {
        return Err(odd("the server there is another user's"));
    }
    let from = socket::peer_credentials(&socket)?.pid;
    let process = socket::peer_pidfd(&socket)?;
    say(&socket, &Say::Take(FORMAT), &[])?;
    let Some(heard) = hear(&socket)? else {
        return Err(odd("the server there ended"));
    };
    match heard.say {
        Say::Image => {}
        Say::No(why) => return Err(odd(format!("the server there refused: {why}"))),
        _ => return Err(odd("the server there gave an unexpected answer")),
    }
    let mut fds = heard.fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| odd("descriptors are missing"));
    let (arena, bytes, control) = (next()?, next()?, next()?);
    let listener = TcpListener::from(next()?);
    let datagrams = fds.next().map(UdpSocket::from);
    let mut image = Image::decode(&read_file(bytes, machine::memory_total())?)
        .map_err(|wrong| odd(format!("the image cannot be read: {wrong}")))?;
    let clients = std::mem::take(&mut image.connections);
    let mut streams = Vec::new();
    while streams.len() < clients.len() {
        match hear(&socket)? {
            Some(heard) if heard.say == Say::Connections && !heard.fds.is_empty() => {
                streams.extend(heard.fds.into_iter().map(TcpStream::from));
            }
            _ => return Err(odd("connections are missing")),
        }
    }
    Ok(Some(Offered {
        image,
        arena,
        control,
        listener,
        datagrams,
        streams: streams.into_iter().zip(clients).collect(),
        from,
        process,
        socket,
    }))
}

/// Rest of an offer when its parts are in use.
#[derive(Debug)]
pub(super) struct Pending {
    process: Option<OwnedFd>,
    socket: OwnedFd,
}

impl Offered {
    pub(super) fn pending(&mut self) -> io::Result<Pending> {
        Ok(Pending {
            process: self.process.take(),
            socket: self.socket.try_clone()?,
        })
    }
}

impl Pending {
    /// Says that it can be used, and waits until the former server lets go of it.
    pub(super) fn ready(self) -> io::Result<()> {
        let said = say(&self.socket, &Say::Ready, &[]);
        let heard = said.and_then(|()| hear(&self.socket));
        if let Ok(Some(heard)) = &heard
            && heard.say == Say::Yours
        {
            return Ok(());
        }
        // The successor may have died on the way: then no process has the cache.
        let process = self.process.as_ref();
        let dead = process.map(|process| pidfd::wait_dead(process, Some(PATIENCE)));
        match dead {
            Some(Ok(true)) => Ok(()),
            _ => Err(odd("the former server did not let go of it, and goes on")),
        }
    }
}
