//! The reading end: connecting, receiving, waiting.

use crate::line::Wish;
use crate::options::SubscriberOptions;
use crate::seat::{Looked, Seat};
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Gone};
use tranship_core::{Domain, DomainId, Error, ErrorKind, Message, Opening, Receiver, Wait};
use tranship_ring::TIMED;
use tranship_ring::broadcast::{DeskRw, Quiet, T_NS, wait};
use tranship_sys::time::monotonic_ns;

/// Between two looks for a publisher's first word.
const PAUSE: Duration = Duration::from_micros(200);
/// The longest sleep between two looks whether the publisher lives.
const ROUND: Duration = Duration::from_millis(100);

/// Looks beside the ring in one call of `try_recv`.
const TURNS: u32 = 4;

/// Receives a topic's messages. What was overwritten before it was taken is counted as missed.
///
/// One thread at a time receives. What it received may be kept, cloned and dropped by any thread.
///
/// A subscriber outlives its publisher: `recv` says once that the publisher is gone, and the next `recv` waits for a
/// publisher of that name.
pub struct Subscriber {
    domain: Domain,
    name: String,
    options: SubscriberOptions,
    state: State,
    missed: u64,
    quiet: Quiet,
    /// Whether a message came since the last sleep.
    flows: bool,
}

enum State {
    /// Waits for the name. The desk is shown with the request.
    Seeking(Opening<Receiver>, DeskRw),
    Seated(Box<Seat>),
    /// Nothing, for the moment.
    Between,
}

/// What a subscriber knows of its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberStatus {
    /// The publisher's domain and process, if there is one.
    pub publisher: Option<(DomainId, u32)>,
    /// Whether the publisher has taken this subscriber in: what it publishes from then on is received, or counted as
    /// missed.
    pub joined: bool,
    /// Whether the publisher waits for this subscriber.
    pub reliable: bool,
    /// Messages that were missed.
    pub missed: u64,
    /// Buffers that are held, as of the last look.
    pub held: usize,
}

impl Subscriber {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: SubscriberOptions,
    ) -> Result<Subscriber, Error> {
        topics::check_fork(domain)?;
        Ok(Subscriber {
            state: seek(domain, name)?,
            domain: domain.clone(),
            name: name.into(),
            options,
            missed: 0,
            quiet: Quiet::new(T_NS, monotonic_ns()),
            flows: false,
        })
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

    /// Returns what is known of the topic.
    pub fn status(&self) -> SubscriberStatus {
        let seat = match &self.state {
            State::Seated(seat) => Some(seat),
            _ => None,
        };
        SubscriberStatus {
            publisher: seat.map(|seat| seat.publisher()),
            joined: seat.is_some_and(|seat| seat.has_begun()),
            reliable: seat.is_some_and(|seat| seat.is_reliable()),
            missed: self.missed,
            held: seat.map_or(0, |seat| seat.held()),
        }
    }

    /// Receives the next message. Waits for a publisher, and for its next message, for ever.
    ///
    /// # Errors
    /// `PeerGone` when the publisher has ended the topic, `PeerDied` when it died, each once and after all that the ring still had: the next call waits for
    /// another publisher. `PeerGone` also when the publisher has ended this subscription, because this domain holds more
    /// than was agreed. `Limit` when this subscriber holds as many buffers as it may: the message stays the next one. `BadArgument` if a channel has the
    /// name, or this domain publishes the topic itself; `Access`; `PeerViolation`; `CutOff`; `Forked`; `System`.
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
                let name = &self.name;
                let what = match &self.state {
                    State::Seated(_) => "no message",
                    _ => "no publisher",
                };
                let text = format!("topic {name}: {what} after {:?}", begun.elapsed());
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            self.pause(deadline);
        }
    }

    /// Receives the next message, if it is there. It waits for nobody but the manager: at most 100 ms, if a message's
    /// memory has still to be shown. `None` does not say that the ring is empty: one call looks at a bounded number of
    /// lines that were missed.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv).
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Message>, Error> {
        // A publisher that lies must not keep the call from its end.
        let (mut vain, mut turns, mut is_last) = (0, 0, false);
        loop {
            if let State::Seated(seat) = &mut self.state {
                match seat.look(self.options.latest) {
                    Ok(Looked::Message(message)) => {
                        self.flows = true;
                        return Ok(Some(message));
                    }
                    Ok(Looked::Missed { count, looks }) => {
                        self.missed = self.missed.saturating_add(count);
                        seat.looked_in_vain(looks);
                        vain += looks;
                        is_last = vain >= seat.most_looks();
                        if !is_last {
                            continue;
                        }
                        // The manager may be away, and no sleep looks as long as lines are there.
                        seat.look_for_death();
                    }
                    // One request of the manager a call.
                    Ok(Looked::Lost) => {
                        self.missed = self.missed.saturating_add(1);
                        seat.looked_in_vain(1);
                        seat.look_for_death();
                        is_last = true;
                    }
                    Ok(Looked::Nothing) => {}
                    Err(error) => return Err(self.failed(error)),
                }
            }
            turns += 1;
            if !self.go_on()? || is_last || turns == TURNS {
                return Ok(None);
            }
        }
    }

    /// The ring has nothing: sees what else there is. True: look again.
    #[cold]
    fn go_on(&mut self) -> Result<bool, Error> {
        topics::check_fork(&self.domain)?;
        match std::mem::replace(&mut self.state, State::Between) {
            State::Seeking(mut opening, desk) => match opening.try_open() {
                Ok(Some(receiver)) => {
                    let wish = Wish {
                        reliable: self.options.reliable,
                    };
                    match Seat::new(receiver, desk, wish) {
                        Ok(seat) => self.state = State::Seated(Box::new(seat)),
                        Err(error) if error == ErrorKind::PeerGone => self.seek()?,
                        Err(error) => return Err(self.failed(error)),
                    }
                    Ok(true)
                }
                Ok(None) => {
                    self.state = State::Seeking(opening, desk);
                    Ok(false)
                }
                Err(error) => Err(self.failed(error)),
            },
            State::Seated(mut seat) => {
                let heard = seat.hear();
                let begun = seat.has_begun();
                // The publisher's end is looked for before the ring is read: nothing is published after it.
                let gone = seat.gone();
                let is_ready = seat.is_ready() && (gone == Gone::No || seat.may_look_on());
                self.state = State::Seated(seat);
                if let Err(error) = heard {
                    return Err(self.failed(error));
                }
                match gone {
                    _ if is_ready => Ok(true),
                    Gone::No => Ok(false),
                    // It has never begun: nothing was to be had from it.
                    _ if !begun => {
                        self.seek()?;
                        Ok(false)
                    }
                    gone => Err(self.failed(over(&self.name, gone))),
                }
            }
            State::Between => {
                self.seek()?;
                Ok(true)
            }
        }
    }

    /// Ends the connection after an error that ends it.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        let stays = matches!(error.kind(), ErrorKind::Limit | ErrorKind::Forked);
        if !stays && let Err(worse) = self.seek() {
            return worse;
        }
        error
    }

    /// Begins anew.
    fn seek(&mut self) -> Result<(), Error> {
        let state = seek(&self.domain, &self.name)?;
        if let State::Seated(seat) = std::mem::replace(&mut self.state, state) {
            seat.leave();
        }
        Ok(())
    }

    /// Waits for a reason to look again, for a bounded time.
    #[inline(never)]
    fn pause(&mut self, deadline: Option<Instant>) {
        let most = deadline.map_or(ROUND, |at| {
            at.saturating_duration_since(Instant::now()).min(ROUND)
        });
        let State::Seated(seat) = &mut self.state else {
            return topics::idle(&self.domain, deadline);
        };
        if !seat.has_begun() {
            return seat.await_word(PAUSE.min(most));
        }
        if self.flows {
            self.quiet.saw(monotonic_ns());
            self.flows = false;
        }
        let spins = match self.options.wait {
            Wait::Spin => 1 << 16,
            Wait::SpinThenSleep(spins) => spins,
            Wait::Sleep => 0,
        };
        for _ in 0..spins {
            std::hint::spin_loop();
            if seat.is_ready() {
                return;
            }
        }
        if self.options.wait == Wait::Spin {
            return;
        }
        seat.rest();
        let bell = seat.bell().word();
        let ready = || seat.is_ready().then_some(());
        let woken = wait(&TIMED, bell, &self.quiet, most, monotonic_ns, ready);
        if !matches!(woken, Ok(Some(()))) {
            seat.look_for_death();
        }
    }
}

fn seek(domain: &Domain, name: &str) -> Result<State, Error> {
    let (fd, desk) = DeskRw::create()?;
    Ok(State::Seeking(topics::subscribe(domain, name, fd)?, desk))
}

#[cold]
fn over(name: &str, gone: Gone) -> Error {
    match gone {
        Gone::Died => {
            let text = format!("the publisher of topic {name} died");
            Error::new(ErrorKind::PeerDied, text)
        }
        _ => {
            let text = format!("the publisher has ended topic {name}");
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
        if topics::check_fork(&self.domain).is_err() {
            std::mem::forget(std::mem::replace(&mut self.state, State::Between));
            return;
        }
        if let State::Seated(seat) = std::mem::replace(&mut self.state, State::Between) {
            seat.leave();
        }
    }
}
