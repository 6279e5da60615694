//! Zones, kegs, buckets and runs: the one allocator.
//!
//! ```text
//!   thread 1        thread 2
//!  ┌─────────┐     ┌─────────┐
//!  │ A bucket│     │ A bucket│    Zone     items of one class; alloc and free touch only
//!  │ B spare │     │ B spare │             the calling thread's two buckets
//!  └────┬────┘     └────┬────┘
//!       └──────┬────────┘
//!        ┌─────┴──────┐
//!        │ full, empty│            Depot    whole buckets, under a lock
//!        └─────┬──────┘
//!              │ import, release   Backend  collector, keg, new slab, or nothing: ask for a chunk
//!   ┌──────────┴───────────┐
//!   │ ■■□■■■■□ │ ■■■■■■■■ │…       Keg      slabs of one size, a bitmap each, fullest first
//!   └────┬───────────┬─────┘
//!     run of pages  run of pages   RunAllocator
//!   ┌────┴───────────┴───┐ ┌────────────────────┐
//!   │ chunk 0            │ │ chunk 3            │   chunks come and go in a window
//!   └────────────────────┘ └────────────────────┘
//! ```
//!
//! To a [`Zone`] an item is a number, a `u32`. The backend gives it a meaning, and nothing is ever written into items.
//! [`Classes`] maps sizes to classes; [`RunAllocator`], [`SlotNumbers`] and [`Keg`] are plain structures which their
//! owner locks. The buffers of pools are made of these.
//!
//! Items in a process's own memory have a crate of their own over this one: `tranship-items`.
//!
//! - [`reaper`]: when memory goes back, and the effects of a fork.
//!
//! NOT here: shared memory between domains, liveness of sent buffers, quotas. They are behind [`Backend`],
//! [`SlabSource`] and [`SlabHooks`].

#![warn(missing_docs, clippy::missing_errors_doc)]

mod backend;
mod bits;
mod bucket;
mod cache;
mod classes;
mod config;
mod depot;
mod direct;
mod front;
mod keg;
mod local;
pub mod lock;
mod own_work;
pub mod reaper;
mod registry;
mod runs;
mod slots;
mod table;
mod wss;
mod zone;

pub use backend::Backend;
pub use classes::Classes;
pub use config::{Barrier, Level, ZoneConfig, ZoneStats};
pub use direct::CachePlace;
pub use keg::{GrowError, ItemPlace, Keg, NewSlab, SlabHooks, SlabShape, SlabSource};
pub use own_work::around_own_work;
pub use runs::{PAGE, Run, RunAllocator};
pub use slots::{SlotNumbers, SlotSet};
pub use zone::Zone;
