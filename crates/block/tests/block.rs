//! Stores against a byte array: random operations on the disk itself, over channels, through a proxy, through its
//! cache.

#[path = "block/cache.rs"]
mod cache;
#[path = "block/charged.rs"]
mod charged;
#[path = "block/coherence.rs"]
mod coherence;
#[path = "block/export.rs"]
mod export;
#[path = "block/hostile.rs"]
mod hostile;
#[path = "block/kit.rs"]
mod kit;
#[path = "block/lack.rs"]
mod lack;
#[path = "block/largest.rs"]
mod largest;
#[path = "block/model.rs"]
mod model;
#[path = "block/nbd.rs"]
mod nbd;
#[path = "block/passed.rs"]
mod passed;
#[path = "block/promises.rs"]
mod promises;
#[path = "block/rules.rs"]
mod rules;
#[path = "block/users.rs"]
mod users;
