//! The model: every state of small configurations, and long random runs of larger ones.
//!
//! `TRANSHIP_TORTURE=1` makes both larger.

#[path = "spec/aim.rs"]
mod aim;
#[path = "spec/deaths.rs"]
mod deaths;
#[path = "spec/explore.rs"]
mod explore;
#[path = "spec/ops.rs"]
mod ops;
#[path = "spec/random.rs"]
mod random;
#[path = "spec/rules.rs"]
mod rules;
#[path = "spec/setup.rs"]
mod setup;
#[path = "spec/states.rs"]
mod states;
