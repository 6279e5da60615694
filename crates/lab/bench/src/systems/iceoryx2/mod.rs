//! `iceoryx2`: publish-subscribe of slices with loans, one service each way; its event service when blocking.
//!
//! Set up as its documents advise for speed: exactly as many ports and nodes as there are, no history, no
//! overflow, memory of a fixed size made beforehand, payload not initialised by the loan, no signal handler.

mod service;

pub use service::Served;

use std::mem::MaybeUninit;

use anyhow::{Context, Result, anyhow, ensure};
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{
    AllocationStrategy, BackpressureStrategy, Config, FileName, LogLevel, Node, NodeBuilder,
    SemanticString, SignalHandlingMode, ZeroCopySend, ipc, set_log_level,
};
use iceoryx2::sample::Sample;
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use crate::case::{Case, Pattern, Touch, Wait};
use crate::party::{self, Party};
use crate::peer::{Ops, Peer, Role};
use crate::touch;

type Service = ipc::Service;

/// Queue of a round trip, where one message is in flight: the smallest is the fastest.
const ROUND_TRIP_QUEUE: usize = 2;

pub struct Iceoryx2 {
    // Ports before the node that they belong to: dropped in this order.
    publisher: Publisher<Service, [u64], u64>,
    subscriber: Subscriber<Service, [u64], u64>,
    events: Events,
    _node: Node<Service>,
    words: usize,
    touch: Touch,
}

/// Their errors are not all `Sync`; the text is what we need.
pub(crate) fn text<E: std::fmt::Debug>(what: &'static str) -> impl FnOnce(E) -> anyhow::Error {
    move |error| anyhow!("iceoryx2: {what}: {error:?}")
}

/// A node under names of our own: what another user of iceoryx2 on this machine left behind is not ours to find.
pub(crate) fn node(run: u64) -> Result<Node<Service>> {
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    config.global.prefix =
        FileName::new(party::prefixes(run)[0].as_bytes()).map_err(text("prefix"))?;
    NodeBuilder::new()
        .config(&config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<Service>()
        .map_err(text("node"))
}

/// How many take part in a service, and what its subscribers have room for.
pub(crate) struct Shape {
    pub subscribers: usize,
    pub nodes: usize,
    pub queue: usize,
    pub borrowed: usize,
    /// Whether the oldest sample goes where a queue is full.
    pub overflows: bool,
}

pub(crate) type Slices<H> = PortFactory<Service, [u64], H>;

/// A service of one publisher, without history.
pub(crate) fn slices<H: std::fmt::Debug + ZeroCopySend>(
    node: &Node<Service>,
    name: &str,
    shape: &Shape,
) -> Result<Slices<H>> {
    let service = node.service_builder(&name.try_into().map_err(text("name"))?);
    let service = service.publish_subscribe::<[u64]>().user_header::<H>();
    let service = service
        .max_publishers(1)
        .max_subscribers(shape.subscribers)
        .max_nodes(shape.nodes)
        .history_size(0)
        .subscriber_max_buffer_size(shape.queue)
        .subscriber_max_borrowed_samples(shape.borrowed)
        .enable_safe_overflow(shape.overflows);
    service.open_or_create().map_err(text("service"))
}

/// A publisher with all its memory.
pub(crate) fn publisher<H: std::fmt::Debug + ZeroCopySend>(
    service: &Slices<H>,
    loans: usize,
    words: usize,
) -> Result<Publisher<Service, [u64], H>> {
    let publisher = service.publisher_builder();
    let publisher = publisher
        .max_loaned_samples(loans)
        .initial_max_slice_len(words)
        .allocation_strategy(AllocationStrategy::Static)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered);
    publisher.create().map_err(text("publisher"))
}

pub(crate) fn subscriber<H: std::fmt::Debug + ZeroCopySend>(
    service: &Slices<H>,
    queue: usize,
) -> Result<Subscriber<Service, [u64], H>> {
    let subscriber = service.subscriber_builder().buffer_size(queue);
    subscriber.create().map_err(text("subscriber"))
}

/// Events by which a side that blocks is woken, and wakes. A side that spins has none.
struct Events(Option<(Notifier<Service>, Listener<Service>)>);

impl Events {
    fn open(node: &Node<Service>, wait: Wait, role: Role) -> Result<Events> {
        if wait != Wait::Block {
            return Ok(Events(None));
        }
        let [out, back] = ways(role);
        let event = |name: &str| -> Result<_> {
            let name = format!("{name}/event");
            node.service_builder(&name.as_str().try_into().map_err(text("name"))?)
                .event()
                .max_notifiers(1)
                .max_listeners(1)
                .max_nodes(2)
                .event_id_max_value(1)
                .open_or_create()
                .map_err(text("event service"))
        };
        let notifier = event(out)?.notifier_builder().create();
        let listener = event(back)?.listener_builder().create();
        let notifier = notifier.map_err(text("notifier"))?;
        Ok(Events(Some((
            notifier,
            listener.map_err(text("listener"))?,
        ))))
    }

    /// Ends the other side's wait.
    #[inline(always)]
    fn tell(&self) -> Result<()> {
        if let Some((notifier, _)) = &self.0 {
            notifier.notify().map_err(text("notify"))?;
        }
        Ok(())
    }

    /// Waits for the other side.
    #[inline(always)]
    fn wait(&self) -> Result<()> {
        match &self.0 {
            Some((_, listener)) => {
                listener.blocking_wait(|_| {}).map_err(text("wait"))?;
            }
            None => std::hint::spin_loop(),
        }
        Ok(())
    }
}

/// The names of the ways out and back.
fn ways(role: Role) -> [&'static str; 2] {
    match role {
        Role::Ping => ["ping", "pong"],
        Role::Pong => ["pong", "ping"],
    }
}

impl Peer for Iceoryx2 {
    const NAME: &'static str = "iceoryx2";

    fn refuses(case: &Case) -> Option<String> {
        (case.pattern == Pattern::Stream && case.wait == Wait::Block)
            .then(|| "streams only with busy-polling".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let node = node(party.run)?;
        let queue = if case.pattern == Pattern::RoundTrip {
            ROUND_TRIP_QUEUE
        } else {
            case.buffers
        };
        let [out, back] = ways(role);
        let shape = Shape {
            subscribers: 1,
            nodes: 2,
            queue,
            borrowed: case.loans,
            overflows: false,
        };
        let data = |name: &str| slices::<u64>(&node, &format!("{name}/data"), &shape);
        let words = case.payload / 8;
        let publisher = publisher(&data(out)?, case.loans, words)?;
        let subscriber = subscriber(&data(back)?, queue)?;
        let events = Events::open(&node, case.wait, role)?;
        party.barrier()?;
        // Both are there: connect now, not at the first message.
        publisher.update_connections().map_err(text("connect"))?;
        subscriber.update_connections().map_err(text("connect"))?;
        Ok(Self {
            publisher,
            subscriber,
            events,
            _node: node,
            words,
            touch: case.touch,
        })
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        let loan = self.alloc()?;
        self.give(loan, stamp)
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        let (held, stamp) = self.take()?;
        self.release(held)?;
        Ok(stamp)
    }
}

impl Ops for Iceoryx2 {
    type Loan = SampleMutUninit<Service, [MaybeUninit<u64>], u64>;
    type Held = Sample<Service, [u64], u64>;

    #[inline(always)]
    fn alloc(&mut self) -> Result<Self::Loan> {
        self.publisher
            .loan_slice_uninit(self.words)
            .map_err(text("loan"))
    }

    #[inline(always)]
    fn give(&mut self, mut sample: Self::Loan, stamp: u64) -> Result<()> {
        match self.touch {
            Touch::Untouched => *sample.user_header_mut() = stamp,
            Touch::Word => {
                sample
                    .payload_mut()
                    .first_mut()
                    .context("empty payload")?
                    .write(stamp);
            }
            Touch::Touched => {
                let at = sample.payload_mut().as_mut_ptr().cast();
                // SAFETY: the loaned slice, `words` words of it, ours alone until it is sent.
                unsafe { touch::fill(at, self.words * 8, stamp) }
            }
        }
        // SAFETY: words may hold anything, and the segment's pages are there; what was not written is
        // whatever was there before, as in iceoryx2's own benchmark.
        let sample = unsafe { sample.assume_init() };
        let receivers = sample.send().map_err(text("send"))?;
        ensure!(
            receivers == 1,
            "iceoryx2: delivered to {receivers} instead of 1"
        );
        self.events.tell()
    }

    #[inline(always)]
    fn take(&mut self) -> Result<(Self::Held, u64)> {
        let sample = loop {
            if let Some(sample) = self.subscriber.receive().map_err(text("receive"))? {
                break sample;
            }
            self.events.wait()?;
        };
        let stamp = match self.touch {
            Touch::Untouched => *sample.user_header(),
            Touch::Word => *sample.payload().first().context("empty payload")?,
            Touch::Touched => {
                let at = sample.payload().as_ptr().cast();
                // SAFETY: the received slice, that many bytes, not written while we hold the sample.
                unsafe { touch::check(at, self.words * 8)? }
            }
        };
        Ok((sample, stamp))
    }

    #[inline(always)]
    fn release(&mut self, held: Self::Held) -> Result<()> {
        drop(held);
        Ok(())
    }
}
