//! Options of producers and consumers, with defaults that suit most programs.

use tranship_core::{Error, ErrorKind, PoolOptions, Wait, setters};
use tranship_readers::options;
use tranship_ring::broadcast::OPEN;

/// Action of a producer with an item whose consumer ended without acknowledging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// Gives the item back to the queue, marked as redelivered, and another consumer gets it. The work of an item may
    /// then be done twice.
    GiveBack,
    /// Reports the item ([`Producer::take_lost`](crate::Producer::take_lost)). No consumer gets it again.
    Report,
}

/// Options of a queue's producer.
///
/// ```
/// # mod tranship { pub use tranship_queue as queue; }
/// use tranship::queue::{QueueOptions, WhenLost};
///
/// let options = QueueOptions::new().depth(256).when_lost(WhenLost::Report);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct QueueOptions {
    pub(crate) depth: u32,
    pub(crate) keep: u32,
    pub(crate) when_lost: WhenLost,
    pub(crate) shared: bool,
    pub(crate) pool: Option<PoolOptions>,
    pub(crate) pieces: u32,
    pub(crate) message_type: Option<String>,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions {
            depth: 64,
            keep: 64,
            when_lost: WhenLost::GiveBack,
            shared: true,
            pool: None,
            pieces: 8,
            message_type: None,
        }
    }
}

impl QueueOptions {
    /// Returns the defaults: 64 items may wait, other producers may join, and unacknowledged items are given back.
    pub fn new() -> QueueOptions {
        QueueOptions::default()
    }

    setters! {
        /// Sets the type of the messages, as a text that both sides must have alike
        /// ([`ChannelOptions::message_type`](tranship_core::ChannelOptions::message_type)). Default: none, which fits a
        /// side without a type alone.
        message_type(text: &str) => message_type = Some(text.into());

        /// Sets how many items of this producer may wait: a power of two, 2 to 65,536. Items that a consumer has taken
        /// and not acknowledged do not count.
        depth(items: u32) => depth = items;

        /// Sets how many buffers a consumer may keep, in addition to the 12 for which its desk has room. Default: 64.
        keep(buffers: u32) => keep = buffers;

        /// Sets what happens to an item whose consumer ended without acknowledging it.
        when_lost(what: WhenLost) => when_lost = what;
    }

    /// Refuses other producers. All producers of a queue must choose the same.
    pub fn exclusive(mut self) -> Self {
        self.shared = false;
        self
    }

    setters! {
        /// Sets how many pieces an aggregate may have: at most 32, and at most as many as a consumer may keep. Default:
        /// 8.
        pieces(most: u32) => pieces = most;

        /// Sets the shape of the producer's own pool. Default: at most 1 GiB of addresses and 1024 buffers. Its level
        /// is [`Producer`](tranship_core::Trust::Producer).
        pool(pool: PoolOptions) => pool = Some(pool);
    }

    pub(crate) fn pool_options(&self, name: &str) -> PoolOptions {
        options::pool(self.pool.as_ref(), name)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        options::check(
            ("queue", "QueueOptions"),
            self.depth,
            (self.pieces, self.keep),
        )
    }
}

/// Options of a queue's consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    pub(crate) acknowledges: bool,
    pub(crate) open: usize,
    pub(crate) wait: Wait,
    pub(crate) message_type: Option<String>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        ConsumerOptions {
            acknowledges: true,
            open: OPEN,
            wait: Wait::default(),
            message_type: None,
        }
    }
}

impl ConsumerOptions {
    /// Returns the defaults: items are acknowledged by [`Item::ack`](crate::Item::ack), and up to 64 of each producer may be open.
    pub fn new() -> ConsumerOptions {
        ConsumerOptions::default()
    }

    /// Sets the type of the messages, as a text that both sides must have alike ([`ChannelOptions::message_type`](tranship_core::ChannelOptions::message_type)). Default:
    /// none, which fits a side without a type alone.
    pub fn message_type(mut self, text: &str) -> Self {
        self.message_type = Some(text.into());
        self
    }

    /// Acknowledges each item when `recv` returns it. If the consumer then ends, the item is neither given back nor
    /// reported.
    pub fn auto_ack(mut self) -> Self {
        self.acknowledges = false;
        self
    }

    setters! {
        /// Sets how many items of each producer this consumer may have taken and not acknowledged: 1 to 64. The default
        /// is 64.
        unacknowledged(items: usize) => open = items;

        /// Sets how `recv` waits.
        wait(wait: Wait) => wait = wait;
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let open = self.open;
        if (1..=OPEN).contains(&open) {
            return Ok(());
        }
        let text = format!(
            "a consumer may have 1 to {OPEN} unacknowledged items of a producer (ConsumerOptions::unacknowledged), not {open}"
        );
        Err(Error::new(ErrorKind::BadArgument, text))
    }
}
