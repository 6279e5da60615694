//! Programs with the allocator under them.

#[path = "../common/mod.rs"]
mod common;
mod limits;
mod lives;
mod mapped;
mod programs;
mod silent;
mod stress;
mod wrong;
