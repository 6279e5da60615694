//! The status of a producer's items.

use crate::seats::ConsumerSeen;

/// The status of a producer: its items, and its consumers.
#[derive(Clone, Debug, Default)]
pub struct ProducerStatus {
    /// Items that were sent.
    pub sent: u64,
    /// Items that wait for a consumer.
    pub waiting: usize,
    /// Items that consumers have taken and not acknowledged, as of the last look.
    pub open: usize,
    /// Deliveries of items that were given back before.
    pub redelivered: u64,
    /// Items whose consumers ended without acknowledging them, with [`WhenLost::Report`](crate::WhenLost::Report).
    pub lost: u64,
    /// Items that consumers rejected.
    pub rejected: u64,
    /// Claims that no honest consumer writes: their items were given back, or reported.
    pub disputed: u64,
    /// Lost and rejected items that [`take_lost`](crate::Producer::take_lost) has not yet taken.
    pub unfetched: usize,
    /// Consumers that were expelled because they held more buffers than was agreed.
    pub expelled: u64,
    /// Buffers that items use or consumers may hold.
    pub buffers: usize,
    /// The consumers.
    pub consumers: Vec<ConsumerSeen>,
}
