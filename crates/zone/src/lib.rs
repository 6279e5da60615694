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
//! An item is a slot number, a `u32`; what it stands for is up to the user, and nothing is ever written into
//! items. [`Classes`] maps sizes to classes; [`RunAllocator`], [`SlotNumbers`] and [`Keg`] are plain structures which
//! their owner locks; [`Zone`] is what threads share.
//!
//! NOT here: shared memory, mapping, liveness of what was sent, quotas, blocking. They sit behind [`Backend`],
//! [`SlabSource`] and [`SlabHooks`].

pub mod arena;
mod bits;
mod bucket;
mod cache;
mod classes;
mod config;
mod depot;
pub mod item;
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

pub use arena::Arena;
pub use classes::Classes;
pub use config::{Barrier, Level, ZoneConfig, ZoneStats};
pub use item::{Bytes, ItemKeg, ItemOptions, ItemZone, Object};
pub use keg::{GrowError, Keg, NewSlab, Place, SlabHooks, SlabShape, SlabSource};
pub use own_work::around_own_work;
pub use runs::{PAGE, Run, RunAllocator};
pub use slots::{SlotNumbers, SlotSet};
pub use zone::{Backend, Zone};
