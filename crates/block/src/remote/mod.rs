//! A server's blocks over two channels: questions go there by one, answers come by the other.
//!
//! Every question without an answer is asked again when the server is back: reads change nothing, and a write that is
//! done twice leaves the same bytes as one.

mod link;
mod question;
mod safety;

use crate::data::Own;
use crate::lease::Moment;
use crate::leases::random;
use crate::limits::{MAX_DATA_BYTES, MOST_ASKED};
use crate::memory;
use crate::transient::is_transient;
use crate::{Cache, Data, Endpoint, Fault, Info, Job, Lease, Op, Store};
use question::Question;
use safety::Safety;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tranship_core::{Domain, Error, Pool, Sender};

/// The longest wait for memory before another look at the server.
const ROUND: Duration = Duration::from_millis(100);
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// One client of a server: the state that all its connections share.
#[derive(Debug)]
pub(crate) struct Client {
    /// Number that no other client has.
    number: u64,
    /// The client wants leases.
    caches: bool,
    /// Cache of its blocks; charged to the domain.
    cache: Option<Arc<Cache>>,
    safety: Safety,
    lease: Lease,
    /// Made by the first user that needs it.
    domain: Mutex<Option<Member>>,
}

#[derive(Debug)]
struct Member {
    domain: Domain,
    /// Memory that is kept for requests.
    _charged: Option<memory::Charged>,
}

impl Client {
    pub(crate) fn new(caches: bool, cache: Option<&Arc<Cache>>) -> Arc<Client> {
        Arc::new(Client {
            number: random(),
            caches,
            cache: cache.cloned(),
            safety: Safety::default(),
            lease: Lease::of_a_server(),
            domain: Mutex::default(),
        })
    }

    fn domain(&self, server: &Endpoint) -> Result<Domain, Error> {
        let mut member = self.domain.lock().unwrap_or_else(PoisonError::into_inner);
        let domain = match &*member {
            Some(member) => member.domain.clone(),
            None => {
                let domain = server.domain()?;
                let _charged = memory::charge_to(&domain);
                let made = Member { domain, _charged };
                member.insert(made).domain.clone()
            }
        };
        drop(member);
        if let Some(cache) = &self.cache
            && let Err(error) = cache.charge_to(&domain)
        {
            tracing::warn!("{server}: memory for the cache: {error}");
        }
        Ok(domain)
    }
}

/// A server, or a proxy. Reconnects by itself. Safe to use from many threads; its channels end with the last handle.
///
/// ```
/// # mod tranship { pub use tranship_core::*; pub use tranship_block as block; }
/// use std::sync::Arc;
/// use tranship::block::{Blocking, Disk, DiskOptions, Endpoint, Remote};
/// use tranship::block::front::{Direct, Front};
/// use tranship::Trust;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// let at = Endpoint::new("local:remote", Trust::Producer);
/// let disk = Disk::open(&path, &DiskOptions { size: Some(1 << 20), ..DiskOptions::default() })?;
/// let _server = Front::start(&at, Arc::new(Direct::new(disk)?))?;
///
/// let blocks = Blocking(Remote::new(&at)); // elsewhere
/// blocks.write_at(5, b"hello", true)?;
/// let mut bytes = [0; 5];
/// blocks.read_at(5, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Remote {
    server: Endpoint,
    client: Arc<Client>,
    /// Number that stays the same at each connection: see [`Hello`](crate::wire::Hello).
    session: u64,
    state: Mutex<Requests>,
    changed: Condvar,
    connected: AtomicU64,
    own: Weak<Remote>,
}

#[derive(Default)]
struct Requests {
    /// Sender to the server, when it may be asked.
    out: Option<Sender>,
    /// Pool from which writes are sent; the server can read all of it.
    pool: Option<Pool>,
    info: Option<Info>,
    /// Other domains' data is copied before it goes over this connection.
    copies: bool,
    /// Questions by number, in the order in which they were first asked.
    queue: BTreeMap<u64, Question>,
    away: BTreeMap<u64, Question>,
    /// Questions that cannot be asked.
    refused: Vec<(Question, Error)>,
    /// The server has been away for too long: nothing waits for it.
    given_up: bool,
    /// Reason in words for which it is not there.
    why: Option<String>,
    /// The error stays until somebody corrects its cause.
    is_final: bool,
    numbers: u64,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} away, {} waiting", self.away.len(), self.queue.len())
    }
}

impl Remote {
    /// Begins to connect; requests wait until that is done.
    #[must_use]
    pub fn new(server: &Endpoint) -> Arc<Remote> {
        Remote::of(server, &Client::new(false, None))
    }

    /// Creates a remote store with a cache in front ([`Cached`](crate::Cached)): it asks the server for leases, for
    /// which the writes of others wait.
    #[must_use]
    pub fn leased(server: &Endpoint) -> Arc<Remote> {
        Remote::of(server, &Client::new(true, None))
    }

    /// Connects as one client together with others.
    pub(crate) fn of(server: &Endpoint, client: &Arc<Client>) -> Arc<Remote> {
        let remote = Arc::new_cyclic(|own| Remote {
            server: server.clone(),
            client: Arc::clone(client),
            session: random(),
            state: Mutex::default(),
            changed: Condvar::new(),
            connected: AtomicU64::new(0),
            own: own.clone(),
        });
        let thread = std::thread::Builder::new().name("block-remote".into());
        let own = Arc::clone(&remote);
        if let Err(error) = thread.spawn(move || own.run()) {
            tracing::error!("no thread for a connection: {error}");
            remote.lock().given_up = true;
        }
        remote
    }

    /// Waits until the server has been reached, at most `limit`. Does not wait if the server refuses for a reason that
    /// only a person can correct.
    ///
    /// # Errors
    /// `Gone` when it was not reached; [`why`](Remote::why) says more.
    pub fn wait(&self, limit: Duration) -> Result<Info, Fault> {
        let state = self.wait_until(limit, |state| state.out.is_some() || state.is_final);
        match &state.out {
            Some(_) => state.info.ok_or(Fault::Gone),
            None => Err(Fault::Gone),
        }
    }

    /// Returns in words why the server is not there; none: it is, or was not tried yet.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.lock().why.clone()
    }

    /// Returns how often the server was reached.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // Ordering: relaxed; a count.
        self.connected.load(Ordering::Relaxed)
    }

    /// Returns whether the server has sent its properties.
    pub(crate) fn is_known(&self) -> bool {
        self.lock().info.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether only the connection's own thread still has it. Then all questions fail, also those that wait.
    fn is_over(&self) -> bool {
        self.own.strong_count() <= 1
    }

    /// Wakes the threads that wait for the server.
    fn tell(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits until the condition holds, or the time is over.
    fn wait_until(
        &self,
        limit: Duration,
        is_so: impl Fn(&Requests) -> bool,
    ) -> MutexGuard<'_, Requests> {
        let waits = |state: &mut Requests| !is_so(state);
        let waited = self.changed.wait_timeout_while(self.lock(), limit, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Asks the waiting questions, as far as there is room. The own thread does it, and each caller that submits.
    /// Returns the reason why the rest waits.
    fn ask(&self, state: &mut Requests) -> Option<Error> {
        let Requests {
            out: Some(out),
            pool: Some(pool),
            copies,
            queue,
            away,
            refused,
            ..
        } = state
        else {
            return None;
        };
        while away.len() < MOST_ASKED
            && let Some((number, mut question)) = queue.pop_first()
        {
            if self.client.caches {
                question.asked = Moment::now();
            }
            match question.send(number, out, pool, copies) {
                Ok(()) => drop(away.insert(number, question)),
                Err(error) if is_transient(error.kind()) || out.status().peer_gone => {
                    queue.insert(number, question);
                    return Some(error);
                }
                Err(error) => refused.push((question, error)),
            }
        }
        None
    }
}

impl Store for Remote {
    fn info(&self) -> Result<Info, Fault> {
        let state = self.wait_until(FOREVER, |state| state.info.is_some() || state.given_up);
        state.info.ok_or(Fault::Gone)
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn lease(&self) -> Lease {
        self.client.lease.clone()
    }

    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        if len > MAX_DATA_BYTES {
            return Err(Fault::Invalid);
        }
        loop {
            let state = self.wait_until(FOREVER, |state| {
                op == Op::Read || state.pool.is_some() || state.given_up
            });
            if state.given_up {
                return Err(Fault::Gone);
            }
            let Some(pool) = state.pool.clone().filter(|_| op != Op::Read) else {
                return Ok(Data::Room(len));
            };
            drop(state);
            match Own::new(&pool, len, ROUND) {
                Ok(own) => return Ok(Data::Own(own)),
                Err(lack) if is_transient(lack.kind()) => {}
                Err(error) => {
                    tracing::error!("{}: no memory for a request: {error}", self.server);
                    return Err(Fault::Gone);
                }
            }
        }
    }

    fn piece(&self, len: usize) -> usize {
        len.min(MAX_DATA_BYTES)
    }

    fn submit(&self, job: Job) {
        let len = job.request.len as usize;
        let data = matches!(job.request.op, Op::Read | Op::Write);
        if data && (len > MAX_DATA_BYTES || len > job.data.len()) {
            return (job.done)(job.data, Err(Fault::Invalid));
        }
        let mut state = self.lock();
        if state.given_up {
            drop(state);
            return (job.done)(job.data, Err(Fault::Gone));
        }
        let mut question = Question::new(job);
        question.covers = self.client.safety.flushing();
        state.numbers += 1;
        let number = state.numbers;
        state.queue.insert(number, question);
        self.ask(&mut state);
    }

    fn kick(&self) {}
}
