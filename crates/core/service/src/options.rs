//! How a service, or a client of one, is made; how a call is.

use crate::word::{Ask, MOST_METHOD};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::topics::Bell;
use tranship_core::{ChannelOptions, PoolOptions, Wait, setters};

/// A service, or a client of one, to be made. Each side has options of its own.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    pub(crate) lines: u32,
    pub(crate) wait: Wait,
    pub(crate) timeout: Option<Duration>,
    pub(crate) clients_per_user: usize,
    pub(crate) patience: Duration,
    pub(crate) shared: bool,
    pub(crate) bell: Option<Arc<Bell>>,
    pub(crate) pool: Option<PoolOptions>,
    arrivals: Option<PoolOptions>,
    types: [Option<String>; 2],
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            lines: 256,
            wait: Wait::default(),
            timeout: None,
            clients_per_user: 64,
            patience: Duration::from_secs(30),
            shared: false,
            bell: None,
            pool: None,
            arrivals: None,
            types: [None, None],
        }
    }
}

impl ServiceOptions {
    /// 256 lines a channel, spins briefly and then sleeps, at most 64 clients of one user.
    pub fn new() -> ServiceOptions {
        ServiceOptions::default()
    }
    setters! {
        /// Depth of the channels: a power of two, 4 to 65,536. A client has at most half as many calls in flight.
        lines(lines: u32) => lines = lines.max(4);

        /// How this side waits.
        wait(wait: Wait) => wait = wait;

        /// How long a client waits for the service to be there. Default: for ever.
        timeout(timeout: Duration) => timeout = Some(timeout);

        /// The most clients of one user that a service has at a time. Others are refused with `Limit`. Default: 64.
        clients_per_user(most: usize) => clients_per_user = most;

        /// How long a worker waits for a client's next item, or until the client has taken enough items for one more
        /// ([`Request::recv`](crate::Request::recv), [`Request::send`](crate::Request::send)). A client that takes
        /// longer is given up: its channels are closed. Default: 30 s.
        patience(patience: Duration) => patience = patience;
    }
    /// Lets services of other domains have the name too, which all of them have to ask for. A client is connected to all of them, and each call goes to the
    /// process that has fewest calls of that client in flight. For names, and not for `local:` addresses.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    setters! {
        /// A bell that ends a worker's wait: the worker that sleeps in
        /// [`Service::recv_timeout`](crate::Service::recv_timeout) takes it and fails with `TimedOut`. For the crate `store`, which
        /// waits for a request and for something else at once.
        #[doc(hidden)]
        bell(bell: Arc<Bell>) => bell = Some(bell);

        /// The shape of the pool from which this side allocates what it sends: [`Client::alloc`](crate::Client::alloc),
        /// [`Request::alloc`](crate::Request::alloc). Default: that of a channel's own pool ([`ChannelOptions::pool`]).
        pool(pool: PoolOptions) => pool = Some(pool);

        /// Takes buffers from pools of level `none` too, by copying them into a pool of this shape for each channel
        /// ([`ChannelOptions::arrivals`]): nobody can change what came. Default: such pools are refused.
        arrivals(pool: PoolOptions) => arrivals = Some(pool);

        /// The types of requests and of replies, as texts that both sides must have alike
        /// ([`ChannelOptions::message_type`]).
        types(request: &str, reply: &str) => types = [Some(request.into()), Some(reply.into())];
    }

    fn channel(&self, kind: &Option<String>) -> ChannelOptions {
        let mut options = ChannelOptions::new().lines(self.lines).wait(self.wait);
        if let Some(pool) = &self.pool {
            options = options.pool(pool.clone());
        }
        if let Some(pool) = &self.arrivals {
            options = options.arrivals(pool.clone());
        }
        match kind {
            Some(text) => options.message_type(text),
            None => options,
        }
    }

    /// Whether a caller that waits looks a few times before it sleeps.
    pub(crate) fn spins(&self) -> bool {
        self.wait != Wait::Sleep
    }

    pub(crate) fn requests(&self) -> ChannelOptions {
        self.channel(&self.types[0])
    }

    pub(crate) fn replies(&self) -> ChannelOptions {
        self.channel(&self.types[1])
    }
}

/// When a call with a deadline has started, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
}

/// Options of a call. The default is a call of method 0 without a deadline and without streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    method: u8,
    timeout: Option<Duration>,
    pub(crate) streams: bool,
}

impl CallOptions {
    /// Method 0, no deadline, no streams.
    #[inline]
    pub fn new() -> CallOptions {
        CallOptions::default()
    }
    setters! {
        /// Calls the method of that number, 0 to 127, which [`Request::method`](crate::Request::method) says. A higher
        /// one is taken modulo 128.
        method(method: u8) => method = method & MOST_METHOD;

        /// The time for the whole call: sending, working, answering. It travels along.
        timeout(timeout: Duration) => timeout = Some(timeout);
    }
    /// Lets the call carry many items either way: [`Call::send`](crate::Call::send), [`Call::recv`](crate::Call::recv).
    pub fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// When the call starts, and its deadline.
    #[inline]
    pub(crate) fn times(self) -> Option<Times> {
        let timeout = self.timeout?;
        let started = Instant::now();
        let deadline = started.checked_add(timeout)?;
        Some(Times { started, deadline })
    }

    #[inline]
    pub(crate) fn ask(self, times: Option<Times>) -> Ask {
        let left = |times: Times| times.deadline.saturating_duration_since(Instant::now());
        Ask {
            method: self.method,
            streams: self.streams,
            left: times.map(left),
        }
    }
}
