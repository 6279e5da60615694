//! The systems: each file one.

pub mod allocators;
#[cfg(feature = "tonic")]
mod grpc;
#[cfg(feature = "iceoryx2")]
pub mod iceoryx2;
pub mod kernel;
pub mod raw;
pub mod shared;
pub mod tranship;

use crate::peer::{Entry, entry};

/// All systems of `roundtrip` and `stream`, in the order in which each run visits them.
pub fn all() -> Vec<Entry> {
    vec![
        entry::<raw::Raw>(),
        entry::<tranship::Tranship>(),
        #[cfg(feature = "iceoryx2")]
        entry::<iceoryx2::Iceoryx2>(),
        entry::<kernel::Bytes<kernel::Pipe>>(),
        entry::<kernel::Bytes<kernel::SeqPacket>>(),
        entry::<kernel::Bytes<kernel::Stream>>(),
    ]
}

/// The systems of `service`, in the order in which each run visits them.
pub fn of_services() -> Vec<Entry> {
    vec![
        entry::<tranship::Tranship>(),
        entry::<tranship::Served>(),
        #[cfg(feature = "iceoryx2")]
        entry::<iceoryx2::Served>(),
        #[cfg(feature = "tonic")]
        entry::<grpc::Tonic>(),
        entry::<kernel::Bytes<kernel::Stream>>(),
    ]
}

/// Whether iceoryx2 would be measured beside these, had this program been built with it: where `raw` is measured.
pub fn lacks_iceoryx2(systems: &[&str]) -> bool {
    systems.contains(&"raw") && !systems.contains(&"iceoryx2")
}
