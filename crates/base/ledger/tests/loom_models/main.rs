//! Models under loom.
#![cfg(loom)]

mod bias;
mod collect;
mod handles;
mod orphans;
mod relinquish;
mod rounds;
