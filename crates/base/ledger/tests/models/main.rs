//! Exhaustive models of liveness: every interleaving of every shared access of a small system.
//!
//! Each domain, the collector, the manager and (where there is one) a liar step through the orders that the
//! library itself runs through (`tranship_ledger::order`); [`explorer`] visits every reachable state.
//!
//! The sizes here are reduced to seconds. `TRANSHIP_TORTURE=1` runs the large ones too.

#[path = "../explorer/mod.rs"]
mod explorer;

mod collector;
mod config;
mod domain;
mod liar;
mod manager;
mod state;
mod system;
mod writer;

mod broken;
mod direct;
mod honest;
mod hostile;
mod orders;
mod passes;
mod threads;

use config::Config;
use explorer::torture;

/// Explores a system that must be right; prints its size.
fn holds(config: &Config) -> usize {
    explorer::holds(&config.name, &mut &*config)
}

/// Explores a system with one rule taken away; returns what goes wrong.
fn breaks(config: &Config) -> &'static str {
    explorer::breaks(&config.name, &mut &*config)
}
