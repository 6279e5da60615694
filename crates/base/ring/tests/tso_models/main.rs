//! Models under total store order.
#![cfg(loom)]

mod claims;
mod spin;
