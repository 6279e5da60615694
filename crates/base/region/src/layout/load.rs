//! Words that only another domain writes: this process can only load them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

macro_rules! load {
    ($(#[$doc:meta])* $name:ident, $atomic:ty, $value:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a>(&'a $atomic);

        impl<'a> $name<'a> {
            /// Wraps a word that is mapped as long as it is borrowed.
            #[inline]
            pub fn new(word: &'a $atomic) -> Self {
                $name(word)
            }

            /// Loads the word. `Release` orders make no sense here and count as `Acquire`.
            #[inline]
            pub fn load(self, order: Ordering) -> $value {
                // On a read-only mapping Rust defines relaxed loads only. The fences therefore give the order. On
                // x86-64 the fence after an acquire costs nothing.
                if order == Ordering::SeqCst {
                    fence(Ordering::SeqCst);
                }
                let value = self.0.load(Ordering::Relaxed);
                if order != Ordering::Relaxed {
                    fence(Ordering::Acquire);
                }
                value
            }

            /// Returns the word's address, for futexes and for hand-written loops. Never store through it: it is mapped
            /// read-only.
            #[inline]
            pub fn as_ptr(self) -> *const $atomic {
                std::ptr::from_ref(self.0)
            }
        }
    };
}

load!(
    /// A `u32` that only another domain writes.
    LoadU32, AtomicU32, u32
);
load!(
    /// A `u64` that only another domain writes.
    LoadU64, AtomicU64, u64
);
