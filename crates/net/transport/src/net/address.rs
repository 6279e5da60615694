//! Address `HOST:PORT/NAME`: a machine, and a channel there.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use tranship_proto::check_text;

/// The longest name of a channel, bytes.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// An address, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: String,
    pub port: u16,
    pub name: String,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        let wrong =
            |what: &str| format!("{text:?}: {what}; it is HOST:PORT/NAME, or [IPV6]:PORT/NAME");
        let (place, name) = text.split_once('/').ok_or_else(|| wrong("no /NAME"))?;
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(|| wrong("no ]:PORT"))?,
            None => place.rsplit_once(':').ok_or_else(|| wrong("no :PORT"))?,
        };
        if host.is_empty() || !place.starts_with('[') && host.contains(':') {
            return Err(wrong("no host, or an IPv6 address without brackets"));
        }
        let port = port.parse().map_err(|why: std::num::ParseIntError| {
            wrong(&format!(
                "the port {port:?}: {why}, up to 65535 are allowed"
            ))
        })?;
        if !check_text(name, MAX_NAME_BYTES) {
            return Err(wrong(
                "the name has 1 to 255 bytes and only visible characters",
            ));
        }
        let (host, name) = (host.to_owned(), name.to_owned());
        Ok(Address { host, port, name })
    }

    /// Returns the socket addresses of this address; a name may have several. Blocks while the name is looked up.
    pub(super) fn places(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_addresses_look_like() {
        for (text, host, port, name) in [
            ("127.0.0.1:7700/video", "127.0.0.1", 7700, "video"),
            ("[::1]:1/a/b", "::1", 1, "a/b"),
            ("camera.local:65535/x y", "camera.local", 65535, "x y"),
        ] {
            let got = Address::parse(text).expect(text);
            assert_eq!((&*got.host, got.port, &*got.name), (host, port, name));
        }
        let long = format!("h:1/{}", "x".repeat(256));
        for wrong in [
            "",
            "video",
            "h/x",
            "h:/x",
            "h:1",
            "h:1/",
            ":1/x",
            "::1:1/x",
            "[::1]/x",
            "[::1:1/x",
            "h:65536/x",
            "h:x/x",
            "h:1/a\nb",
            &long,
        ] {
            let why = Address::parse(wrong).expect_err(wrong);
            assert!(why.contains("HOST:PORT/NAME"), "{why}");
        }
    }
}
