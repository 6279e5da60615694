//! Room in the ring, and waiting for it.

use super::Sender;
use crate::base::millis;
use crate::error::{Error, ErrorKind, NotTaken, RingFull, Violation};
use crate::link::shared::Gone;
use crate::link::sleep::sleep_on;
use crate::options::{Patience, Wait, WhenFull};
use std::time::{Duration, Instant};
use tranship_ring::Waker;
use tranship_sys::time::monotonic_ns;

impl Sender {
    /// Makes room for `want` lines, waiting as the channel's options say.
    #[inline(always)]
    pub(super) fn make_room(&mut self, want: u32) -> Result<(), Error> {
        if self.producer.known_room(self.lines) >= want {
            return Ok(());
        }
        self.wait_for_room(want)
    }

    pub(super) fn look_for_room(&mut self, want: u32) -> Result<bool, Error> {
        self.give_back_assignments();
        let ring = &self.link.ring;
        match self.producer.room(self.lines, want, || ring.their_head()) {
            Ok(room) => Ok(room >= want),
            Err(lie) => {
                let violation = Violation::Head {
                    head: lie.head,
                    min: lie.before,
                    max: lie.tail,
                };
                self.link.hang_up();
                Err(broke_a_rule(violation))
            }
        }
    }

    /// Whether the receiver may have given lines back since they were counted last.
    pub(in crate::link) fn has_moved(&self) -> bool {
        self.link.ring.their_head() != self.producer.known_head()
    }

    /// Whether a send would not wait for room.
    pub(in crate::link) fn may_send(&mut self) -> bool {
        self.link.gone() != Gone::No || self.look_for_room(1).unwrap_or(true)
    }

    /// Whether the receiver has taken everything. Fails if the receiver is gone and has not.
    pub(in crate::link) fn is_taken(&mut self) -> Result<bool, Error> {
        match self.wait_taken(Duration::ZERO) {
            Err(error) if error == ErrorKind::TimedOut => Ok(false),
            taken => taken.map(|()| true),
        }
    }

    #[cold]
    pub(super) fn wait_for_room(&mut self, want: u32) -> Result<(), Error> {
        if self.look_for_room(want)? {
            return Ok(());
        }
        let started = Instant::now();
        let deadline = match self.patience {
            Patience::Channel(WhenFull::Wait) => None,
            Patience::Channel(WhenFull::DropNew | WhenFull::DropOldest) => Some(started),
            Patience::AtMost(time) => started.checked_add(time),
        };
        let ring = &self.link.ring;
        ring.stall();
        if deadline != Some(started) {
            ring.wait(monotonic_ns());
            let found = self.poll_room(want, deadline);
            self.link.ring.wait_no_more(monotonic_ns());
            if found? {
                return Ok(());
            }
        } else if self.poll_room(want, deadline)? {
            return Ok(());
        }
        Err(RingFull {
            lines: self.lines.count(),
            waited_ms: millis(started.elapsed()),
        }
        .into())
    }

    /// Waits until the receiver has taken everything that was sent, or fails after `timeout`. A receiver that ends
    /// after success has left no message behind.
    ///
    /// # Errors
    /// [`NotTaken`], with how many messages are left: `PeerGone` or `TimedOut`.
    pub fn wait_taken(&mut self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        if self.link.domain.fork.is_child() {
            return Err(ErrorKind::Forked.into());
        }
        let started = Instant::now();
        let deadline = timeout.into().and_then(|time| started.checked_add(time));
        let all = self.lines.count();
        let gone = match self.poll_room(all, deadline) {
            Ok(true) => return Ok(()),
            Ok(false) => false,
            // Messages that the receiver took before its end count.
            Err(error) if error == ErrorKind::PeerGone => match self.look_for_room(all)? {
                true => return Ok(()),
                false => true,
            },
            Err(error) => return Err(error),
        };
        Err(NotTaken {
            messages: self.queued(),
            gone,
            waited_ms: millis(started.elapsed()),
        }
        .into())
    }

    /// Waits for room; false when the time is over.
    fn poll_room(&mut self, want: u32, deadline: Option<Instant>) -> Result<bool, Error> {
        let mut polls = 0u32;
        loop {
            if self.look_for_room(want)? {
                return Ok(true);
            }
            self.alive()?;
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(false);
            }
            let (head, ring) = (self.producer.known_head(), &self.link.ring);
            // The receiver gives lines back by plain stores: it is a lazy waker.
            let has_moved = || ring.their_head() != head;
            self.pause(&mut polls, Waker::Lazy, deadline, &has_moved);
        }
    }

    /// Pauses once for a caller that waits for `is_ready`, as the channel's options say. The pause may end early.
    pub(super) fn pause(
        &self,
        polls: &mut u32,
        waker: Waker,
        deadline: Option<Instant>,
        is_ready: &dyn Fn() -> bool,
    ) {
        let link = &self.link;
        if let Some(driver) = link.driver() {
            link.drive(driver, self.wait, deadline, &|| {
                is_ready() || link.gone() != Gone::No || link.domain.has_news()
            });
            return;
        }
        *polls = polls.wrapping_add(1);
        match self.wait {
            Wait::Spin => {
                std::hint::spin_loop();
                if polls.is_multiple_of(1 << 22) {
                    link.look_for_death();
                    link.domain.turn_quietly();
                }
            }
            Wait::SpinThenSleep(spins) if *polls < spins => std::hint::spin_loop(),
            _ => sleep_on(link, waker, deadline, false, is_ready),
        }
    }
}

/// Returns the error of a channel that is closed for a violation.
fn broke_a_rule(violation: Violation) -> Error {
    let text = "the receiver broke a rule, the channel is closed";
    Error::because(ErrorKind::PeerViolation, text, violation)
}
