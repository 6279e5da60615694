//! The connections of all readers of one writer's name.

use crate::error::Error;
use crate::link::{Accepts, Feed, Guard, Listener, Sender, Within, listen_local};
use crate::membership::Domain;
use crate::options::ChannelOptions;
use std::sync::Arc;
use tranship_proto::Role;

/// Hands out a connection to each reader of a name: of this process, and, unless the name is `local:`, of other domains.
pub struct Readers {
    /// Readers of this process wait here. The name is free in this process before it is free at the manager.
    _name: Guard,
    inside: Arc<Feed>,
    others: Option<Listener<Sender>>,
}

impl Readers {
    /// Offers a name, with options that say what the writer shows beside its channels.
    pub(super) fn new(
        domain: &Domain,
        (name, within): (&str, Within),
        options: &ChannelOptions,
    ) -> Result<Readers, Error> {
        let (core, role) = (domain.core(), Role::Source);
        let others = match within {
            Within::Domain => Some(Accepts::new(core, name, role, options.clone())?),
            Within::Process => None,
        };
        let inside = Feed::new()?;
        Ok(Readers {
            _name: listen_local(core, (name, within), role, options, &inside)?,
            inside,
            others: others.map(Listener::new),
        })
    }

    /// Takes the connection of the next reader that has come, if there is one.
    ///
    /// # Errors
    /// As [`Listener::try_accept`].
    pub fn try_next(&self) -> Result<Option<Sender>, Error> {
        if !self.inside.is_empty()
            && let Some(end) = self.inside.pop()
        {
            return end.into_sender().map(Some);
        }
        let next = self.others.as_ref().map(Listener::try_accept);
        next.transpose().map(Option::flatten)
    }
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}
