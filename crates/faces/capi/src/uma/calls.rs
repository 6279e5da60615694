//! The library starts no thread unless it is asked to: what zones need done now and then, allocations do that leave their thread's cache.

use facade::zone::{Driver, set_driver};
use std::sync::Once;

/// Before the first zone.
pub(crate) fn no_thread() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_driver(Driver::Calls));
}
