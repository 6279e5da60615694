//! The reading end: connecting, receiving, waiting.

use crate::options::SubscriberOptions;
use crate::seat::{Looked, Seat, Source};
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use tranship_core::error::{Awaited, TimedOut};
use tranship_core::topics::{self, Gone, Kind, Sleep, Writers};
use tranship_core::{Domain, DomainId, Error, ErrorKind, Message, PollItem, Receiver, Wait};
use tranship_readers::is_put_off;
use tranship_ring::TIMED;
use tranship_ring::broadcast::{DeskRw, T_NS, wait_any};
use tranship_sys::time::monotonic_ns;

/// The longest sleep between two looks whether the publishers live.
const ROUND: Duration = Duration::from_millis(100);
/// The time after which a subscriber that could not connect to a further publisher tries again.
const AGAIN: Duration = Duration::from_secs(1);
/// If messages come within this time after a wait begins, spinning is worth its cost, ns.
const WORTH_NS: u64 = 50_000;
/// The most looks beside the ring in one call of `try_recv`.
const TURNS: u32 = 4;
/// The number of calls of `try_recv` between two looks for further publishers of this process, which send no news.
const SEEK: u32 = 1024;

/// Receives a topic's messages. A message that was overwritten before this subscriber took it is counted as missed.
///
/// One thread at a time receives. Any thread may keep, clone and drop the received messages.
///
/// A subscriber outlives its publisher: `recv` says once that the publisher is gone, and the next `recv` waits for a
/// publisher of that name. If several publishers share the name, the subscriber takes a message from each in turn; the
/// messages of one publisher stay in order, and [`source`](Subscriber::source) says which publisher the last message is
/// from.
pub struct Subscriber {
    domain: Domain,
    name: String,
    options: SubscriberOptions,
    writers: Writers,
    seats: Vec<Seat>,
    /// The seat for the next look.
    next: usize,
    /// The publisher of the last message.
    source: Option<Source>,
    missed: u64,
    /// Whether the last wait was short: the next one begins with spinning.
    spins: bool,
    /// The time at which a wait last looked whether the publishers live.
    looked: Instant,
    /// The number of calls since the last search for further publishers.
    unsought: u32,
    /// After a failed search for further publishers: the time of the next one.
    seek_at: Option<Instant>,
    /// The result that a poll has found and `try_recv` has still to return.
    ahead: Option<Result<Message, Error>>,
}

/// The status of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberStatus {
    /// The domain and process of the publisher, if there is one. If there are several, the one to which this subscriber
    /// connected first.
    pub publisher: Option<(DomainId, u32)>,
    /// All publishers to which this subscriber is connected.
    pub publishers: Vec<(DomainId, u32)>,
    /// Whether a publisher has taken this subscriber in. Each message that it publishes from then on is received, or
    /// counted as missed.
    pub joined: bool,
    /// Whether a publisher waits for this subscriber.
    pub reliable: bool,
    /// Messages that were missed.
    pub missed: u64,
    /// Buffers that are held, as of the last look.
    pub held: usize,
}

/// The result of a look at all seats.
enum Look {
    Message(Message),
    /// Lines were missed: look again, unless the call has looked enough.
    Missed(u64),
    Nothing,
}

impl Subscriber {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: SubscriberOptions,
    ) -> Result<Subscriber, Error> {
        let mut subscriber = Subscriber {
            writers: Writers::new(domain, name, Kind::Topic)?.typed(options.message_type.clone()),
            domain: domain.clone(),
            name: name.into(),
            options,
            seats: Vec::new(),
            next: 0,
            source: None,
            missed: 0,
            spins: true,
            looked: Instant::now(),
            unsought: 0,
            seek_at: None,
            ahead: None,
        };
        // There is no need to wait for a publisher in this process.
        if let Some((receiver, desk)) = subscriber.writers.try_here()? {
            subscriber.connect(receiver, desk)?;
        }
        Ok(subscriber)
    }

    /// Returns the topic's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many messages were missed: overwritten or withdrawn before they were taken, or skipped by
    /// [`latest`](SubscriberOptions::latest).
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the publisher of the message that was received last: its domain and process.
    pub fn source(&self) -> Option<(DomainId, u32)> {
        self.source
    }

    /// Returns what is known of the topic.
    pub fn status(&self) -> SubscriberStatus {
        let publishers: Vec<_> = self.seats.iter().map(|seat| seat.publisher()).collect();
        SubscriberStatus {
            publisher: publishers.first().copied(),
            publishers,
            joined: self.seats.iter().any(|seat| seat.has_begun()),
            reliable: self.seats.iter().any(|seat| seat.is_reliable()),
            missed: self.missed,
            held: self.seats.iter().map(|seat| seat.held()).sum(),
        }
    }

    /// Receives the next message. Waits without limit for a publisher, and for its next message.
    ///
    /// # Errors
    /// `PeerGone` when a publisher has ended the topic, `PeerDied` when a publisher died. Each error comes once, after
    /// all messages that the publisher's ring still had. The next call waits for another publisher, or goes on with the
    /// others. `PeerGone` also when a publisher has ended this subscription, because this domain holds more buffers
    /// than was agreed. `Limit` when this subscriber holds as many buffers as it may: the message is still the next
    /// one. `ChunkPending` if the message's memory was not shown to this process, and no manager can be reached to show
    /// it: the message is still the next one. `BadArgument` if a channel has the name; `Access`; `PeerViolation`;
    /// `CutOff`; `Forked`; `System`.
    #[inline]
    pub fn recv(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.try_recv()? {
                return Ok(message);
            }
            self.pause(None);
        }
    }

    /// Receives the next message, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, Error> {
        let begun = Instant::now();
        let deadline = begun.checked_add(timeout);
        loop {
            if let Some(message) = self.try_recv()? {
                return Ok(message);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(TimedOut::since(begun, self.awaited()).into());
            }
            self.pause(deadline);
        }
    }

    #[cold]
    fn awaited(&self) -> Awaited {
        let name = self.name.clone();
        if self.seats.is_empty() {
            return Awaited::Publisher(name);
        }
        let memory = self.seats.iter().find_map(Seat::awaits_memory);
        memory.map_or(Awaited::TopicMessage(name), Awaited::Memory)
    }

    /// Receives the next message without blocking the thread, in any runtime. It waits and ends as
    /// [`recv`](Subscriber::recv) does. A future that is dropped before it is ready has taken nothing.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv), and `System` if the thread that wakes tasks, or its descriptors, cannot be made.
    pub fn recv_async(&mut self) -> impl Future<Output = Result<Message, Error>> + Send + Unpin {
        let mut sleep = Sleep::new(&self.domain);
        poll_fn(move |context| {
            if let Some(done) = self.try_recv().transpose() {
                sleep.end();
                return Poll::Ready(done);
            }
            let most = self.settle();
            let receivers = self.seats.iter().map(|seat| &seat.connection().receiver);
            sleep.begin(receivers, context, most)?;
            if self.is_ready() || sleep.has_news() {
                topics::catch_up(&self.domain);
                // The lines of a publisher that lies may look ready without end. So the runtime decides when to look
                // again.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
    }

    /// Says that this subscriber goes to sleep on the domain's pollable descriptor
    /// ([`Domain::as_fd`](tranship_core::Domain)). Returns true if it may sleep, false if a message is there already.
    /// From the first call on, each message shows up on that descriptor. Call it before each wait, after `try_recv`
    /// gave `None`. A [`poll`](tranship_core::poll) with [`PollItem::domain`](tranship_core::PollItem::domain) waits on
    /// it together with other things.
    ///
    /// A call within 100 µs of the last message waits for the rest of that time. The first call for a publisher asks the
    /// manager for a descriptor, and waits for the answer as long as the domain's `manager_timeout` says.
    ///
    /// # Errors
    /// `TimedOut` if the manager does not answer; `ManagerAway`, `CutOff`; `Limit`, `System` if there are no more
    /// descriptors; `Forked`.
    pub fn arm(&mut self) -> Result<bool, Error> {
        topics::check_fork(&self.domain)?;
        // A bell can end a sleep early: the bell of a message rings after the message was taken.
        while self.settle() <= Duration::from_nanos(T_NS) && !self.is_ready() {
            self.sleep(Duration::from_nanos(T_NS));
        }
        for seat in &mut self.seats {
            seat.connection_mut().receiver.topic_arm()?;
        }
        if self.is_ready() {
            self.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    /// Makes an item for [`poll`](tranship_core::poll). The item is ready when there is a message or an error;
    /// `try_recv` then returns it. A poll that finds a message has received it: `missed` and `source` count it.
    pub fn poll_item(&mut self) -> PollItem<'_> {
        PollItem::polled(self)
    }

    /// Says that this subscriber is awake again, and takes the wake-up bytes off its descriptor.
    pub fn disarm(&mut self) {
        for seat in &mut self.seats {
            seat.connection_mut().receiver.disarm();
        }
    }

    /// Receives the next message, if it is there. The function does not wait. `None` does not mean that the ring is
    /// empty: one call reads a bounded number of missed lines, and the manager may not have shown a message's memory
    /// yet.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv).
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Message>, Error> {
        // A forked child does not have the mappings that a look reads and writes.
        topics::check_fork(&self.domain)?;
        if self.ahead.is_some() {
            return self.ahead.take().transpose();
        }
        if self.writers.is_shared() {
            self.unsought += 1;
            // A new publisher may have come while others keep this subscriber busy.
            if self.unsought > SEEK || topics::has_news(&self.domain) {
                self.go_on()?;
            }
        }
        // A publisher that lies must not keep this call from returning.
        let (mut vain, mut turns, mut is_last) = (0, 0, false);
        loop {
            match self.look()? {
                Look::Message(message) => return Ok(Some(message)),
                Look::Missed(looks) => {
                    vain += looks;
                    let most: u64 = self
                        .seats
                        .iter()
                        .map(|seat| seat.connection().most_looks())
                        .sum();
                    is_last = vain >= most;
                    if !is_last {
                        continue;
                    }
                    // The manager may be away. While there are lines, no sleep looks for deaths.
                    self.look_for_death();
                }
                Look::Nothing => {}
            }
            turns += 1;
            if !self.go_on()? || is_last || turns == TURNS {
                return Ok(None);
            }
        }
    }

    /// Looks at each seat, beginning with the next one, until a look finds something.
    #[inline]
    fn look(&mut self) -> Result<Look, Error> {
        for _ in 0..self.seats.len() {
            let at = if self.next < self.seats.len() {
                self.next
            } else {
                0
            };
            self.next = at + 1;
            let seat = &mut self.seats[at];
            match seat.look(self.options.latest) {
                Ok(Looked::Nothing) => {}
                Ok(Looked::Message(message)) => {
                    seat.took();
                    self.source = Some(seat.publisher());
                    return Ok(Look::Message(message));
                }
                Ok(Looked::Missed { count, looks }) => {
                    self.missed = self.missed.saturating_add(count);
                    seat.connection_mut().looked_in_vain(looks);
                    seat.passed_over();
                    self.next = at;
                    return Ok(Look::Missed(looks));
                }
                Err(error) => return Err(self.failed(at, error)),
            }
        }
        Ok(Look::Nothing)
    }

    #[cold]
    fn look_for_death(&self) {
        self.seats
            .iter()
            .for_each(|seat| seat.connection().look_for_death());
    }

    /// Looks for other news after the rings had nothing. Returns true if the rings should be read again.
    #[cold]
    fn go_on(&mut self) -> Result<bool, Error> {
        let mut again = self.seek()?;
        let mut at = 0;
        while let Some(seat) = self.seats.get_mut(at) {
            // Checks first whether the publisher has ended, then hears its words and reads the ring: nothing is said and
            // nothing published after the end.
            let gone = seat.gone();
            let heard = seat.hear();
            let begun = seat.has_begun();
            let is_pending = seat.is_pending();
            let is_ready = seat.is_ready()
                && (gone == Gone::No || is_pending || seat.connection_mut().may_look_on());
            if let Err(error) = heard {
                return Err(self.failed(at, error));
            }
            match gone {
                _ if is_ready => again = true,
                Gone::No => {}
                // The manager has not yet shown the message's memory.
                _ if is_pending => {}
                _ if seat.connection().awaits_pool() => {}
                // The publisher never let it begin, so it had no message.
                _ if !begun => {
                    self.remove(at);
                    continue;
                }
                gone => {
                    let error = over(&self.name, gone, seat.publisher());
                    return Err(self.failed(at, error));
                }
            }
            at += 1;
        }
        Ok(again)
    }

    /// Looks for a first publisher or, if the name is shared, for another one. Returns true if it has found one.
    fn seek(&mut self) -> Result<bool, Error> {
        self.unsought = 0;
        if self.seek_at.is_some_and(|at| Instant::now() < at) {
            return Ok(false);
        }
        self.seek_at = None;
        let next = self.writers.try_next();
        let found = next.and_then(|next| match next {
            Some((receiver, desk)) => self.connect(receiver, desk),
            None => Ok(false),
        });
        match found {
            Ok(again) => Ok(again),
            Err(error) if self.seats.is_empty() => Err(error),
            // The publishers that are connected go on.
            Err(error) => {
                tracing::debug!(topic = self.name, %error, "looking for further publishers");
                self.seek_at = Some(Instant::now() + AGAIN);
                Ok(false)
            }
        }
    }

    fn connect(&mut self, receiver: Receiver, desk: DeskRw) -> Result<bool, Error> {
        let domain = receiver.topic_peer().domain;
        match Seat::new(receiver, desk, &self.options) {
            Ok(seat) => {
                self.seats.push(seat);
                Ok(true)
            }
            Err(error) => {
                self.writers.ended(domain);
                match error == ErrorKind::PeerGone {
                    true => Ok(false),
                    false => Err(error),
                }
            }
        }
    }

    /// Ends a connection after an error that ends it.
    #[cold]
    fn failed(&mut self, at: usize, error: Error) -> Error {
        if !is_put_off(&error) && error != ErrorKind::Forked {
            self.remove(at);
        }
        error
    }

    fn remove(&mut self, at: usize) {
        let seat = self.seats.remove(at);
        self.writers.ended(seat.publisher().0);
        seat.leave();
    }

    /// Says whether there is something to look at.
    fn is_ready(&self) -> bool {
        self.seats.iter().any(|seat| seat.is_ready())
    }

    /// Takes all claims off the desks, before a sleep. Returns how long the sleep may be.
    fn settle(&mut self) -> Duration {
        let now = monotonic_ns();
        let mut most = ROUND;
        for seat in &mut self.seats {
            seat.settle(now);
            seat.rest();
            if !seat.has_begun() {
                most = most.min(seat.connection().word_pause());
            } else if !seat.may_sleep(now) {
                most = most.min(Duration::from_nanos(T_NS));
            }
        }
        most
    }

    /// Waits for a reason to look again, for a bounded time.
    #[inline(never)]
    fn pause(&mut self, deadline: Option<Instant>) {
        if self.seats.is_empty() {
            return topics::idle(&self.domain, deadline);
        }
        let begun = monotonic_ns();
        if self.spin() {
            self.spins = true;
            return;
        }
        if self.options.wait == Wait::Spin {
            return;
        }
        let left = deadline.map_or(ROUND, |at| at.saturating_duration_since(Instant::now()));
        let most = self.settle().min(left);
        let woken = self.sleep(most);
        // Spinning is worth its cost if messages come soon after the wait begins.
        self.spins = woken && monotonic_ns().saturating_sub(begun) < WORTH_NS;
        // A caller with many short waits never waits for a whole round, so it looks here.
        if !woken && self.looked.elapsed() >= ROUND {
            self.looked = Instant::now();
            self.look_for_death();
        }
    }

    /// Looks again and again, as the options say. Returns true if there is something to look at.
    fn spin(&self) -> bool {
        let spins = match self.options.wait {
            Wait::Spin => 1 << 16,
            Wait::SpinThenSleep(spins) if self.spins => spins,
            Wait::SpinThenSleep(_) | Wait::Sleep => 0,
        };
        (0..spins).any(|_| {
            std::hint::spin_loop();
            self.is_ready()
        })
    }

    /// Sleeps once on the publishers' words, after `settle`. Returns true if there is something to look at.
    fn sleep(&self, most: Duration) -> bool {
        let bells: Vec<_> = self.seats.iter().map(|seat| seat.bell()).collect();
        let awaits = |seat: &Seat| seat.awaits_memory().is_some();
        let heeds = self.writers.is_shared() || self.seats.iter().any(awaits);
        let news = heeds.then(|| topics::news(&self.domain).wake);
        let ready = || (self.is_ready() || heeds && topics::has_news(&self.domain)).then_some(());
        let woken = wait_any(&TIMED, &bells, news, most, monotonic_ns, ready);
        matches!(woken, Ok(Some(())))
    }
}

tranship_readers::polled!(Subscriber);

#[cold]
fn over(name: &str, gone: Gone, (domain, pid): Source) -> Error {
    match gone {
        Gone::Died => {
            let text =
                format!("the publisher of topic {name} died: domain {domain}, process {pid}");
            Error::new(ErrorKind::PeerDied, text)
        }
        _ => {
            let text =
                format!("the publisher has ended topic {name}: domain {domain}, process {pid}");
            Error::new(ErrorKind::PeerGone, text)
        }
    }
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber")
            .field("name", &self.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let seats = std::mem::take(&mut self.seats).into_iter();
        match topics::check_fork(&self.domain) {
            Ok(()) => seats.for_each(|seat| seat.leave()),
            Err(_) => seats.for_each(std::mem::forget),
        }
    }
}
