//! The twin allocator: pageblocks of values that are sent many times, beside the program's own heap.
//!
//! ```text
//!   alloc ─► heap (one of several, by thread) ─► pageblock being filled ─► full ─► queued
//!                                                                                    │ next send, in one batch, if it pays (`debt`)
//!   free ──► bit in the block's table (outside the block)                          frozen: sent without copying
//!                    └── last one: the block's pages are replaced, its place is free again
//! ```
//!
//! A slot of a frozen block is not used again before the whole block is empty: a sent value may still be under way, and
//! a new value would only fault. A block that is not frozen gives its freed slots out again.
//!
//! Locks are taken in this order: a heap, a block, `room`; `exchange` before a block. A fork takes `exchange` only.

mod account;
mod alloc;
mod block;
mod children;
pub(crate) mod classes;
mod debt;
mod epochs;
mod fork;
mod freeze;
mod handover;
mod heap;
mod inner;
mod opened;
mod options;
mod places;
mod protected;
mod runs;
mod slots;
mod stats;
mod view;

pub(crate) use alloc::Freed;
pub(crate) use epochs::Epochs;
pub use handover::ValuePlace;
pub(crate) use inner::Inner;
pub use options::Options;
pub use stats::Stats;
