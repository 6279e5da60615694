//! The atomics of the whole workspace: std's, or, under `--cfg loom`, those of `tranship-tso` for models.
//!
//! loom gives `SeqCst` on a load, store or swap the meaning of `AcqRel` only; it models `fence(SeqCst)`
//! fully. Code whose proof needs a `SeqCst` access therefore adds a fence under loom (see `Publish::SeqCst`).

#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};
#[cfg(loom)]
pub use tranship_tso::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence, spin_loop, yield_now,
};
