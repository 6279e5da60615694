//! Models under loom.
#![cfg(loom)]

mod defer;
mod hazard;
#[path = "../model/mod.rs"]
mod model;
mod mpsc;
