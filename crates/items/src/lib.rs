//! Zones of items in a process's own memory: UMA in user space, complete.
//!
//! ```text
//!    ItemZone "packet"    ItemZone "mbuf"         caches, ctor and dtor, init and fini, a limit each
//!             └─────┬──────────┘
//!                ItemKeg                          slabs of items of one size, a reserve
//!                   │
//!                 Arena                           pages, and whose they are
//! ```
//!
//! An [`Arena`] is private memory, a memfd, or the caller's own [`Memory`](arena::Memory). [`ItemKeg`]s cut it into
//! slabs, and [`ItemZone`]s over these hand out addresses. Caches, slabs and reclamation are those of `tranship-zone`:
//!
//! ```
//! # mod tranship { pub use tranship_items as zone; }
//! use std::sync::Arc;
//! use tranship::zone::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};
//!
//! let arena = Arc::new(Arena::private(1 << 30)?);
//! let keg = ItemKeg::new(&arena, 256, 64)?;
//! let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("example").max(100_000));
//! let item = zone.alloc(()).expect("there are 100000");
//! assert_eq!(arena.tag_of(item.as_ptr()), keg.tag());
//! // SAFETY: allocated from this zone, freed once.
//! unsafe { zone.free(item) };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Object`]: callbacks for items on their way.
//! - [`item::Request`]: how long an allocation may wait.
//! - [`reaper`]: when memory goes back, and the effects of a fork.
//! - [`item::DebugOptions`]: how wrong use is found.
//!
//! NOT here: pools, buffers and channels, which do not need it.

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod arena;
pub mod item;

pub use arena::Arena;
pub use item::{Bytes, ItemKeg, ItemOptions, ItemZone, Object};
pub use tranship_zone::{Level, PAGE, ZoneConfig, ZoneStats, around_own_work, lock, reaper};
