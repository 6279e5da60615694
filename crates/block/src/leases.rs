//! Server's side of leases: a write is answered when no other client can still use the old data.
//!
//! A client with a cache asks, and may use the data that it reads for [`TERM`] from then on. Each answer says how many
//! writes of others were done when the question came. A write is counted when it is done. It is answered only after
//! that, and not before all leases of others that do not know of it have ended. So that not every write waits, those
//! others get no lease for a while after it: while several clients write, none caches.

use crate::lease::TERM;
use crate::{Data, Extent, Fault, Info, Job, Lease, Op, Store};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for the end of a lease. It is longer than the lease because the clocks of two machines do not run
/// alike.
const WAIT: Duration = TERM.saturating_add(Duration::from_millis(50));
/// Time during which a client gets no lease after another one has written.
const CONTENDED: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);

type Answer = Box<dyn FnOnce() + Send>;

/// A client, with all its channels.
#[derive(Debug)]
struct Client {
    channels: u32,
    caches: bool,
    /// Number of its own writes.
    writes: u64,
    /// End of its leases, unless it gets another one.
    until: Option<Instant>,
    /// Time before which the client gets no lease, because others write.
    barred: Option<Instant>,
}

#[derive(Debug)]
struct LeaseBook {
    writes: u64,
    clients: HashMap<u64, Client>,
    /// Time by which the leases of clients that are gone, and those of an earlier server, have ended.
    gone: Instant,
    /// The log was told that caches are of no use here.
    said: bool,
}

impl LeaseBook {
    fn new(now: Instant) -> LeaseBook {
        LeaseBook {
            writes: 0,
            clients: HashMap::new(),
            gone: now + WAIT,
            said: false,
        }
    }

    fn enter(&mut self, number: u64, caches: bool) {
        let client = self.clients.entry(number).or_insert(Client {
            channels: 0,
            caches,
            writes: 0,
            until: None,
            barred: None,
        });
        client.channels += 1;
        client.caches |= caches;
    }

    fn leave(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        client.channels -= 1;
        if client.channels == 0 {
            self.gone = client.until.map_or(self.gone, |until| self.gone.max(until));
            self.clients.remove(&number);
        }
    }

    /// Returns how many writes of others the client learns of with the answer; none: it gets no lease with it.
    fn asked(&mut self, number: u64, now: Instant) -> Option<u64> {
        let client = self.clients.get_mut(&number)?;
        if !client.caches || client.barred.is_some_and(|until| now < until) {
            return None;
        }
        client.until = Some(now + WAIT);
        Some(self.writes - client.writes)
    }

    /// Notes a write; returns the time when it may be answered.
    fn wrote(&mut self, number: u64, now: Instant) -> Instant {
        self.writes += 1;
        let mut until = self.gone.max(now);
        for (other, client) in &mut self.clients {
            if *other == number {
                client.writes += 1;
            } else if client.caches {
                until = client.until.map_or(until, |own| until.max(own));
                let again = client.barred.replace(now + CONTENDED);
                // Only for a lease that is not just being replaced.
                if again.is_some_and(|until| until <= now)
                    && !std::mem::replace(&mut self.said, true)
                {
                    tracing::warn!(
                        "a client caches while others write: now and then a write waits for that ({WAIT:?}); --cache 0 helps"
                    );
                }
            }
        }
        until
    }
}

#[derive(Default)]
struct Late {
    answers: BTreeMap<(Instant, u64), Answer>,
    count: u64,
    stopped: bool,
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} answers", self.answers.len())
    }
}

#[derive(Debug)]
struct SharedLeases {
    known: Mutex<LeaseBook>,
    late: Mutex<Late>,
    changed: Condvar,
}

/// The leases of all clients of one disk.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Number of this opening of a disk, which no other opening has.
    pub(crate) opening: u64,
    shared: Arc<SharedLeases>,
    thread: Option<JoinHandle<()>>,
}

impl Leases {
    pub(crate) fn new() -> std::io::Result<Arc<Leases>> {
        let shared = Arc::new(SharedLeases {
            known: Mutex::new(LeaseBook::new(Instant::now())),
            late: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("block-leases".into());
        let thread = thread.spawn(move || own.answer_late())?;
        Ok(Arc::new(Leases {
            opening: random(),
            shared,
            thread: Some(thread),
        }))
    }

    /// Begins a channel of a client.
    pub(crate) fn enter(self: &Arc<Self>, number: u64, caches: bool) -> Tenant {
        self.shared.known().enter(number, caches);
        Tenant {
            leases: Arc::clone(self),
            number,
            caches,
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.shared.late().stopped = true;
        self.shared.changed.notify_all();
        // The last handle may go with an answer.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Returns a number that nobody guesses: it distinguishes clients, and openings.
pub(crate) fn random() -> u64 {
    let random = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    std::hash::Hasher::finish(&random)
}

impl SharedLeases {
    fn known(&self) -> MutexGuard<'_, LeaseBook> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread that answers due writes. At the end it answers all: no client is there for them any more.
    fn answer_late(&self) {
        let mut late = self.late();
        loop {
            let now = Instant::now();
            let due = late.answers.first_key_value().map(|((due, _), _)| *due);
            match due {
                Some(due) if due <= now || late.stopped => {
                    let first = late.answers.pop_first();
                    drop(late);
                    if let Some((_, answer)) = first {
                        answer();
                    }
                    late = self.late();
                }
                None if late.stopped => return,
                due => {
                    let limit = due.map_or(FOREVER, |due| due.saturating_duration_since(now));
                    let waited = self.changed.wait_timeout(late, limit);
                    late = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// A channel of a client, or the NBD clients of the server itself. It leaves when it is dropped.
#[derive(Debug)]
pub(crate) struct Tenant {
    leases: Arc<Leases>,
    number: u64,
    caches: bool,
}

impl Tenant {
    /// Notes a question. Returns the number for its answer: see [`Lease::heard`](crate::Lease).
    pub(crate) fn asked(&self) -> Option<u64> {
        let now = self.caches.then(Instant::now)?;
        self.leases.shared.known().asked(self.number, now)
    }

    /// Notes a write that is done, or has failed: calls `answer` when no other client can use the old data.
    pub(crate) fn wrote(&self, answer: impl FnOnce() + Send + 'static) {
        let (shared, now) = (&self.leases.shared, Instant::now());
        let until = shared.known().wrote(self.number, now);
        if until <= now {
            return answer();
        }
        let mut late = shared.late();
        late.count += 1;
        let place = (until, late.count);
        late.answers.insert(place, Box::new(answer));
        drop(late);
        shared.changed.notify_one();
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.leases.shared.known().leave(self.number);
    }
}

/// A store for a client without a cache: one client of several.
#[derive(Debug)]
pub(crate) struct Tenanted {
    store: Arc<dyn Store>,
    tenant: Arc<Tenant>,
}

impl Tenanted {
    pub(crate) fn new(store: &Arc<dyn Store>, leases: &Arc<Leases>) -> Tenanted {
        Tenanted {
            store: Arc::clone(store),
            tenant: Arc::new(leases.enter(random(), false)),
        }
    }
}

impl Store for Tenanted {
    fn info(&self) -> Result<Info, Fault> {
        self.store.info()
    }
    fn is_checked(&self) -> bool {
        self.store.is_checked()
    }
    fn lease(&self) -> Lease {
        self.store.lease()
    }
    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        self.store.data(op, len)
    }
    fn piece(&self, len: usize) -> usize {
        self.store.piece(len)
    }
    fn extents(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        self.store.extents(offset, len, most)
    }
    fn submit(&self, mut job: Job) {
        if job.request.op.writes() {
            let (tenant, done) = (Arc::clone(&self.tenant), job.done);
            job.done = Box::new(move |data, result| {
                tenant.wrote(move || done(data, result));
            });
        }
        self.store.submit(job);
    }
    fn kick(&self) {
        self.store.kick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock(Instant);

    impl Clock {
        fn at(&self, ms: u64) -> Instant {
            self.0 + Duration::from_millis(ms)
        }
    }

    /// Returns clients with caches, 1 and 2, and 3 without; leases of an earlier server have ended.
    fn three() -> (LeaseBook, Clock) {
        let start = Instant::now();
        let mut known = LeaseBook::new(start);
        for (number, caches) in [(1, true), (2, true), (3, false)] {
            known.enter(number, caches);
        }
        (known, Clock(start + WAIT))
    }

    #[test]
    fn a_write_waits_for_the_leases_of_others_and_for_none_of_its_own() {
        let (mut known, clock) = three();
        assert_eq!(known.wrote(3, clock.at(0)), clock.at(0), "nobody has asked");
        let (mut known, clock) = three();
        assert_eq!(known.asked(3, clock.at(0)), None, "it has no cache");
        assert_eq!(known.asked(1, clock.at(1)), Some(0));
        assert_eq!(known.wrote(1, clock.at(2)), clock.at(2));
        let until = clock.at(1) + WAIT;
        assert_eq!(known.wrote(3, clock.at(3)), until);
        // It gets none for a while, so that no write waits again.
        assert_eq!(known.asked(1, clock.at(4)), None);
        assert_eq!(known.wrote(3, until), until);
        let later = until + CONTENDED;
        assert_eq!(known.asked(1, later), Some(2), "two writes of others");
        assert_eq!(known.asked(2, later), Some(3));
    }

    #[test]
    fn what_a_client_has_is_waited_for_when_it_is_gone_too() {
        let (mut known, clock) = three();
        assert_eq!(known.asked(1, clock.at(0)), Some(0));
        known.enter(1, true);
        known.leave(1);
        known.leave(1);
        assert_eq!(known.wrote(3, clock.at(1)), clock.at(0) + WAIT);
        // When it is back it knows nothing.
        known.enter(1, true);
        assert_eq!(known.asked(1, clock.at(2)), Some(1));
        known.leave(1);
        assert_eq!(known.clients.len(), 2);
    }

    #[test]
    fn what_an_earlier_server_gave_is_waited_for() {
        let start = Instant::now();
        let mut known = LeaseBook::new(start);
        known.enter(1, false);
        assert_eq!(known.wrote(1, start), start + WAIT);
    }

    #[test]
    fn late_answers_are_given_in_their_order_and_all_of_them() {
        let leases = Leases::new().expect("a thread");
        let (tell, told) = std::sync::mpsc::channel();
        let tenant = leases.enter(1, false);
        for number in 0..100 {
            let tell = tell.clone();
            tenant.wrote(move || tell.send(number).expect("we wait"));
        }
        drop((tenant, leases, tell));
        assert!(told.iter().eq(0..100));
    }
}
