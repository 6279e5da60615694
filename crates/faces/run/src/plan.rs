//! The instructions for a launcher.

use crate::program::{Filter, Rights};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The instructions for a launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Process that the component ends with.
    pub parent: u32,
    /// Program and arguments. Without it the rights are only tried.
    pub run: Vec<String>,
    /// Rights; `None`: those of the supervisor.
    pub rights: Option<Rights>,
    /// The launcher is in the component's namespaces.
    pub separated: bool,
    /// For a program that knows nothing of channels.
    pub filter: Option<Filter>,
    /// Number of sockets and devices that come over standard input.
    #[serde(default)]
    pub listens: usize,
}

impl Plan {
    /// Returns the plan as the launcher's argument.
    ///
    /// # Errors
    /// No failure is known.
    pub fn argument(&self) -> Result<String> {
        serde_json::to_string(self).context("a plan as JSON")
    }
}
