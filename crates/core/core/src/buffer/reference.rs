//! A buffer as messages name it.

use tranship_proto::BufferId;

/// The id of a buffer, and the place of its bytes in its pool's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The buffer's name.
    pub id: BufferId,
    /// Where its bytes begin in the pool's window.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The sum of the serials of the chunks that they lie in.
    pub serial: u32,
}
