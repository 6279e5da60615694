//! The public [`Domain`]: joining a manager, what it knows, addresses; over everything else.

mod connect;
mod history;
mod leaks;
mod poll;
mod shell;
mod steer;

pub use connect::DomainBuilder;
pub use history::{Did, Trace, TraceEvent};
pub use shell::Domain;
pub use steer::Steering;
