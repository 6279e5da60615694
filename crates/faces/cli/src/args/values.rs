//! Arguments and values that many commands take.

use clap::Args as ClapArgs;
use std::path::PathBuf;
use tranship_proto::text_fault;

/// Address of the manager; shared by all commands that talk to it.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct ConnectArgs {
    /// The manager's socket; default: $TRANSHIP_SOCKET, the system's, the user's. Where it is named, no manager is
    /// started.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Schemes of channels that go to another process.
const SCHEMES: &[&str] = match cfg!(feature = "net") {
    true => &["shm", "copy", "tcp", "tcp+plain"],
    false => &["shm"],
};

/// Parses the meeting point of `send` and `recv`: a name, or an address of another process.
pub(super) fn parse_address(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some(("local", name)) => Err(format!(
            "`local:` stays inside of one process, and the other end is another one: say `{name}` alone"
        )),
        Some((scheme, _)) if !SCHEMES.contains(&scheme) => Err(format!(
            "`{scheme}:` is no scheme; known are {}:. A name alone has no colon: shm:{text} would be one that has",
            SCHEMES.join(":, ")
        )),
        _ => parse_name(name_of(text)).map(|_| text.to_owned()),
    }
}

/// Returns the name in an address.
pub(crate) fn name_of(address: &str) -> &str {
    match address.split_once(':') {
        Some(("shm" | "copy", name)) => name,
        Some((_, rest)) => rest.split_once('/').map_or(rest, |(_, name)| name),
        None => address,
    }
}

/// Parses a name as the manager takes it; the manager decides, this only gives a better error.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    if let Some((at, c, _)) = text_fault(text) {
        Err(format!(
            "a name has only visible characters, this one has U+{:04X} at byte {at}",
            u32::from(c)
        ))
    } else if text.is_empty() || text.len() > 64 {
        Err(format!("a name has 1 to 64 bytes, this one {}", text.len()))
    } else {
        Ok(text.to_owned())
    }
}

pub(super) use tranship_run::units::{FORMS, parse_size, parse_size_or_none, parse_time};

/// Parses `127.0.0.1:11211`, `localhost:11211`, `[::1]:11211`, or a port alone, which is one of the loopback.
#[cfg(feature = "zcopy")]
pub(super) fn parse_place(text: &str) -> Result<std::net::SocketAddr, String> {
    use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let found = text.to_socket_addrs().map_err(|why| why.to_string());
    let wrong = |why: &str| format!("{why}; HOST:PORT such as 127.0.0.1:11211, or a port alone");
    found
        .map_err(|why| wrong(&why))?
        .next()
        .ok_or_else(|| wrong("it has no address"))
}
