//! memcached's text protocol (protocol.txt of its source): a line becomes a command. Pure.

mod classic;
mod meta;

pub use meta::{Flag, Meta, MetaKind};

use crate::store::Mode;

/// The longest key, bytes.
pub const KEY: usize = 250;

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// As they came, separated by spaces.
        keys: &'a [u8],
        /// With each value's unique number.
        cas: bool,
        /// A new time to live for each.
        touch: Option<i64>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`: a value follows.
    Store(Put<'a>),
    /// `delete`.
    Delete {
        /// Which.
        key: &'a [u8],
        /// Without an answer.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// Which.
        key: &'a [u8],
        /// By how much.
        delta: u64,
        /// `decr`.
        down: bool,
        /// Without an answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Which.
        key: &'a [u8],
        /// The new time to live.
        expiry: i64,
        /// Without an answer.
        noreply: bool,
    },
    /// `flush_all`.
    Flush {
        /// Seconds from now.
        delay: i64,
        /// Without an answer.
        noreply: bool,
    },
    /// `stats`, and which.
    Stats(&'a [u8]),
    /// `version`.
    Version,
    /// `verbosity`: accepted, without effect.
    Verbosity {
        /// Without an answer.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// One of the meta commands.
    Meta(Meta<'a>),
}

/// A value that follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put<'a> {
    /// How it goes with what is there.
    pub mode: Mode,
    /// Which.
    pub key: &'a [u8],
    /// The client's own word.
    pub flags: u32,
    /// Time to live.
    pub expiry: i64,
    /// Bytes of the value, without its line end.
    pub len: usize,
    /// Without an answer.
    pub noreply: bool,
}

/// What is wrong with a line, as the client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The answer's line, without its end.
    pub answer: &'static str,
    /// So many bytes and a line end follow that are no command.
    pub swallow: Option<usize>,
}

impl Wrong {
    const UNKNOWN: Wrong = Wrong::line("ERROR");
    const FORMAT: Wrong = Wrong::line("CLIENT_ERROR bad command line format");

    const fn line(answer: &'static str) -> Wrong {
        Wrong {
            answer,
            swallow: None,
        }
    }
}

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

/// The first word and what follows.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let start = line
        .iter()
        .position(|byte| *byte != b' ')
        .unwrap_or(line.len());
    let line = &line[start..];
    let end = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    (&line[..end], &line[end..])
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
}

fn number<T: std::str::FromStr>(word: Option<&[u8]>) -> Result<T, Wrong> {
    word.and_then(|word| std::str::from_utf8(word).ok())
        .and_then(|word| word.parse().ok())
        .ok_or(Wrong::FORMAT)
}

/// A key that may be used.
///
/// # Errors
/// It is empty or too long, or has a control character.
pub fn key(word: Option<&[u8]>) -> Result<&[u8], Wrong> {
    let word = word.ok_or(Wrong::UNKNOWN)?;
    if word.is_empty() || word.len() > KEY || word.iter().any(|byte| *byte < 33 || *byte == 127) {
        return Err(Wrong::FORMAT);
    }
    Ok(word)
}

#[cfg(test)]
mod tests;
