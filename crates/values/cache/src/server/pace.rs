//! Check of slow clients that hold memory here. By a byte now and then a client could keep half a value, or untaken
//! replies, for ever.
//!
//! A client that sends nothing and waits for nothing may stay for ever.

use std::time::{Duration, Instant};

/// Time since when a client is about the same command or reply.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// A command, with its value.
    command: Option<Instant>,
    replies: Option<Owed>,
}

/// Replies that waited at a time.
#[derive(Debug)]
struct Owed {
    since: Instant,
    /// Bytes of them that have not been taken yet.
    left: usize,
}

impl Pace {
    /// Notes input: whether commands became complete, and whether part of another one is here.
    pub(super) fn received(&mut self, complete: bool, part: bool) {
        self.command = match self.command {
            _ if !part => None,
            Some(since) if !complete => Some(since),
            _ => Some(Instant::now()),
        };
    }

    /// Notes that this many bytes of replies were taken, and that this many wait.
    pub(super) fn took(&mut self, bytes: usize, waiting: usize) {
        match &mut self.replies {
            _ if waiting == 0 => self.replies = None,
            Some(owed) if owed.left > bytes => owed.left -= bytes,
            _ => {
                self.replies = Some(Owed {
                    since: Instant::now(),
                    left: waiting,
                });
            }
        }
    }

    /// Returns since when the oldest of its replies waits.
    pub(super) fn owed_since(&self) -> Option<Instant> {
        self.replies.as_ref().map(|owed| owed.since)
    }

    /// Returns whether it has been about the same thing for longer than `deadline`. Never, if that is zero.
    pub(super) fn is_behind(&self, now: Instant, deadline: Duration) -> bool {
        if deadline.is_zero() {
            return false;
        }
        let since = [self.command, self.replies.as_ref().map(|owed| owed.since)];
        let mut since = since.into_iter().flatten();
        since.any(|since| now.saturating_duration_since(since) >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    fn later() -> Instant {
        Instant::now() + LONG
    }

    #[test]
    fn a_command_that_is_not_complete_is_behind_and_one_that_follows_others_is_not() {
        let mut pace = Pace::default();
        pace.received(false, true);
        let begun = later();
        pace.received(false, true);
        assert!(pace.is_behind(begun, LONG));
        assert!(!pace.is_behind(begun, 2 * LONG));
        // Other commands became complete since then: this one began later.
        while Instant::now() + LONG == begun {}
        pace.received(true, true);
        assert!(!pace.is_behind(begun, LONG));
        pace.received(true, false);
        assert!(!pace.is_behind(later() + LONG, LONG), "an idle one");
    }

    #[test]
    fn what_waits_is_to_be_taken_and_what_came_later_has_its_own_time() {
        let mut pace = Pace::default();
        pace.took(10, 0);
        assert!(!pace.is_behind(later(), LONG), "nothing waits");
        pace.took(0, 1000);
        let begun = later();
        while Instant::now() + LONG == begun {}
        pace.took(999, 5000);
        assert!(pace.is_behind(begun, LONG), "a byte of the first is left");
        pace.took(1, 5000);
        assert!(!pace.is_behind(begun, LONG));
        pace.took(5000, 0);
        assert!(!pace.is_behind(later() + LONG, LONG));
    }
}
