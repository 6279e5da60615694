//! A buffer as others are told of it.

use tranship_proto::BufferId;

/// Which one, and where in its pool's window its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) id: BufferId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Of the chunks that they lie in.
    pub(crate) serial: u32,
}
