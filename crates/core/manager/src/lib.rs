//! The manager: a pure state machine in a thin I/O shell.
//!
//! What it is for: it admits memory against quotas and a total. It hands descriptors from writers to the domains that
//! may read them. It keeps names, reader sets and epochs. It cleans up after dead processes, and is rebuilt from claims
//! after its own death. `state/` decides and does no I/O; `shell/` does the I/O and decides nothing.
//!
//! NOT here: any fast path, the client's side of the protocol (`core`), scheduling policies.

#![deny(unsafe_code)]

#[warn(missing_docs, clippy::missing_errors_doc)]
mod config;
#[warn(missing_docs, clippy::missing_errors_doc)]
mod embedded;
pub mod page;
mod shell;
pub mod state;

pub use config::{
    Config, ConfigError, Forward, Given, Limits, Observe, PressureConfig, Reserved, Rule, Who,
};
pub use embedded::Embedded;
pub use shell::{Listener, Shutdown, run};
