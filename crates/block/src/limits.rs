//! Sizes of blocks and messages, and how many of these there may be.

/// Bytes of a block, which has one checksum.
pub const BLOCK_BYTES: usize = 4096;
/// The longest head of a message with data, bytes: a request for as much as there may be, with all its checksums.
pub(crate) const HEAD_BYTES: usize = 512;
/// The most data of a message, bytes. Its checksums, five bytes each, fit into the head.
pub(crate) const MAX_DATA_BYTES: usize = 256 << 10;
/// Most questions of a client that may be without an answer.
pub(crate) const MOST_ASKED: usize = 128;
