//! The systems: each file one.

pub mod allocators;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
pub mod kernel;
pub mod netbufs;
mod raw;
pub mod shared;
pub mod tranship;

use crate::collect::{self, CollectEntry};
use crate::instructions::{self, StepsEntry};
use crate::peer::{Entry, entry};

/// All systems of `roundtrip` and `stream`, in the order in which each run visits them.
pub fn all() -> Vec<Entry> {
    vec![
        entry::<raw::Raw>(),
        entry::<tranship::Tranship>(),
        entry::<tranship::Inlined>(),
        #[cfg(feature = "iceoryx2")]
        entry::<iceoryx2::Iceoryx2>(),
        entry::<kernel::Bytes<kernel::Pipe>>(),
        entry::<kernel::Bytes<kernel::SeqPacket>>(),
        entry::<kernel::Bytes<kernel::Stream>>(),
    ]
}

/// All systems of `instructions`.
pub fn with_steps() -> Vec<StepsEntry> {
    vec![
        instructions::entry::<raw::Raw>(),
        instructions::entry::<tranship::Tranship>(),
        #[cfg(feature = "iceoryx2")]
        instructions::entry::<iceoryx2::Iceoryx2>(),
    ]
}

/// All systems of `collect`.
pub fn with_collect() -> Vec<CollectEntry> {
    vec![
        collect::entry::<tranship::Turns>(),
        #[cfg(feature = "iceoryx2")]
        collect::entry::<iceoryx2::Iceoryx2>(),
    ]
}

/// Whether iceoryx2 would be measured beside these, had this program been built with it: where `raw` is measured.
pub fn lacks_iceoryx2(systems: &[&str]) -> bool {
    systems.contains(&"raw") && !systems.contains(&"iceoryx2")
}
