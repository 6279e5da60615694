//! Models under total store order.
#![cfg(loom)]

mod biased;
mod litmus;
