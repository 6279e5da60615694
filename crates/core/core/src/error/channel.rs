//! Errors of channels.

use tranship_error::{Cause, ErrorKind};
use tranship_proto::{BufferId, PoolId};

/// A rule that the other end of a channel broke. The channel is closed; nothing else is touched.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The ring's cursor moved where it cannot.
    #[error("its ring cursor went to {head}, allowed is {min} to {max}")]
    Head {
        /// Value of the peer's cursor.
        head: u64,
        /// Smallest possible.
        min: u64,
        /// Largest possible.
        max: u64,
    },
    /// An operation that does not exist.
    #[error("operation {op} does not exist")]
    Operation {
        /// Number of the operation.
        op: u8,
    },
    /// More inline bytes than a line holds.
    #[error("{bytes} inline bytes, the limit is {}", tranship_ring::INLINE_BYTES)]
    InlineLength {
        /// Inline bytes that the line names.
        bytes: u8,
    },
    /// Bits of a line that this version does not use.
    #[error("word {word} of its line has {bits:#x} where version 1 has zeros")]
    Reserved {
        /// Number of the line's word.
        word: u8,
        /// Bits of the word that should be zero and are not.
        bits: u64,
    },
    /// A pool that is not assigned to this channel.
    #[error("pool {pool} is not assigned to this channel")]
    NotAssigned {
        /// The pool.
        pool: PoolId,
    },
    /// A slot outside the table.
    #[error("slot {slot} of {slots}")]
    Slot {
        /// Number of the slot.
        slot: u32,
        /// Slots of the pool.
        slots: u32,
    },
    /// Bytes outside the window.
    #[error("bytes {offset}+{length} are outside the pool's {max_bytes} bytes")]
    Range {
        /// Window offset.
        offset: u64,
        /// Length.
        length: u64,
        /// The pool's maximum.
        max_bytes: u64,
    },
    /// A forwarded reference names bytes that are not those of its buffer.
    #[error("bytes {offset}+{length} are not those of buffer {id}")]
    Elsewhere {
        /// The id sent.
        id: BufferId,
        /// Window offset.
        offset: u64,
        /// Length.
        length: u64,
    },
    /// The buffer was already reused when it arrived.
    #[error("buffer {id} is not alive (its generation is {now})")]
    Dead {
        /// The id sent.
        id: BufferId,
        /// The slot's generation.
        now: u32,
    },
    /// An aggregate list that does not hold together.
    #[error("an aggregate of {pieces} pieces in a list of {list_bytes} bytes")]
    Aggregate {
        /// Number of pieces that it names.
        pieces: u32,
        /// Length of its list.
        list_bytes: u64,
    },
    /// A list of pieces that cannot be read.
    #[error("the list of an aggregate: {0}")]
    List(#[from] tranship_region::layout::AggregateError),
    /// A chunk of a pool that others write, with holes in it: touching them would charge the receiver.
    #[error(
        "the chunk at window index {index} has memory for {backed_bytes} of its {chunk_bytes} bytes: a domain that may write the pool punched holes into it"
    )]
    Holes {
        /// The window index.
        index: u32,
        /// Bytes that have memory.
        backed_bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u64,
    },
    /// A chunk that does not exist.
    #[error("chunk serial {serial} at window index {index} does not exist")]
    Chunk {
        /// The window index.
        index: u32,
        /// The serial that the line names.
        serial: u32,
    },
}

/// The ring is full, and the sender does not wait, or has waited long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring of {lines} messages is full; waited {waited_ms} ms")]
pub struct RingFull {
    /// Lines of the ring.
    pub lines: u32,
    /// Time waited, milliseconds.
    pub waited_ms: u64,
}

/// The receiver has still to agree to the pool, which it does when it next calls the library. The request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the receiver has connected but not agreed to pool {pool} yet, which it does when it receives; waited {waited_ms} ms"
)]
pub struct PoolPending {
    /// The pool.
    pub pool: PoolId,
    /// Time waited, milliseconds.
    pub waited_ms: u64,
}

/// The receiver has not taken everything: it is gone, or the time is over ([`wait_taken`](crate::Sender::wait_taken)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{messages} messages were not taken{}", not_taken(*gone, *waited_ms))]
pub struct NotTaken {
    /// Number of messages that were not taken.
    pub messages: u64,
    /// Whether the receiver is gone.
    pub gone: bool,
    /// Time waited, milliseconds.
    pub waited_ms: u64,
}

fn not_taken(gone: bool, waited_ms: u64) -> String {
    if gone {
        ": the receiver is gone".into()
    } else {
        format!(" within {waited_ms} ms")
    }
}

impl Cause for Violation {
    fn kind(&self) -> ErrorKind {
        ErrorKind::PeerViolation
    }
}

impl Cause for RingFull {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Full
    }
}

impl Cause for PoolPending {
    fn kind(&self) -> ErrorKind {
        ErrorKind::PoolPending
    }
}

impl Cause for NotTaken {
    fn kind(&self) -> ErrorKind {
        match self.gone {
            true => ErrorKind::PeerGone,
            false => ErrorKind::TimedOut,
        }
    }
}

/// The two ends of a channel carry messages of different types. Both ends are closed, and nothing was sent.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    /// The first line of this end's [message type](crate::ChannelOptions::message_type). `None`: this end carries bytes without a type.
    pub own: Option<String>,
    /// The first line of the other end's message type. `None`: that end carries bytes without a type.
    pub theirs: Option<String>,
    /// The first line in which the two texts differ behind the first one: this end's, and the other end's. A text that has no such
    /// line is `None`.
    pub field: Option<(Option<String>, Option<String>)>,
}

impl std::error::Error for TypeMismatch {}

impl std::fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = |line: &Option<String>, none: &str| match line {
            Some(line) => format!("`{line}`"),
            None => none.to_owned(),
        };
        let [own, theirs] = [&self.own, &self.theirs].map(|t| line(t, "bytes without a type"));
        write!(f, "messages are {own} here and {theirs} at the other end")?;
        match &self.field {
            Some((here, there)) => {
                let [here, there] = [here, there].map(|field| line(field, "nothing"));
                write!(f, "; the first difference: {here} here, {there} there")
            }
            None if self.own.is_some() && self.theirs.is_some() => {
                f.write_str("; their fields are equal")
            }
            None => Ok(()),
        }
    }
}

impl Cause for TypeMismatch {
    fn kind(&self) -> ErrorKind {
        ErrorKind::ChannelBind
    }
}
