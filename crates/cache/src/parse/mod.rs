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

/// A line, without its end.
///
/// # Errors
/// What the client is to be told.
pub fn parse(line: &[u8]) -> Result<Command<'_>, Wrong> {
    let (name, rest) = word(line);
    match name {
        b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" => meta::parse(name, rest).map(Command::Meta),
        _ => classic::parse(name, rest),
    }
}

#[cfg(test)]
mod tests;
