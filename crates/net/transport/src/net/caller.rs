//! How to make another connection.

use super::address::Address;
use super::settings::Settings;
use super::wire::Secret;
use std::sync::Arc;

/// How to reach the other end of a session again.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) settings: Arc<Settings>,
    pub(super) address: Address,
    /// The process that has the session.
    pub(super) process: Secret,
}
