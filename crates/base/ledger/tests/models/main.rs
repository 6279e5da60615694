//! Exhaustive models of liveness: every interleaving of every shared access of a small system.
//!
//! Each domain, the collector, the manager and (where there is one) a liar step through the orders that the
//! library itself runs through (`tranship_ledger::order`); [`explore`] visits every reachable state.
//!
//! The sizes here are reduced to seconds. `TRANSHIP_TORTURE=1` runs the large ones too.

mod collector;
mod config;
mod domain;
mod explore;
mod liar;
mod manager;
mod state;
mod writer;

mod broken;
mod direct;
mod honest;
mod hostile;
mod orders;
mod passes;
mod threads;

use config::Config;
use explore::explore;

/// Explores a system that must be right; prints its size.
fn holds(config: &Config) -> usize {
    let outcome = explore(config);
    println!(
        "{}: {} states, {} steps deep, right",
        config.name, outcome.states, outcome.depth
    );
    if let Some((why, trace)) = outcome.violation {
        panic!("{}: {why}\n{}", config.name, trace.join("\n"));
    }
    outcome.states
}

/// Explores a system with one rule taken away; returns what goes wrong.
fn breaks(config: &Config) -> &'static str {
    let outcome = explore(config);
    let (why, trace) = outcome.violation.unwrap_or_else(|| {
        panic!(
            "{}: nothing went wrong in all {} states",
            config.name, outcome.states
        );
    });
    println!(
        "{}: {why}, after {} steps, in {} states\n  {}",
        config.name,
        trace.len(),
        outcome.states,
        trace.join("\n  ")
    );
    why
}

/// Whether the large models were asked for.
fn torture() -> bool {
    std::env::var_os("TRANSHIP_TORTURE").is_some()
}
