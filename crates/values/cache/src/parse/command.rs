//! Commands.

use super::meta::Meta;
use crate::store::Mode;

/// Request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// Keys as they came, separated by spaces.
        keys: &'a [u8],
        /// Answer with each value's unique number.
        cas: bool,
        /// A new time to live for each.
        touch: Option<i64>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`: a value follows.
    Store(Put<'a>),
    /// `delete`.
    Delete {
        /// Key.
        key: &'a [u8],
        /// The client wants no answer.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// Key.
        key: &'a [u8],
        /// Amount.
        delta: u64,
        /// True for `decr`.
        down: bool,
        /// The client wants no answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Key.
        key: &'a [u8],
        /// The new time to live.
        expiry: i64,
        /// The client wants no answer.
        noreply: bool,
    },
    /// `flush_all`.
    Flush {
        /// Time: seconds from now, or above a month a date, seconds since 1970.
        time: i64,
        /// The client wants no answer.
        noreply: bool,
    },
    /// `stats`, with the name of a part.
    Stats(&'a [u8]),
    /// `version`.
    Version,
    /// `verbosity`: accepted, without effect.
    Verbosity {
        /// The client wants no answer.
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
    /// Rule for a value that is stored already.
    pub mode: Mode,
    /// Key.
    pub key: &'a [u8],
    /// The client's own word.
    pub flags: u32,
    /// Time to live.
    pub expiry: i64,
    /// Bytes of the value, without its line end.
    pub len: usize,
    /// The client wants no answer.
    pub noreply: bool,
}
