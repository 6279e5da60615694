//! Counts of a sender.

use crate::tally::{Tally, layout};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of a [`crate::Sender`] so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counts {
            /// Names and numbers.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Reads the counts from words on a page, in the same order.
            pub(crate) fn read(mut word: impl FnMut(usize) -> u64) -> Counts {
                let mut at = layout::COUNTS;
                $(let $name = word(at); at += 1;)*
                debug_assert!(at <= layout::COUNTS + layout::COUNTS_MOST);
                Counts { $($name,)* }
            }

            /// Returns the sum with others.
            #[must_use]
            pub(crate) fn plus(&self, others: &Counts) -> Counts {
                Counts { $($name: self.$name.wrapping_add(others.$name),)* }
            }
        }
    };
}

counts! {
    /// Calls of [`crate::Sender::send`] and [`crate::Sender::send_datagrams`].
    sends,
    /// Bytes that the kernel copied.
    copied_bytes,
    /// Bytes that went by reference to their pages.
    referred_bytes,
    /// System calls.
    calls,
    /// Sends of which the kernel took only a part.
    partial,
    /// Sockets on which MSG_ZEROCOPY, or sending out of registered pages, was given up because the kernel copied all
    /// the same.
    gave_up_notified,
    /// Datagrams.
    datagrams,
    /// Calls in which the kernel took several datagrams.
    together,
}

impl Counts {
    /// Returns the counts of a place on the page.
    pub(super) fn published(tally: &Tally) -> Counts {
        Counts::read(|at| tally.get(at))
    }

    /// Publishes the counts, on top of those that were there `before`.
    pub(super) fn publish(&self, tally: &Tally, before: &Counts) {
        for (at, (_, count)) in self.plus(before).rows().enumerate() {
            tally.set(layout::COUNTS + at, count);
        }
    }
}
