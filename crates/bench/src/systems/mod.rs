//! The systems: each file one.

#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod kernel;
mod raw;
mod shared;

use crate::peer::{Entry, entry};

/// All systems of `roundtrip` and `stream`, in the order in which each run visits them.
pub fn all() -> Vec<Entry> {
    vec![
        entry::<raw::Raw>(),
        #[cfg(feature = "iceoryx2")]
        entry::<iceoryx2::Iceoryx2>(),
        entry::<kernel::Bytes<kernel::Pipe>>(),
        entry::<kernel::Bytes<kernel::SeqPacket>>(),
        entry::<kernel::Bytes<kernel::Stream>>(),
    ]
}

/// Systems that this program was built without, and the feature that brings them.
pub fn missing() -> &'static [(&'static str, &'static str)] {
    if cfg!(feature = "iceoryx2") { &[] } else { &[("iceoryx2", "iceoryx2")] }
}
