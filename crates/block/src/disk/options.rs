//! Options for opening a disk.

use crate::limits::BLOCK_BYTES;

/// Alignment of direct input and output: no disk needs more.
pub(super) const ALIGN: u64 = BLOCK_BYTES as u64;

/// Whether the page cache is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Without the page cache where the file system can do so.
    #[default]
    Auto,
    /// Without the page cache, or not at all.
    Direct,
    /// With the page cache.
    Buffered,
}

/// Options for opening a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskOptions {
    /// Size in bytes: makes the file, or makes it longer.
    pub size: Option<u64>,
    /// Writes are refused.
    pub read_only: bool,
    /// Whether the page cache is used.
    pub access: Access,
    /// Threads instead of io_uring, also where that is allowed.
    pub threads: bool,
}
