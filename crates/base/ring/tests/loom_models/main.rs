//! Models under loom.
#![cfg(loom)]

mod bell;
mod claims;
#[path = "../model/mod.rs"]
mod model;
mod ring;
mod tasks;
mod wait;
