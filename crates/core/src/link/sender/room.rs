//! Room in the ring, and waiting for it.

use super::Sender;
use crate::domain::millis;
use crate::error::{SendFailure, Violation};
use crate::link::shared::Gone;
use crate::link::sleep::sleep_on;
use crate::options::{Wait, WhenFull};
use std::time::{Duration, Instant};
use tranship_proto::Request;
use tranship_sync::Waker;

impl Sender {
    /// Room for that many lines, waiting as chosen.
    #[inline(always)]
    pub(super) fn make_room(&mut self, want: u32) -> Result<(), SendFailure> {
        if self.producer.known_room(self.lines) >= want {
            return Ok(());
        }
        self.wait_for_room(want)
    }

    pub(super) fn look_for_room(&mut self, want: u32) -> Result<bool, SendFailure> {
        // Ordering: Acquire pairs with the receiver's Release of its head: it has read the lines.
        let link = &self.link;
        match self.producer.room(self.lines, want, || link.their_head()) {
            Ok(room) => Ok(room >= want),
            Err(lie) => {
                let violation = Violation::Head {
                    head: lie.head,
                    min: lie.before,
                    max: lie.tail,
                };
                self.link.peer_gone(Gone::Violated);
                let _ = self.link.domain.tell(
                    &Request::CloseChannel {
                        channel: self.link.channel,
                    },
                    &[],
                );
                Err(SendFailure::Violation(violation))
            }
        }
    }

    #[cold]
    pub(super) fn wait_for_room(&mut self, want: u32) -> Result<(), SendFailure> {
        if self.look_for_room(want)? {
            return Ok(());
        }
        let started = Instant::now();
        let deadline = match self.when_full {
            WhenFull::Block => None,
            WhenFull::BlockFor(time) => started.checked_add(time),
            WhenFull::Error | WhenFull::DropNew => Some(started),
        };
        if self.poll_room(want, deadline)? {
            return Ok(());
        }
        Err(SendFailure::Full {
            lines: self.lines.count(),
            waited_ms: millis(started.elapsed()),
        })
    }

    /// Waits until the receiver has taken everything that was sent, at most that long; a receiver that then goes has left nothing.
    ///
    /// # Errors
    /// [`NotTaken`](SendFailure::NotTaken), with how many messages are left.
    pub fn wait_taken(&mut self, timeout: impl Into<Option<Duration>>) -> Result<(), SendFailure> {
        if self.link.domain.fork.is_child() {
            return Err(SendFailure::Forked);
        }
        let started = Instant::now();
        let deadline = timeout.into().and_then(|time| started.checked_add(time));
        let all = self.lines.count();
        let gone = match self.poll_room(all, deadline) {
            Ok(true) => return Ok(()),
            Ok(false) => false,
            // What it took before it went counts.
            Err(SendFailure::PeerGone(_)) if self.look_for_room(all)? => return Ok(()),
            Err(SendFailure::PeerGone(_)) => true,
            Err(failure) => return Err(failure),
        };
        Err(SendFailure::NotTaken {
            messages: self.queued(),
            gone,
            waited_ms: millis(started.elapsed()),
        })
    }

    /// Waits for room; false when the time is over.
    fn poll_room(&mut self, want: u32, deadline: Option<Instant>) -> Result<bool, SendFailure> {
        let mut polls = 0u32;
        loop {
            if self.look_for_room(want)? {
                return Ok(true);
            }
            self.alive()?;
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(false);
            }
            polls = polls.wrapping_add(1);
            match self.wait {
                Wait::Spin => {
                    std::hint::spin_loop();
                    if polls.is_multiple_of(1 << 22) {
                        self.link.look_for_death();
                        self.link.domain.turn_quietly();
                    }
                }
                Wait::SpinThenSleep(spins) if polls < spins => std::hint::spin_loop(),
                _ => {
                    let head = self.producer.known_head();
                    let link = &self.link;
                    // The receiver gives lines back by plain stores: it is a lazy waker.
                    sleep_on(link, Waker::Lazy, deadline, false, || {
                        link.their_head() != head
                    });
                }
            }
        }
    }
}
