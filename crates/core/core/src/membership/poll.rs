//! A domain among what is waited for.

use super::shell::Domain;
use crate::link::PollItem;

impl<'a> PollItem<'a> {
    /// Ready when the manager had news, which were taken, or something else of the domain's descriptor is to be looked at.
    pub fn domain(domain: &'a Domain) -> PollItem<'a> {
        PollItem::of_domain(domain.core())
    }
}
