//! The status of a publisher and of its subscribers.

use crate::seats::SubscriberSeen;

/// The status of a publisher: its messages and its subscribers.
#[derive(Clone, Debug, Default)]
pub struct PublisherStatus {
    /// Messages that were published.
    pub published: u64,
    /// Messages that were dropped because a reliable subscriber was behind.
    pub dropped: u64,
    /// Subscribers that lost their reliable rank because they were behind for too long.
    pub demoted: u64,
    /// Subscribers that were expelled because they held more buffers than was agreed.
    pub expelled: u64,
    /// Buffers that lines name or subscribers may hold.
    pub buffers: usize,
    /// The subscribers.
    pub subscribers: Vec<SubscriberSeen>,
}

impl PublisherStatus {
    /// Returns the reliable subscriber that is furthest behind: the publisher waits for it first. `None`: none is behind.
    pub fn slowest(&self) -> Option<&SubscriberSeen> {
        let reliable = self.subscribers.iter().filter(|seen| seen.reliable);
        reliable
            .filter(|seen| seen.behind > 0)
            .max_by_key(|seen| (seen.behind, seen.behind_for))
    }

    /// Returns the subscribers that keep buffers. The subscriber that has kept a buffer for the longest time comes
    /// first.
    pub fn keepers(&self) -> Vec<&SubscriberSeen> {
        let all = self.subscribers.iter();
        let mut keepers: Vec<_> = all.filter(|seen| seen.kept > 0 || seen.more).collect();
        keepers.sort_by_key(|seen| std::cmp::Reverse(seen.keeps_for));
        keepers
    }
}
