//! The systems: each file one.

pub mod allocators;
mod capi;
mod fan;
pub mod heaps;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
pub mod kernel;
pub mod netbufs;
mod raw;
pub mod shared;
pub mod tranship;

use crate::collect::{self, CollectEntry};
use crate::demo::{self, FanEntry};
use crate::instructions::{self, StepsEntry};
use crate::ops::{self, OpsEntry};
use crate::peer::{Entry, entry};
use crate::tail::{self, TailEntry};

/// All systems of `roundtrip` and `stream`, in the order in which each run visits them.
pub fn all() -> Vec<Entry> {
    vec![
        entry::<raw::Raw>(),
        entry::<tranship::Tranship>(),
        entry::<tranship::Forwarded>(),
        entry::<tranship::Inlined>(),
        entry::<tranship::Moved<true>>(),
        entry::<tranship::Moved<false>>(),
        #[cfg(feature = "iceoryx2")]
        entry::<iceoryx2::Iceoryx2>(),
        entry::<kernel::Bytes<kernel::Pipe>>(),
        entry::<kernel::Bytes<kernel::SeqPacket>>(),
        entry::<kernel::Bytes<kernel::Stream>>(),
    ]
}

/// All systems of `c`.
pub fn with_c() -> Vec<Entry> {
    let mut all = vec![entry::<tranship::Tranship>()];
    all.extend(capi::is_there().then(entry::<capi::C>));
    all
}

/// All systems of `ops`.
pub fn with_ops() -> Vec<OpsEntry> {
    vec![
        ops::entry::<raw::Raw>(),
        ops::entry::<tranship::Tranship>(),
        #[cfg(feature = "iceoryx2")]
        ops::entry::<iceoryx2::Iceoryx2>(),
    ]
}

/// All systems of `tail`.
pub fn with_tail() -> Vec<TailEntry> {
    vec![
        tail::entry::<raw::Raw>(),
        tail::entry::<tranship::Tranship>(),
        #[cfg(feature = "iceoryx2")]
        tail::entry::<iceoryx2::Iceoryx2>(),
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

/// All systems of `demo`.
pub fn with_fan() -> Vec<FanEntry> {
    vec![
        demo::entry::<tranship::Shared>(),
        demo::entry::<fan::Copies<kernel::Pipe>>(),
        demo::entry::<fan::Copies<kernel::Stream>>(),
    ]
}

/// Systems that this program was built without, and the feature that brings them.
pub fn missing() -> &'static [(&'static str, &'static str)] {
    if cfg!(feature = "iceoryx2") {
        &[]
    } else {
        &[("iceoryx2", "iceoryx2")]
    }
}
