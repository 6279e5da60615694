//! `tranship run FILE.toml`: programs of real processes.

#[path = "run/checks.rs"]
mod checks;
#[path = "run/component.rs"]
mod component;
#[path = "run/deaths.rs"]
mod deaths;
#[path = "run/flows.rs"]
mod flows;
#[path = "run/rights.rs"]
mod rights;
#[path = "run/stage.rs"]
mod stage;
