//! `static`: the baseline.

use crate::policy::{Policy, Wish};
use crate::round::Round;

#[derive(Debug)]
pub(super) struct Static;

impl Policy for Static {
    fn wishes(&mut self, _: &Round<'_>) -> Vec<Wish> {
        Vec::new()
    }

    fn moves(&self) -> bool {
        false
    }
}
