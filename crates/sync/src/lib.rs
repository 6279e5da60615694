//! Atomics facade, single-producer rings, sleeping and waking across processes, hazard pointers.
//!
//! * [`atomic`]: the atomics everybody uses, which loom can replace.
//! * [`Lines`], [`Producer`], [`Consumer`]: the ring of 64-byte lines of `docs/format.md`.
//! * [`sleep`], [`arm`], [`notify`]: the sleeping protocol between two domains.
//! * [`Marks`]: who still looks at something that it does not hold any more.
//! * [`SlotQueue`]: a private queue of slot numbers, many pushers, one taker.
//! * [`Spin`]: a bounded busy wait.
//!
//! NOT here: system calls (the [`Futex`] trait is implemented above, on `tranship-sys`), the meaning of a
//! line's words, the counters of references, and the mapping of shared memory.
//!
//! The lock-free pieces are model-checked with weak memory:
//! `RUSTFLAGS="--cfg loom" cargo test -p tranship-sync --release --test 'loom_*' --target-dir target/loom`.

pub mod atomic;
mod consumer;
mod fence;
mod hazard;
mod line;
mod mpsc;
mod prefetch;
mod producer;
mod spin;
mod wait;

pub use consumer::Consumer;
pub use fence::fence_after_rmw;
pub use hazard::{Mark, Marks};
pub use line::{Line, Lines, LinesError};
pub use mpsc::{Pop, SlotQueue, Taker};
pub use prefetch::{prefetch_read, prefetch_write};
pub use producer::{Producer, Publish, Push, RingViolation};
pub use spin::{Spin, Turn};
pub use wait::{
    Asleep, Futex, MAX_WORDS, Point, ROUND, SETTLE, Slept, Waited, Waker, arm, disarm,
    fence_then_notify, notify, sleep, sleep_once,
};
