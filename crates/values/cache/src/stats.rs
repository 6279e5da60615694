//! Counts of the server's work so far.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one worker; only it writes them.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub(crate) struct Counts { $($(#[$doc])* pub(crate) $name: AtomicU64,)* }

        /// Counts since the server started, over all workers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Stats {
            pub(crate) fn add(&mut self, counts: &Counts) {
                // Relaxed: counts, on which nothing else depends.
                $(self.$name += counts.$name.load(Ordering::Relaxed);)*
            }

            /// Names and values, as `stats` prints them.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    /// Keys asked for.
    cmd_get,
    /// Values offered.
    cmd_set,
    /// `flush_all`.
    cmd_flush,
    /// Touches, `gat` included.
    cmd_touch,
    /// Meta commands.
    cmd_meta,
    /// Keys found.
    get_hits,
    /// Keys not found.
    get_misses,
    /// Deletions of keys that were stored.
    delete_hits,
    /// Deletions of keys that were not stored.
    delete_misses,
    /// `incr` of keys that were stored.
    incr_hits,
    /// Increments of keys that were not stored.
    incr_misses,
    /// `decr` of keys that were stored.
    decr_hits,
    /// Decrements of keys that were not stored.
    decr_misses,
    /// `cas` with the right number.
    cas_hits,
    /// `cas` of keys that were not stored.
    cas_misses,
    /// With another number.
    cas_badval,
    /// `touch` of keys that were stored.
    touch_hits,
    /// Touches of keys that were not stored.
    touch_misses,
    /// Values refused because they are too large.
    store_too_large,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Of those, bytes of values that went by reference.
    zcopy_referred_bytes,
    /// Bytes that the kernel copied.
    zcopy_copied_bytes,
    /// Connections so far.
    total_connections,
    /// Connections that were refused at the limit.
    rejected_connections,
    /// Connections that were closed because their replies were not taken.
    slow_clients_closed,
    /// Times that a connection was not read because its replies were not taken.
    conn_yields,
}

impl Counts {
    /// Adds to one of them.
    pub(crate) fn bump(count: &AtomicU64, by: u64) {
        // Relaxed: only this worker writes it.
        count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }
}
