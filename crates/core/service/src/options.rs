//! How a service, or a client of one, is made.

use std::time::Duration;
use tranship_core::{ChannelOptions, PoolOptions, Wait};

/// A service, or a client of one, to be made. Each side has options of its own.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    pub(crate) lines: u32,
    pub(crate) wait: Wait,
    pub(crate) timeout: Option<Duration>,
    pub(crate) clients_per_user: usize,
    pool: Option<PoolOptions>,
    types: [Option<String>; 2],
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            lines: 256,
            wait: Wait::default(),
            timeout: None,
            clients_per_user: 64,
            pool: None,
            types: [None, None],
        }
    }
}

impl ServiceOptions {
    /// 256 lines a channel, spins briefly and then sleeps, at most 64 clients of one user.
    pub fn new() -> ServiceOptions {
        ServiceOptions::default()
    }
    /// Depth of the channels: a power of two, 4 to 65,536. A client has at most half as many calls in flight.
    pub fn lines(mut self, lines: u32) -> Self {
        self.lines = lines.max(4);
        self
    }
    /// How this side waits.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }
    /// How long a client waits for the service to be there. Default: for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
    /// The most clients of one user that a service has at a time. Others are refused with `Limit`. Default: 64.
    pub fn clients_per_user(mut self, most: usize) -> Self {
        self.clients_per_user = most;
        self
    }
    /// The shape of the pool from which this side allocates what it sends: [`Client::alloc`](crate::Client::alloc), [`Request::alloc`](crate::Request::alloc). Default:
    /// that of a channel's own pool ([`ChannelOptions::pool`]).
    pub fn pool(mut self, pool: PoolOptions) -> Self {
        self.pool = Some(pool);
        self
    }
    /// The types of requests and of replies, as texts that both sides must have alike ([`ChannelOptions::message_type`]).
    pub fn types(mut self, request: &str, reply: &str) -> Self {
        self.types = [Some(request.into()), Some(reply.into())];
        self
    }

    fn channel(&self, kind: &Option<String>) -> ChannelOptions {
        let mut options = ChannelOptions::new().lines(self.lines).wait(self.wait);
        if let Some(pool) = &self.pool {
            options = options.pool(pool.clone());
        }
        match kind {
            Some(text) => options.message_type(text),
            None => options,
        }
    }

    pub(crate) fn requests(&self) -> ChannelOptions {
        self.channel(&self.types[0])
    }

    pub(crate) fn replies(&self) -> ChannelOptions {
        self.channel(&self.types[1])
    }
}
