//! A figure of the list, and what came of it.

use super::picture::Picture;
use super::rows::{Found, Row, Rule};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// Seconds at each scale after which a figure's program is killed.
    pub limits: [u64; 2],
    pub figure: Vec<Figure>,
}

/// A figure or a table of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub id: String,
    /// The paper's name.
    pub paper: String,
    pub title: String,
    /// Program and arguments, and those that each scale adds.
    pub command: String,
    #[serde(default)]
    pub small: String,
    #[serde(default)]
    pub whole: String,
    /// How to build the program, if it is not built with this one: without it the figure is skipped.
    pub needs: Option<String>,
    /// Whether the program prints lines of `name: value` instead of a report.
    #[serde(default)]
    pub lines: bool,
    /// Seconds that it takes at each scale, for the time left.
    pub seconds: [f64; 2],
    /// The paper's figure in words and values.
    pub shape: String,
    /// The reasons why ours differs.
    pub differs: String,
    /// Fields of a table's columns.
    pub columns: Vec<String>,
    #[serde(default)]
    pub picture: Vec<Picture>,
    #[serde(default)]
    pub ordering: Vec<Rule>,
}

/// The outcome of one figure.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    pub id: String,
    #[serde(skip)]
    pub figure: Figure,
    /// Why it could not be measured.
    pub failed: Option<String>,
    pub seconds: f64,
    pub command: String,
    /// Peers and counters that this machine does not have, as the program said.
    pub skipped: Vec<String>,
    pub orderings: Vec<Found>,
    #[serde(skip)]
    pub rows: Vec<Row>,
}
