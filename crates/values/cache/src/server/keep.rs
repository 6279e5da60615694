//! State that an ending server leaves with the service manager for the next one: thus a restart keeps the values.
//!
//! The state consists of the arena's file, a file with the records of the keys, and the listening sockets, at which
//! clients wait meanwhile. It can be used once: before the next server writes to the arena, it empties the file of the
//! keys. If that server then dies, the file cannot be mistaken for the present state.

use super::handover::{as_file, read_file, write_down};
use super::shared::{Options, Shared};
use crate::image::Image;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use tranship_sys::service::Notifier;
use tranship_sys::{inherit, machine};

const ARENA: &str = "tranship-cache-arena";
const KEYS: &str = "tranship-cache-keys";
const TCP: &str = "tranship-cache-tcp";
const UDP: &str = "tranship-cache-udp";

/// State that was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) listener: Option<TcpListener>,
    pub(super) datagrams: Option<UdpSocket>,
    pub(super) values: Option<Values>,
}

/// Values of an earlier server, and its records of their keys.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) arena: OwnedFd,
    pub(super) image: Image,
    pub(super) once: Once,
}

/// File that is to be used only once.
#[derive(Debug)]
pub(super) struct Once(File);

/// Returns whether it is the address that is asked for.
fn fits(at: io::Result<SocketAddr>, wanted: SocketAddr) -> bool {
    at.is_ok_and(|at| at == wanted || (wanted.port() == 0 && at.ip() == wanted.ip()))
}

/// Returns the state that the service manager handed over, or a socket of its own (socket activation).
pub(super) fn find(options: &Options) -> Found {
    let mut found = Found::default();
    let listener = inherit::listen_socket().map(TcpListener::from);
    found.listener = listener.filter(|socket| fits(socket.local_addr(), options.listen));
    let (mut arena, mut keys) = (None, None);
    for (name, fd) in inherit::stored() {
        match &*name {
            ARENA => arena = Some(fd),
            KEYS => keys = Some(fd),
            UDP => {
                let socket = UdpSocket::from(fd);
                let wanted = options.udp.filter(|at| fits(socket.local_addr(), *at));
                found.datagrams = wanted.map(|_| socket);
            }
            _ => {}
        }
    }
    if let (Some(arena), Some(keys)) = (arena, keys) {
        match open(arena, keys) {
            Ok(values) => found.values = Some(values),
            Err(error) => tracing::warn!(%error, "the values that were kept cannot be read"),
        }
    }
    found
}

fn open(arena: OwnedFd, keys: OwnedFd) -> io::Result<Values> {
    let once = Once(File::from(keys.try_clone()?));
    let bytes = read_file(keys, machine::memory_total())?;
    let image = Image::decode(&bytes).map_err(io::Error::other)?;
    Ok(Values { arena, image, once })
}

impl Once {
    /// Makes the file of the keys unusable: from here on no server takes it for the present state.
    pub(super) fn use_up(self) -> io::Result<()> {
        self.0.set_len(0)
    }
}

/// Makes the service manager drop everything of an earlier server.
pub(super) fn forget(to: &Notifier) {
    for name in [ARENA, KEYS, TCP, UDP] {
        if let Err(error) = to.remove(name) {
            tracing::warn!(%error, name, "the service manager does not hear what is not to be kept");
        }
    }
}

/// Makes the service manager keep the state for the next server. Nobody serves any more. Returns how many values there
/// are.
pub(super) fn keep(
    shared: &Shared,
    listener: &TcpListener,
    datagrams: Option<&UdpSocket>,
    to: &Notifier,
) -> io::Result<usize> {
    shared.store.arena().give_away();
    let (image, lost) = write_down(shared);
    let values = image.items.len();
    let keys = as_file(&image.encode())?;
    to.store(TCP, listener.as_fd())?;
    if let Some(datagrams) = datagrams {
        to.store(UDP, datagrams.as_fd())?;
    }
    to.store(ARENA, shared.store.file())?;
    to.store(KEYS, keys.as_fd())?;
    tracing::info!(values, lost, "kept");
    Ok(values)
}
