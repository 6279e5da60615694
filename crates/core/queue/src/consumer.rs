//! The reading end: its producers in turn, waiting.

#[cfg(test)]
mod tests;

use crate::item::Item;
use crate::options::ConsumerOptions;
use crate::seat::{Looked, Seat, Takes};
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Gone, Kind, Sleep, Writers};
use tranship_core::{Domain, DomainId, Error, ErrorKind, PollItem, Receiver, Wait};
use tranship_readers::is_put_off;
use tranship_ring::broadcast::DeskRw;
use tranship_ring::{Futex, Point, TIMED, Turns};
use tranship_sync::full_fence;

/// The time between two looks for a producer's first word.
const PAUSE: Duration = Duration::from_micros(200);
/// The longest sleep between two looks whether items wait and producers live.
const ROUND: Duration = Duration::from_millis(100);
/// The most looks at producers that come and go in one call of `try_recv`.
const TURNS: u32 = 4;
/// The number of calls of `try_recv` between two looks at producers that come and go, if the manager has no news.
const TEND: u32 = 1024;
/// The time after which a consumer that could not connect to a further producer tries again.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest sleep on one producer's word alone, while items flow. A wait on two words costs the kernel twice as much.
const BRIEF: Duration = Duration::from_millis(20);

/// Takes a queue's items. Each item goes to one consumer.
///
/// One thread at a time receives. Items may be read, acknowledged and dropped by any thread.
///
/// A consumer is connected to every producer of the name, also to later ones, and takes from them in turn. Items of one
/// producer come in the order in which it sent them. Only items that are given back come again later. A producer that
/// ends leaves its waiting items to the consumers.
///
/// Crash-safe: when the consumer's process dies, the items that it has taken and not acknowledged are given back to the
/// queue, or reported, as the producer chose.
pub struct Consumer {
    domain: Domain,
    name: String,
    options: ConsumerOptions,
    writers: Writers,
    seats: Vec<Seat>,
    /// The seat for the first look.
    next: usize,
    /// The number of calls since the last look at producers that come and go.
    untended: u32,
    /// The word of the manager's news at that look.
    news: u32,
    /// Whether this consumer has slept since its last item.
    slept: bool,
    turns: Turns,
    /// After a failed search for further producers: the time of the next one.
    seek_at: Option<Instant>,
    /// The result that a poll has found and `try_recv` has still to return.
    ahead: Option<Result<Item, Error>>,
}

/// A producer, as its consumer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSeen {
    /// The producer's domain.
    pub domain: DomainId,
    /// The number of its process.
    pub pid: u32,
    /// Whether the producer has taken this consumer in.
    pub joined: bool,
    /// Items that were taken and not acknowledged.
    pub open: usize,
    /// Buffers that are held, as of the last look.
    pub held: usize,
}

/// The status of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// The producers to which the consumer is connected.
    pub producers: Vec<ProducerSeen>,
}

impl Consumer {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: ConsumerOptions,
    ) -> Result<Consumer, Error> {
        options.check()?;
        let mut consumer = Consumer {
            writers: Writers::new(domain, name, Kind::Queue)?.typed(options.message_type.clone()),
            domain: domain.clone(),
            name: name.into(),
            options,
            seats: Vec::new(),
            next: 0,
            untended: TEND,
            news: 0,
            slept: false,
            turns: Turns::default(),
            seek_at: None,
            ahead: None,
        };
        // There is no need to wait for a producer in this process.
        if let Some((receiver, desk)) = consumer.writers.try_here()? {
            let seat = Seat::new(receiver, desk, consumer.options.open)?;
            consumer.seats.push(seat);
        }
        Ok(consumer)
    }

    /// Returns the queue's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status of the queue's producers. In a forked child the list is empty.
    pub fn status(&self) -> ConsumerStatus {
        if topics::check_fork(&self.domain).is_err() {
            return ConsumerStatus::default();
        }
        let seen = self.seats.iter().map(|seat| {
            let ((held, open), peer) = (seat.has(), seat.producer());
            ProducerSeen {
                domain: peer.domain,
                pid: peer.pid,
                joined: seat.has_begun(),
                open,
                held,
            }
        });
        ConsumerStatus {
            producers: seen.collect(),
        }
    }

    /// Takes the next item. Waits without limit for a producer, and for an item.
    ///
    /// # Errors
    /// `Limit` when this consumer has as many unacknowledged items of a producer as it may, or holds as many of the
    /// producer's buffers as it may: the item stays in the queue. `PeerViolation` when a producer broke a rule: the
    /// connection to it has ended, and the others go on. `PeerGone` when a producer has ended the connection because
    /// this domain holds more of its buffers than was agreed. `BadArgument` if a channel or a topic has the name;
    /// `ChannelBind` if its only producer's messages are of another type; `Access`; `CutOff`; `Forked`; `System`.
    #[inline]
    pub fn recv(&mut self) -> Result<Item, Error> {
        loop {
            if let Some(item) = self.try_recv()? {
                return Ok(item);
            }
            self.pause(None);
        }
    }

    /// Takes the next item, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Consumer::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Item, Error> {
        let begun = Instant::now();
        let deadline = begun.checked_add(timeout);
        loop {
            if let Some(item) = self.try_recv()? {
                return Ok(item);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.timed_out(begun.elapsed()));
            }
            self.pause(deadline);
        }
    }

    #[cold]
    fn timed_out(&self, waited: Duration) -> Error {
        let (name, producers) = (&self.name, self.seats.len());
        let text = match producers {
            0 => format!("queue {name}: no producer after {waited:?}"),
            _ => format!("queue {name}: no item of {producers} producers after {waited:?}"),
        };
        Error::new(ErrorKind::TimedOut, text)
    }

    /// Takes the next item, if one waits. The function waits only for the manager, at most 100 ms, if an item's memory
    /// was not yet shown.
    ///
    /// # Errors
    /// As [`recv`](Consumer::recv).
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Item>, Error> {
        // A forked child does not have the mappings that a look reads and writes.
        topics::check_fork(&self.domain)?;
        if self.ahead.is_some() {
            return self.ahead.take().transpose();
        }
        self.untended += 1;
        if self.untended > TEND {
            self.tend()?;
        }
        for _ in 0..TURNS {
            if let Some(item) = self.look()? {
                return Ok(Some(item));
            }
            if !self.has_news() || !self.tend()? {
                break;
            }
        }
        Ok(None)
    }

    /// Takes the next item without blocking the thread, in any runtime. It waits and ends as [`recv`](Consumer::recv)
    /// does. A future that is dropped before it is ready has taken nothing.
    ///
    /// # Errors
    /// As [`recv`](Consumer::recv), and `System` if the thread that wakes tasks, or its descriptors, cannot be made.
    pub fn recv_async(&mut self) -> impl Future<Output = Result<Item, Error>> + Send + Unpin {
        let mut awake = Awake {
            sleep: Sleep::new(&self.domain),
            consumer: self,
        };
        let mut looked = Instant::now();
        poll_fn(move |context| {
            let Awake { consumer, sleep } = &mut awake;
            if looked.elapsed() >= ROUND {
                looked = Instant::now();
                consumer.look_again();
            }
            if let Some(done) = consumer.try_recv().transpose() {
                sleep.end();
                return Poll::Ready(done);
            }
            let most = consumer.settle();
            consumer.begun().for_each(|seat| _ = seat.arm());
            let receivers = consumer.seats.iter();
            let receivers = receivers.map(|seat| &seat.connection().receiver);
            sleep.begin(receivers, context, most)?;
            // Ordering: partner: the producer's fence between its publish and its look at the flag.
            full_fence();
            consumer.slept = true;
            if consumer.is_ready() || sleep.has_news() {
                topics::catch_up(&consumer.domain);
                // The lines of a producer that lies may look ready without end. So the runtime decides when to look
                // again.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
    }

    /// Says that this consumer goes to sleep on the domain's pollable descriptor
    /// ([`Domain::as_fd`](tranship_core::Domain)). Returns true if it may sleep, false if there is something to look at
    /// already. From the first call on, each wake-up shows up on that descriptor. Call it before each wait, after
    /// `try_recv` gave `None`. A [`poll`](tranship_core::poll) with
    /// [`PollItem::domain`](tranship_core::PollItem::domain) waits on it together with other things.
    ///
    /// For each item one of the consumers that sleep is woken. If it takes nothing, the producer wakes another consumer
    /// within about 100 ms. The first call for a producer asks the manager for a descriptor, and waits for the answer
    /// as long as the domain's `manager_timeout` says.
    ///
    /// # Errors
    /// `TimedOut` if the manager does not answer; `ManagerAway`, `CutOff`; `Limit`, `System` if there are no more
    /// descriptors; `Forked`.
    pub fn arm(&mut self) -> Result<bool, Error> {
        topics::check_fork(&self.domain)?;
        self.settle();
        self.begun().for_each(|seat| _ = seat.arm());
        for seat in &mut self.seats {
            seat.connection_mut().receiver.topic_arm()?;
        }
        // Ordering: as in `recv_async`.
        full_fence();
        self.slept = true;
        if self.is_ready() || topics::news(&self.domain).seen != self.news {
            self.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    /// Makes an item for [`poll`](tranship_core::poll). It is ready when there is a queue's item or an error;
    /// `try_recv` then returns it. A poll that finds an item has taken it; if this consumer is dropped before it
    /// receives the item, the item goes back to the queue.
    pub fn poll_item(&mut self) -> PollItem<'_> {
        PollItem::polled(self)
    }

    /// Says that this consumer is awake again, and takes the wake-up bytes off its descriptor.
    pub fn disarm(&mut self) {
        for seat in &mut self.seats {
            seat.connection_mut().receiver.disarm();
        }
    }

    /// Returns the connections to producers that have said where to begin.
    fn begun(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| seat.has_begun())
    }

    /// Says whether there is something to look at.
    fn is_ready(&self) -> bool {
        self.seats.iter().any(Seat::is_ready)
    }

    /// Makes the next call look at everything, after a sleep in which nothing came.
    fn look_again(&mut self) {
        self.seats.iter_mut().for_each(Seat::look_again);
        self.untended = TEND;
    }

    /// Gives dropped buffers and entries back, before a sleep. Returns how long the sleep may be.
    fn settle(&mut self) -> Duration {
        self.seats.iter_mut().for_each(Seat::rest);
        let joins = self.seats.iter().any(|seat| !seat.has_begun());
        // Nobody rings when an entry is free again.
        match joins || self.seats.iter().any(Seat::awaits_entries) {
            true => PAUSE,
            false => ROUND,
        }
    }

    /// Says whether a producer or the manager has sent news beside the rings.
    #[inline]
    fn has_news(&self) -> bool {
        let said = |seat: &Seat| !seat.has_begun() || seat.connection().has_word();
        topics::news(&self.domain).seen != self.news || self.seats.iter().any(said)
    }

    /// Looks at the producers in turn.
    #[inline]
    fn look(&mut self) -> Result<Option<Item>, Error> {
        let takes = Takes {
            acknowledges: self.options.acknowledges,
        };
        for _ in 0..self.seats.len() {
            let at = self.next;
            self.next = if at + 1 < self.seats.len() { at + 1 } else { 0 };
            match self.seats[at].look(takes) {
                Ok(Looked::Nothing) => {}
                // Each call makes at most one request of the manager.
                Ok(Looked::Lost) => {
                    self.pass_on();
                    return Ok(None);
                }
                Ok(Looked::Item(item)) => {
                    self.slept = false;
                    return Ok(Some(item));
                }
                Err(error) => {
                    self.pass_on();
                    return Err(self.failed(at, error));
                }
            }
        }
        Ok(None)
    }

    /// Wakes another consumer, if this one was woken and takes nothing.
    #[cold]
    fn pass_on(&mut self) {
        if std::mem::take(&mut self.slept) {
            full_fence();
            let waits = self.seats.iter().filter(|seat| seat.has_item());
            waits.for_each(Seat::wake_another);
        }
    }

    /// Sees which producers come and go. Returns true if the rings should be read again.
    #[cold]
    fn tend(&mut self) -> Result<bool, Error> {
        self.untended = 0;
        self.news = topics::news(&self.domain).seen;
        topics::catch_up(&self.domain);
        let mut again = false;
        if let Some((receiver, desk)) = self.seek()? {
            let from = receiver.topic_peer().domain;
            match Seat::new(receiver, desk, self.options.open) {
                Ok(seat) => self.seats.push(seat),
                Err(error) if error == ErrorKind::PeerViolation => return Err(error),
                Err(error) => {
                    self.writers.ended(from);
                    tracing::debug!(%error, "connecting to a producer");
                }
            }
            again = true;
        }
        let mut at = 0;
        while at < self.seats.len() {
            let seat = &mut self.seats[at];
            let began = seat.has_begun();
            // Checks first whether the producer has ended, then hears its words and reads its ring: nothing is said and
            // nothing published after the end.
            let is_gone = seat.connection().gone() != Gone::No;
            if let Err(error) = seat.hear() {
                return Err(self.failed(at, error));
            }
            again |= !began && seat.has_begun();
            if is_gone
                && !seat.connection().awaits_pool()
                && !(seat.has_item() && seat.connection_mut().may_look_on())
            {
                self.leave(at, true);
                continue;
            }
            at += 1;
        }
        Ok(again)
    }

    /// Looks for another producer.
    fn seek(&mut self) -> Result<Option<(Receiver, DeskRw)>, Error> {
        if self.seek_at.is_some_and(|at| Instant::now() < at) {
            return Ok(None);
        }
        self.seek_at = None;
        match self.writers.try_next() {
            // The producers that are connected go on.
            Err(error) if !self.seats.is_empty() => {
                tracing::debug!(queue = self.name, %error, "looking for further producers");
                self.seek_at = Some(Instant::now() + AGAIN);
                Ok(None)
            }
            next => next,
        }
    }

    /// Ends a connection. The producer's domain may become a producer again, unless it broke a rule.
    fn leave(&mut self, at: usize, may_return: bool) {
        let seat = self.seats.remove(at);
        if may_return {
            self.writers.ended(seat.domain());
        }
        self.next = 0;
        seat.leave();
    }

    /// Ends the connection after an error that ends it.
    #[cold]
    fn failed(&mut self, at: usize, error: Error) -> Error {
        if !is_put_off(&error) {
            self.leave(at, error == ErrorKind::PeerGone);
        }
        error
    }

    /// Waits for a reason to look again, for a bounded time.
    #[inline(never)]
    fn pause(&mut self, deadline: Option<Instant>) {
        let spins = match self.options.wait {
            Wait::Spin => 1 << 16,
            Wait::SpinThenSleep(spins) => spins,
            Wait::Sleep => 0,
        };
        for _ in 0..spins {
            std::hint::spin_loop();
            if self.seats.iter().any(Seat::is_ready) {
                return;
            }
        }
        if self.options.wait != Wait::Spin {
            self.sleep(deadline);
        }
    }

    fn sleep(&mut self, deadline: Option<Instant>) {
        let longest = self.settle();
        let flows = longest == ROUND && !self.slept && self.seats.len() == 1;
        if flows && self.turns.give(|| self.is_ready()) {
            return;
        }
        let longest = if flows { BRIEF } else { longest };
        let most = deadline.map_or(longest, |at| {
            at.saturating_duration_since(Instant::now()).min(longest)
        });
        let mut points: Vec<_> = self.begun().map(Seat::arm).collect();
        if !flows {
            points.truncate(tranship_ring::MAX_WORDS - 1);
            let word = topics::news(&self.domain).wake;
            points.push(Point::seen(word, self.news));
        }
        // Ordering: partner: the producer's fence between its publish and its look at the flag.
        full_fence();
        if self.is_ready() {
            return;
        }
        tranship_sys::crash::point("queue.asleep");
        let woken = TIMED.wait_any(&points, most);
        self.slept = true;
        if !matches!(woken, Ok(tranship_ring::Waited::Woken)) {
            self.look_again();
        }
    }
}

/// A consumer in a future. If the future is dropped after the consumer was woken, it wakes another consumer.
struct Awake<'a> {
    sleep: Sleep,
    consumer: &'a mut Consumer,
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        if topics::check_fork(&self.consumer.domain).is_ok() {
            self.consumer.pass_on();
        }
    }
}

tranship_readers::polled!(Consumer);

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Drop for Consumer {
    /// Leaves in order: open items go back to the queue.
    fn drop(&mut self) {
        let seats = std::mem::take(&mut self.seats);
        if topics::check_fork(&self.domain).is_err() {
            // The channels are the parent's.
            seats.into_iter().for_each(std::mem::forget);
            std::mem::forget(self.ahead.take());
            return;
        }
        drop(self.ahead.take());
        seats.into_iter().for_each(Seat::leave);
    }
}
