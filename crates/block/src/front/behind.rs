//! What is behind a front.

use crate::leases::Leases;
use crate::{Remote, Store};
use std::sync::Arc;

/// Where a front's requests go.
pub trait Behind: Send + Sync + 'static {
    /// What serves one client.
    fn serve(&self) -> Served;
}

/// What serves one client.
#[derive(Debug)]
pub struct Served {
    pub(super) store: Arc<dyn Store>,
    /// For clients with caches.
    pub(super) leases: Option<Arc<Leases>>,
    /// To a server elsewhere.
    pub(super) remote: Option<Arc<Remote>>,
}
