//! Time during which a client may use read data without asking again; the server's side is in `leases`.
//!
//! Leases as of Gray and Cheriton (1989): every answer of the server extends them, so that a client that asks anyhow
//! asks for nothing else. The time counts from the question, which the server cannot have got earlier.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Duration of a lease. It is longer than a round trip to the server; otherwise a cache is of no use there.
pub(crate) const TERM: Duration = Duration::from_millis(250);

/// A moment, also of a machine that sleeps meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        // The clock counts from the boot on, and is never negative.
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Moment(Duration::new(
            seconds,
            u32::try_from(now.tv_nsec).unwrap_or(0),
        ))
    }
}

/// Lease: it says whether data that was read before may be used again. Cloneable; all clones are the same lease.
#[derive(Clone, Debug)]
pub struct Lease(Option<Arc<Mutex<LeaseState>>>);

/// State of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// Data that was read under another number may be different now.
    pub version: u64,
    /// Data that was read under this number may be used now.
    pub holds: bool,
}

#[derive(Debug, Default)]
struct LeaseState {
    version: u64,
    /// Opening of its disk that the server serves.
    opening: Option<u64>,
    /// Number of writes that others had done.
    writes: u64,
    until: Option<Moment>,
}

impl LeaseState {
    fn standing(&self, now: Moment) -> Standing {
        Standing {
            version: self.version,
            holds: self.until.is_some_and(|until| now < until),
        }
    }

    fn met(&mut self, opening: Option<u64>) {
        if self.opening != opening || opening.is_none() {
            self.version += 1;
            (self.opening, self.writes, self.until) = (opening, 0, None);
        }
    }

    fn heard(&mut self, opening: u64, writes: u64, asked: Moment) {
        // Later answers may be here already, also those of another server.
        if self.opening != Some(opening) || writes < self.writes {
            return;
        }
        if writes > self.writes {
            self.version += 1;
            (self.writes, self.until) = (writes, None);
        }
        self.until = self.until.max(Some(Moment(asked.0 + TERM)));
    }
}

impl Lease {
    /// Returns the lease of a store that nobody else writes to.
    #[must_use]
    pub fn forever() -> Lease {
        Lease(None)
    }

    /// Creates a lease that holds while a server says so.
    pub(crate) fn of_a_server() -> Lease {
        Lease(Some(Arc::default()))
    }

    fn lock(&self) -> Option<MutexGuard<'_, LeaseState>> {
        let known = self.0.as_ref()?;
        Some(known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn standing(&self) -> Standing {
        let forever = Standing {
            version: 0,
            holds: true,
        };
        self.lock()
            .map_or(forever, |known| known.standing(Moment::now()))
    }

    /// Notes the opening of its disk that a server serves; none: it gives no leases.
    pub(crate) fn met(&self, opening: Option<u64>) {
        if let Some(mut known) = self.lock() {
            known.met(opening);
        }
    }

    /// Notes an answer to a question that was asked at `asked`: before the server got the question, `writes` writes of
    /// other clients were done.
    pub(crate) fn heard(&self, opening: u64, writes: u64, asked: Moment) {
        if let Some(mut known) = self.lock() {
            known.heard(opening, writes, asked);
        }
    }

    /// Notes that a connection to the server is over: others may be let in.
    pub(crate) fn lost(&self) {
        if let Some(mut known) = self.lock() {
            known.until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn standing(known: &LeaseState, ms: u64) -> (u64, bool) {
        let standing = known.standing(at(ms));
        (standing.version, standing.holds)
    }

    #[test]
    fn it_holds_for_a_term_after_the_question() {
        let mut known = LeaseState::default();
        assert_eq!(standing(&known, 0), (0, false));
        known.met(Some(7));
        assert_eq!(standing(&known, 0), (1, false));
        known.heard(7, 0, at(100));
        assert_eq!(standing(&known, 349), (1, true));
        assert_eq!(standing(&known, 350), (1, false));
        // The answer to an earlier question shortens nothing.
        known.heard(7, 0, at(200));
        known.heard(7, 0, at(150));
        assert_eq!(standing(&known, 449), (1, true));
    }

    #[test]
    fn writes_of_others_and_other_openings_are_another_version() {
        let mut known = LeaseState::default();
        known.met(Some(7));
        known.heard(7, 3, at(0));
        assert_eq!(standing(&known, 1), (2, true));
        // An answer that was overtaken says nothing.
        known.heard(7, 2, at(50));
        assert_eq!(standing(&known, 260), (2, false));
        known.heard(7, 4, at(1));
        assert_eq!(standing(&known, 250), (3, true));
        known.met(Some(7));
        assert_eq!(standing(&known, 250), (3, true));
        known.met(Some(8));
        assert_eq!(standing(&known, 250), (4, false));
        known.heard(7, 9, at(250));
        assert_eq!(standing(&known, 250), (4, false));
        // Two proxies that serve no opening are not the same.
        known.met(None);
        known.met(None);
        assert_eq!(standing(&known, 250), (6, false));
    }
}
