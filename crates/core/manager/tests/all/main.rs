//! The manager by its state alone, and over its real socket. Programs of their own: `ctrunc`, which uses up descriptors,
//! and `claims`, `simulation` and `restarts`.

#[path = "../common/ask.rs"]
mod ask;
#[path = "../common/mod.rs"]
mod common;
mod crowds;
mod endings;
mod ends;
mod files;
mod hogs;
#[path = "../common/house.rs"]
mod house;
mod limits;
mod memory;
mod one_pool;
#[path = "../common/pool.rs"]
mod pool;
mod pressure;
mod readers;
mod registered;
mod schedule;
mod sealed;
mod shared_channels;
mod slow_reader;
mod socket;
mod steering;
mod store;
mod stored;
mod topics;
mod tracing;
mod whose;
