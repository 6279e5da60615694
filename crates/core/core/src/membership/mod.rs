//! The public [`Domain`]: joining a manager, an operator's questions, addresses; over everything else.

mod admin;
mod connect;
mod history;
mod poll;
mod shell;
#[cfg(feature = "policy")]
mod steer;
#[cfg(all(test, feature = "embedded"))]
mod tests;

pub use admin::Admin;
pub use connect::DomainBuilder;
pub use history::{Did, Trace, TraceEvent};
pub use shell::{Domain, add_to};
#[cfg(feature = "policy")]
pub use steer::Steering;
