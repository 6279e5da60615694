//! Parameters for another connection of a session.

use super::address::Address;
use super::settings::Settings;
use super::wire::Secret;
use std::sync::Arc;

/// Parameters with which a session reaches the other end again.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) settings: Arc<Settings>,
    pub(super) address: Address,
    /// The process that has the session.
    pub(super) process: Secret,
}
