//! Rings in shared memory: both ends, the layout of their memory, sleeping and waking across processes.
//!
//! * [`Lines`], [`Producer`], [`Consumer`]: the ring of 64-byte lines of `docs/format.md`.
//! * [`HalfRw`], [`HalfRo`]: each end writes a half of its own and maps the other's read-only; [`Ring`] joins both,
//!   from one end's side.
//! * [`Ring::notify`], [`sleep`], [`doorbell`]: how an end that finds nothing sleeps, and how it is woken.
//! * [`broadcast`]: the ring of one writer that any number of readers map, and a desk for each of them.
//!
//! NOT here: what a line's words mean, the counters of references, how two ends meet (`core`), and memory of any other
//! kind (`region`).
//!
//! Everything but the mapping of memory is model-checked with weak memory: `RUSTFLAGS="--cfg loom" cargo test -p
//! tranship-ring --release --test loom_models --target-dir target/loom`.

pub mod broadcast;
mod consumer;
#[cfg(not(loom))]
pub mod doorbell;
mod everybody;
mod front;
mod half;
#[cfg_attr(loom, path = "kernel_model.rs")]
mod kernel;
mod line;
mod producer;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;
mod turns;
mod wait;

pub use consumer::Consumer;
pub use front::{Behind, Ending};
pub use half::Side;
#[cfg(not(loom))]
pub use half::{HalfRo, HalfRw, MAX_TYPE_BYTES, len};
pub use kernel::{Kernel, TIMED, wake_some};
pub use line::{INLINE_BYTES, Line, Lines, LinesError};
pub use producer::{Producer, Publish, Push, RingViolation};
pub use ring::Ring;
pub use turns::Turns;
pub use wait::{
    Futex, MAX_WORDS, Point, ROUND, SETTLE, Slept, Waited, Waker, is_asleep, sleep, sleep_once,
};
