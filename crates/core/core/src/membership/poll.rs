//! A domain as an item of `poll`.

use super::shell::Domain;
use crate::link::PollItem;

impl<'a> PollItem<'a> {
    /// Makes an item that is ready when news of the manager was taken, or when other news of the domain's descriptor
    /// waits.
    pub fn domain(domain: &'a Domain) -> PollItem<'a> {
        PollItem::of_domain(domain.core())
    }
}
