//! Clients that have connected to a name and have not been accepted. Their number is bounded, and no user can take the
//! places of another.

use super::wire::EventWithFds;
use std::collections::{BTreeMap, VecDeque};
use tranship_proto::{ChannelId, Event};

/// Most connections that may wait at one name.
const MOST: usize = 128;

/// Oldest first.
#[derive(Default)]
pub(super) struct Backlog(VecDeque<EventWithFds>);

impl Backlog {
    /// Adds a client. If there are too many, the newest client of the user with most is turned away, and returned: the
    /// manager has to be told.
    pub fn push(&mut self, came: EventWithFds) -> Option<ChannelId> {
        self.0.push_back(came);
        if self.0.len() <= MOST {
            return None;
        }
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        for came in &self.0 {
            *users.entry(user(came)).or_default() += 1;
        }
        let most = users.into_iter().max_by_key(|(_, count)| *count)?.0;
        let newest = self.0.iter().rposition(|came| user(came) == most)?;
        channel(&self.0.remove(newest)?)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the oldest connection.
    pub fn pop(&mut self) -> Option<EventWithFds> {
        self.0.pop_front()
    }

    /// Removes a channel whose other end has given it up.
    pub fn cancel(&mut self, gone: ChannelId) {
        self.0.retain(|came| channel(came) != Some(gone));
    }

    /// Closes the clients' descriptors; returns their channels.
    pub fn into_channels(self) -> Vec<ChannelId> {
        self.0.iter().filter_map(channel).collect()
    }

    /// Adds the connections of another backlog.
    pub fn append(&mut self, other: Backlog) {
        for came in other.0 {
            self.push(came);
        }
    }
}

/// Returns the channel of a client that has connected.
pub(super) fn channel((event, _): &EventWithFds) -> Option<ChannelId> {
    match event {
        Event::Incoming { channel, .. } => Some(*channel),
        _ => None,
    }
}

fn user((event, _): &EventWithFds) -> u32 {
    match event {
        Event::Incoming { peer_uid, .. } => *peer_uid,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{DomainId, ExportId, Role};

    fn link(number: u32, user: u32) -> EventWithFds {
        let event = Event::Incoming {
            channel: ChannelId(number),
            export: ExportId(1),
            peer: DomainId(number),
            peer_uid: user,
            peer_pid: 1,
            role: Role::Sink,
            lines: 2,
            topic: false,
        };
        (event, Vec::new())
    }

    fn number(came: EventWithFds) -> u32 {
        match came.0 {
            Event::Incoming { channel, .. } => channel.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_has_most_makes_room() {
        let mut backlog = Backlog::default();
        for n in 0..128 {
            assert!(backlog.push(link(n, 7)).is_none());
        }
        assert_eq!(backlog.push(link(500, 7)), Some(ChannelId(500)));
        assert_eq!(backlog.push(link(501, 8)), Some(ChannelId(127)));
        assert_eq!(backlog.push(link(502, 8)), Some(ChannelId(126)));
        backlog.cancel(ChannelId(0));
        assert_eq!(backlog.pop().map(number), Some(1));
        let rest: Vec<u32> = std::iter::from_fn(|| backlog.pop()).map(number).collect();
        assert_eq!(rest.len(), 126);
        assert_eq!(rest[124..], [501, 502]);
    }
}
