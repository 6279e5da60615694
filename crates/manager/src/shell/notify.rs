//! Telling systemd that the socket is served.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub(super) fn ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &to));
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
