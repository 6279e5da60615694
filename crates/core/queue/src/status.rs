//! What a producer says of its items.

use crate::seats::ConsumerSeen;

/// What has become of a producer's items, and who has them.
#[derive(Clone, Debug, Default)]
pub struct ProducerStatus {
    /// Items that were sent.
    pub sent: u64,
    /// Items that wait for a consumer.
    pub waiting: usize,
    /// Items that consumers have taken and not acknowledged, as far as it was looked.
    pub open: usize,
    /// Deliveries of items that had been given back.
    pub redelivered: u64,
    /// Items whose consumers ended without acknowledging them, with [`WhenLost::Report`](crate::WhenLost::Report).
    pub lost: u64,
    /// Items that consumers rejected.
    pub rejected: u64,
    /// Claims that no honest consumer writes: their items were given back, or reported.
    pub disputed: u64,
    /// Lost and rejected items that [`take_lost`](crate::Producer::take_lost) has still to take.
    pub unfetched: usize,
    /// Consumers that held more than was agreed.
    pub expelled: u64,
    /// Buffers that items have or consumers may hold.
    pub buffers: usize,
    /// The consumers.
    pub consumers: Vec<ConsumerSeen>,
}
