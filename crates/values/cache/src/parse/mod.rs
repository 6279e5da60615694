//! memcached's text protocol (protocol.txt of its source): a line becomes a command. Pure.

mod classic;
mod command;
mod meta;
mod words;

pub use classic::long_get;
pub use command::{Command, Put};
pub use meta::{Flag, Meta, MetaKind};
pub use words::{KEY, Wrong, key, words};

use words::word;

/// Parses a line, without its end.
///
/// # Errors
/// The error for the client.
pub fn parse(line: &[u8]) -> Result<Command<'_>, Wrong> {
    let (name, rest) = word(line);
    match name {
        b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" => meta::parse(name, rest).map(Command::Meta),
        _ => classic::parse(name, rest),
    }
}

/// First words of HTTP requests. No command begins with them.
const VERBS: [&[u8]; 10] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI ",
];
/// The first byte of a request by memcached's binary protocol, and of a greeting by TLS.
const BINARY: [u8; 2] = [0x80, 0x16];

/// Returns whether a line begins as another protocol does. A browser can be made to send commands in the body of a
/// request. A client of the binary protocol awaits an answer that this server does not give.
#[must_use]
pub fn is_foreign(line: &[u8]) -> bool {
    line.first().is_some_and(|first| BINARY.contains(first))
        || VERBS.iter().any(|verb| line.starts_with(verb))
}

#[cfg(test)]
mod tests;
