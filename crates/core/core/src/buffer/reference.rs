//! A buffer as messages name it.

use tranship_proto::BufferId;

/// The id of a buffer, and the place of its bytes in its pool's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) id: BufferId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Serial of the chunks of these bytes.
    pub(crate) serial: u32,
}
