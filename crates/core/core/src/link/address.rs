//! Addresses of channels: the way of the bytes, and the name.

use crate::error::{Error, ErrorKind};

/// An address, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address<'a> {
    /// `NAME` or `shm:NAME`: a name at the manager.
    Named(&'a str),
    /// `local:NAME`: a name within this process.
    Local(&'a str),
    /// `SCHEME:REST`: an address of a carrier.
    Carried { scheme: &'a str, rest: &'a str },
}

impl<'a> Address<'a> {
    /// Takes an address apart. Any text is an address; the caller finds out whether a carrier has the scheme.
    pub(crate) fn parse(text: &'a str) -> Address<'a> {
        match text.split_once(':') {
            Some(("shm", name)) => Address::Named(name),
            Some(("local", name)) => Address::Local(name),
            Some((scheme, rest)) if is_scheme(scheme) => Address::Carried { scheme, rest },
            _ => Address::Named(text),
        }
    }
}

/// Whether a text is a scheme, as in URLs, in small letters.
fn is_scheme(text: &str) -> bool {
    let rest =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    text.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_lowercase())
        && text.bytes().all(rest)
}

/// Returns the error of a scheme that no carrier has.
pub(crate) fn unknown(scheme: &str, known: &[&str]) -> Error {
    let mut all = vec!["shm", "local"];
    all.extend(known);
    let all: Vec<String> = all.iter().map(|scheme| format!("`{scheme}:`")).collect();
    let text = format!(
        "no channel travels by `{scheme}:` here; known are {}, and a name alone is `shm:`. What goes to other machines has to be added to the domain first (carrier::add_to)",
        all.join(", ")
    );
    Error::new(ErrorKind::InvalidEndpoint, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_addresses_mean() {
        let carried = |scheme, rest| Address::Carried { scheme, rest };
        for (text, meaning) in [
            ("video", Address::Named("video")),
            ("shm:video", Address::Named("video")),
            ("shm:a:b", Address::Named("a:b")),
            ("local:video", Address::Local("video")),
            ("tcp:h:1/x", carried("tcp", "h:1/x")),
            ("tcp+plain:[::1]:1/x", carried("tcp+plain", "[::1]:1/x")),
            ("Jobs: all", Address::Named("Jobs: all")),
            (":x", Address::Named(":x")),
            ("", Address::Named("")),
        ] {
            assert_eq!(Address::parse(text), meaning, "{text:?}");
        }
        let error = unknown("udp", &["tcp"]).to_string();
        for known in ["`udp:`", "`shm:`", "`local:`", "`tcp:`"] {
            assert!(error.contains(known), "{error}");
        }
    }
}
