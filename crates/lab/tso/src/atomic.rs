//! Atomics in models: loom's, or, in an exploration, words of its memory.

use crate::session::{Change, Op, Word, is_running, perform};
use loom::sync::atomic as weak;
pub use loom::sync::atomic::Ordering;

/// Does an operation on an atomic: loom's of that name, or in an exploration one step.
macro_rules! done {
    ($self:ident.$name:ident($($given:expr),*), $word:ident => $step:expr) => {
        match &$self.0 {
            Either::Loom(weak) => weak.$name($($given),*),
            Either::Explored($word) => Bits::from_bits(perform($step)),
        }
    };
}

/// Defines operations that change a word in one step by a value, and return the old value.
macro_rules! changes {
    ($value:ty: $($name:ident = $change:ident),*) => { $(
        #[track_caller]
        pub fn $name(&self, by: $value, order: Ordering) -> $value {
            done!(self.$name(by, order), word => Op::Locked(*word, Change::$change(by.to_bits())))
        }
    )* };
}

macro_rules! atomic {
    ($name:ident $([$t:ident])?, $value:ty, $mask:expr) => {
        /// An atomic with the interface of std's.
        #[derive(Debug)]
        pub struct $name $(<$t>)? (Either<weak::$name $(<$t>)?>);

        impl $(<$t>)? $name $(<$t>)? {
            #[track_caller]
            pub fn new(value: $value) -> Self {
                let to = <$value as Bits>::to_bits;
                Self(match Word::new(to(value), $mask) {
                    Some(word) => Either::Explored(word),
                    None => Either::Loom(weak::$name::new(value)),
                })
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                done!(self.load(order), word => Op::Load(*word))
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                done!(self.store(value, order), word => match order {
                    // The compiler's translation: an exchange.
                    Ordering::SeqCst => Op::Locked(*word, Change::Swap(value.to_bits())),
                    _ => Op::Store(*word, value.to_bits()),
                })
            }

            changes!($value: swap = Swap);

            #[track_caller]
            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                match &self.0 {
                    Either::Loom(weak) => weak.compare_exchange(from, to, success, failure),
                    Either::Explored(word) => {
                        let (from, to) = (from.to_bits(), to.to_bits());
                        let was = perform(Op::Locked(*word, Change::Exchange { from, to }));
                        let result = Bits::from_bits(was);
                        if was == from { Ok(result) } else { Err(result) }
                    }
                }
            }

            /// Does not fail spuriously: neither loom's version nor the processor's does.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, success, failure)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value, <$value as Bits>::to_bits(<$value>::MAX));

        impl Default for $name {
            #[track_caller]
            fn default() -> Self {
                Self::new(0)
            }
        }

        impl $name {
            changes!($value: fetch_add = Add, fetch_sub = Sub);
        }
    };
}

/// The model that a word belongs to.
#[derive(Debug)]
enum Either<W> {
    Loom(W),
    Explored(Word),
}

/// A value as a word of the explored memory.
trait Bits: Sized {
    fn to_bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! bits {
    ($value:ty) => {
        impl Bits for $value {
            #[allow(trivial_numeric_casts)]
            fn to_bits(self) -> u64 {
                self as u64
            }
            #[allow(trivial_numeric_casts, clippy::cast_possible_truncation)] // it was one
            fn from_bits(bits: u64) -> $value {
                bits as $value
            }
        }
    };
}

bits!(u32);
bits!(u64);
bits!(usize);

/// For operations that return nothing.
impl Bits for () {
    fn to_bits(self) -> u64 {
        0
    }
    fn from_bits(_: u64) {}
}

impl Bits for bool {
    fn to_bits(self) -> u64 {
        self.into()
    }
    fn from_bits(bits: u64) -> bool {
        bits != 0
    }
}

impl<T> Bits for *mut T {
    fn to_bits(self) -> u64 {
        self.expose_provenance().to_bits()
    }
    fn from_bits(bits: u64) -> *mut T {
        std::ptr::with_exposed_provenance_mut(usize::from_bits(bits))
    }
}

number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
atomic!(AtomicBool, bool, 1);
atomic!(AtomicPtr[T], *mut T, u64::MAX);

impl<T> Default for AtomicPtr<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

impl AtomicU32 {
    /// Returns the word's place in an exploration.
    pub(crate) fn word(&self) -> Option<Word> {
        match &self.0 {
            Either::Loom(_) => None,
            Either::Explored(word) => Some(*word),
        }
    }
}

/// Fences as std's function does. In an exploration acquire and release fences do nothing, because total store order
/// gives that order anyway.
pub fn fence(order: Ordering) {
    if !is_running() {
        weak::fence(order);
    } else if order == Ordering::SeqCst {
        perform(Op::Fence);
    }
}

/// Models the `light_fence` of `tranship-sync`. In an exploration it does nothing, as on the processor: the paying
/// thread makes the others pass a fence. loom has no such fence, so a full fence stands for it there.
pub fn light_fence() {
    if !is_running() {
        weak::fence(Ordering::SeqCst);
    }
}

/// Yields as std's function does.
pub fn yield_now() {
    if !Word::yields() {
        loom::thread::yield_now();
    }
}

/// Yields, as a spin loop does under exploration.
pub fn spin_loop() {
    yield_now();
}
