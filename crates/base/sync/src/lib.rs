//! Atomics facade, fences, lock-free pieces in private memory.
//!
//! * [`atomic`]: the atomics of all crates, which loom can replace.
//! * [`Marks`]: which threads still read an object that they no longer hold.
//! * [`SlotQueue`]: a private queue of slot numbers, many pushers, one taker.
//! * [`DeferQueue`]: a ring of slot numbers with one pusher, and the number of its message with each.
//! * [`Owned`], [`Visitor`]: a value that one owner uses without a locked instruction, and visitors now and then.
//! * [`prefetch_read`], [`prefetch_write`]: asking for a cache line before it is needed.
//!
//! NOT here: system calls, and anything in shared memory (`ring`, `region`).
//!
//! The lock-free pieces are model-checked with weak memory: `RUSTFLAGS="--cfg loom" cargo test -p tranship-sync
//! --release --test loom_models --target-dir target/loom`.

pub mod atomic;
mod biased;
mod defer;
mod fence;
mod hazard;
mod mpsc;
mod prefetch;

pub use biased::{Entered, Gate, Look, Owned, Visitor};
pub use defer::{DeferProducer, DeferQueue};
pub use fence::{fence_after_rmw, full_fence, light_fence};
pub use hazard::{Mark, Marks};
pub use mpsc::{Pop, SlotQueue, Taker};
pub use prefetch::{drop_shared, prefetch_read, prefetch_write};
