//! Zones, kegs and runs. `front` forks: a program of its own.

#[path = "../common/mod.rs"]
mod common;
mod keg;
mod runs;
mod stealing_model;
mod zone;
