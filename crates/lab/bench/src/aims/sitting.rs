//! What came of all parts.

use serde::Serialize;

use super::claim::Claim;
use crate::machine::Machine;
use crate::report::Row;

/// What came of all parts.
#[derive(Debug, Serialize)]
pub struct Sitting {
    pub bench: &'static str,
    pub machine: Machine,
    pub minutes: f64,
    pub claims: Vec<Claim>,
    pub rows: Vec<Row>,
}
