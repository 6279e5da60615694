//! The processes that may observe from outside. This part is read here for the command that starts a manager: the
//! manager itself serves none of them.

use serde::Deserialize;

/// Figures and a page for tools and browsers, served by a separate process beside the manager.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Observe {
    /// OpenMetrics on a Unix socket beside the manager's own.
    pub metrics: bool,
    /// The OpenMetrics figures at an address.
    pub metrics_tcp: Option<String>,
    /// The page with plots, at an address.
    pub web: Option<String>,
    /// Whether other machines may reach these addresses.
    pub anywhere: bool,
    /// Names that browsers may use for the host, besides addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Observe {
    /// Says whether anything is served.
    #[must_use]
    pub fn any(&self) -> bool {
        self.metrics || self.metrics_tcp.is_some() || self.web.is_some()
    }
}
