//! Stores behind a front.

use crate::leases::Leases;
use crate::{Remote, Store};
use std::sync::Arc;

/// Destination of a front's requests.
pub trait Behind: Send + Sync + 'static {
    /// Returns the store that serves one client.
    fn serve(&self) -> Served;
}

/// Store that serves one client.
#[derive(Debug)]
pub struct Served {
    pub(super) store: Arc<dyn Store>,
    /// Leases, for clients with caches.
    pub(super) leases: Option<Arc<Leases>>,
    /// Connection to a server elsewhere.
    pub(super) remote: Option<Arc<Remote>>,
    /// Read data goes to the client as it came from the server.
    pub(super) passes_on: bool,
}
