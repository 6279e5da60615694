//! The sources of a page.

use crate::state::{FdToken, State};
use std::fs::File;
use std::time::Duration;

/// The state, and the memory behind its descriptors, at a moment.
pub(in crate::shell) struct Sight<'a> {
    pub state: &'a State,
    pub file: &'a dyn Fn(FdToken) -> Option<&'a File>,
    pub now: Duration,
}
