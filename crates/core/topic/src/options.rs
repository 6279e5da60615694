//! Options of publishers and subscribers, with defaults that suit most programs.

use std::time::Duration;
use tranship_core::{Error, PoolOptions, setters};
use tranship_readers::options;

/// Action of a publisher when the ring is full and a reliable subscriber has not yet taken the oldest line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBehind {
    /// Overwrites the oldest line. No subscriber is reliable.
    Overwrite,
    /// Drops the new message, and counts it.
    DropNew,
    /// Waits for this time at most. After it the subscriber is no longer reliable, and is told so.
    Wait(Duration),
}

/// Options of a topic to publish.
///
/// ```
/// use std::time::Duration;
/// # mod tranship { pub use tranship_topic as topic; }
/// use tranship::topic::{TopicOptions, WhenBehind};
///
/// let options = TopicOptions::new().depth(64).history(1).when_behind(WhenBehind::Wait(Duration::from_secs(1)));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct TopicOptions {
    pub(crate) depth: u32,
    pub(crate) history: u32,
    pub(crate) keep: u32,
    pub(crate) when_behind: WhenBehind,
    pub(crate) pool: Option<PoolOptions>,
    pub(crate) shared: bool,
    pub(crate) pieces: u32,
    pub(crate) message_type: Option<String>,
}

impl Default for TopicOptions {
    fn default() -> Self {
        TopicOptions {
            depth: 16,
            history: 0,
            keep: 64,
            when_behind: WhenBehind::Overwrite,
            pool: None,
            shared: false,
            pieces: 8,
            message_type: None,
        }
    }
}

impl TopicOptions {
    /// Returns the defaults: 16 messages deep, no history, and the oldest message is overwritten.
    pub fn new() -> TopicOptions {
        TopicOptions::default()
    }

    setters! {
        /// Sets the type of the messages, as a text that both sides must have alike
        /// ([`ChannelOptions::message_type`](tranship_core::ChannelOptions::message_type)). Default: none, which fits a
        /// side without a type alone.
        message_type(text: &str) => message_type = Some(text.into());

        /// Sets how many messages the ring has: a power of two, 2 to 65,536. Each keeps its buffer until it is
        /// overwritten.
        depth(lines: u32) => depth = lines;

        /// Sets how many earlier messages a subscriber gets when it joins, as far as the ring still has them.
        history(messages: u32) => history = messages;

        /// Sets how many buffers a subscriber may keep, in addition to the 12 for which its desk has room. Default: 64.
        keep(buffers: u32) => keep = buffers;

        /// Sets what a publish does when a reliable subscriber is behind. If it is not set, no subscriber is reliable.
        when_behind(what: WhenBehind) => when_behind = what;

        /// Sets the shape of the topic's own pool. Default: at most 1 GiB of addresses and 1024 buffers. Its level is
        /// [`Producer`](tranship_core::Trust::Producer).
        pool(pool: PoolOptions) => pool = Some(pool);
    }

    /// Shares the topic's name with publishers of other domains that share it too. A subscriber then receives from all
    /// of them in turn, and the messages of one publisher stay in order. If it is not set, no other publisher can use
    /// the name.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Sets how many pieces an aggregate may have: at most 32, and at most as many as a subscriber may keep. Default:
    /// 8. A subscriber that breaks the rules can keep the buffers of eight messages: with more pieces a message, these
    /// are more buffers.
    pub fn pieces(mut self, most: u32) -> Self {
        self.pieces = most;
        self
    }

    pub(crate) fn pool_options(&self, name: &str) -> PoolOptions {
        options::pool(self.pool.as_ref(), name)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        options::check(
            ("topic", "TopicOptions"),
            self.depth,
            (self.pieces, self.keep),
        )
    }
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct SubscriberOptions {
    pub(crate) history: u32,
    pub(crate) latest: bool,
    pub(crate) reliable: bool,
    pub(crate) wait: tranship_core::Wait,
    pub(crate) message_type: Option<String>,
}

impl Default for SubscriberOptions {
    fn default() -> Self {
        SubscriberOptions {
            history: u32::MAX,
            latest: false,
            reliable: false,
            wait: tranship_core::Wait::default(),
            message_type: None,
        }
    }
}

impl SubscriberOptions {
    /// Returns the defaults: every message that was not overwritten, in order.
    pub fn new() -> SubscriberOptions {
        SubscriberOptions::default()
    }

    setters! {
        /// Sets the type of the messages, as a text that both sides must have alike
        /// ([`ChannelOptions::message_type`](tranship_core::ChannelOptions::message_type)). Default: none, which fits a
        /// side without a type alone.
        message_type(text: &str) => message_type = Some(text.into());

        /// Sets the most messages from before it joins that the subscriber gets. Default: as many as the topic's
        /// [`history`](TopicOptions::history) gives.
        history(messages: u32) => history = messages;
    }

    /// Receives the newest message only: those before it are skipped, and counted as missed.
    pub fn latest(mut self) -> Self {
        self.latest = true;
        self
    }

    /// Asks to be reliable: the publisher does not overwrite a message that this subscriber has not taken yet. The
    /// publisher's [`WhenBehind`] says what the publisher does instead.
    pub fn reliable(mut self) -> Self {
        self.reliable = true;
        self
    }

    /// Sets how `recv` waits.
    pub fn wait(mut self, wait: tranship_core::Wait) -> Self {
        self.wait = wait;
        self
    }
}
