//! Snapshots that are shown: one look at the manager, shared by all clients that ask within a moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tranship_proto::StatRecord;

/// Time for which a look serves all clients: however many ask, the manager is asked twice a second at most.
const FRESH: Duration = Duration::from_millis(500);

/// Source of snapshots.
pub trait Source: Send {
    /// Asks the manager. The error text is for people.
    ///
    /// # Errors
    /// When no manager is there, or it does not answer.
    fn look(&mut self) -> Result<Snapshot, String>;
}

impl<F: FnMut() -> Result<Snapshot, String> + Send> Source for F {
    fn look(&mut self) -> Result<Snapshot, String> {
        self()
    }
}

/// Figures of a manager at one time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// Time, milliseconds since 1970.
    pub at_ms: u64,
    /// Time that the manager took to answer.
    pub took: Duration,
    /// The answer to `Stat`.
    pub records: Vec<StatRecord>,
}

impl Snapshot {
    /// Makes a snapshot of the records that came since `begun`. The asker itself is left out: a domain for a moment, by
    /// its process.
    pub fn new(begun: Instant, records: Vec<StatRecord>, asker: u32) -> Snapshot {
        let asks = |r: &StatRecord| matches!(r, StatRecord::Domain(d) if d.pid == asker);
        Snapshot {
            at_ms: now_ms(),
            took: begun.elapsed(),
            records: records.into_iter().filter(|r| !asks(r)).collect(),
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

/// A source that many threads ask.
pub(crate) struct Looks {
    inner: Mutex<Inner>,
}

struct Inner {
    source: Box<dyn Source>,
    last: Option<(Instant, Looked)>,
}

/// Result of one look; the reason of a failure is shared as well.
pub(crate) type Looked = Arc<Result<Snapshot, String>>;

impl Looks {
    pub fn new(source: Box<dyn Source>) -> Looks {
        let inner = Mutex::new(Inner { source, last: None });
        Looks { inner }
    }

    /// Returns a recent snapshot. A client that asks while another's is on its way waits for that one.
    pub fn get(&self) -> Looked {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, looked)) = &inner.last
            && at.elapsed() < FRESH
        {
            return looked.clone();
        }
        let looked = Arc::new(inner.source.look());
        // A hanging manager is a failure for a moment, too: clients that have waited do not each wait again.
        inner.last = Some((Instant::now(), looked.clone()));
        looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn many_who_ask_at_once_are_one_look() {
        let asked = Arc::new(AtomicU32::new(0));
        let counts = asked.clone();
        let source = move || {
            counts.fetch_add(1, Ordering::Relaxed);
            Err("nobody".to_owned())
        };
        let looks = Looks::new(Box::new(source));
        let first = looks.get();
        assert!((0..100).all(|_| Arc::ptr_eq(&first, &looks.get()) || first.is_err()));
        let begun = Instant::now();
        let more = asked.load(Ordering::Relaxed);
        // A machine that stood still in between asks again.
        assert!(more <= 1 + u32::from(begun.elapsed() < FRESH) * 100);
    }
}
