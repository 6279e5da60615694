//! Models under total store order.
#![cfg(loom)]

mod bias;
mod direct;
mod queue;
