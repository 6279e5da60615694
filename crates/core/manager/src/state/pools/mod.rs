//! Pools and heaps: making them, admitting memory, showing chunks to readers, forgetting them.

pub(super) mod chunks;
pub(super) mod create;
pub(super) mod feed;
pub(super) mod forget;
pub(super) mod heaps;
pub(super) mod memory;
pub(super) mod pool;
pub(super) mod show;
