//! An exported name: each domain that connects gets a channel of its own.

use super::beside::{self, Beside};
use super::end::ChannelEnd;
use super::feed::{Fed, Feed};
use super::open::{self, Accepting, End};
use super::sleep::LOOK;
use crate::base::checked_name;
use crate::base::lock;
use crate::domain::DomainCore;
use crate::error::{self, Awaited, Error, ErrorKind, TimedOut};
use crate::options::ChannelOptions;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, Event, Refusal, Request, Role};
use tranship_sys::epoll::wait_readable;

/// An address at which others connect. Each gets a channel of its own, of which this side has the end `E`: [`Sender`](crate::Sender) or [`Receiver`](crate::Receiver).
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, Receiver, Sender};
///
/// let domain = Domain::embedded()?;
/// let listener = domain.listen::<Receiver>("local:jobs")?; // this side receives
/// let mut jobs = domain.open::<Sender>("local:jobs")?; // elsewhere
/// let mut worker = listener.accept()?;
/// jobs.send(b"a job")?;
/// assert_eq!(worker.recv()?.to_vec(), b"a job");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Listener<E> {
    accepts: Accepts,
    end: PhantomData<fn() -> E>,
}

impl<E> fmt::Debug for Listener<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.accepts.fmt(f)
    }
}

impl<E: ChannelEnd> Listener<E> {
    pub(crate) fn new(accepts: Accepts) -> Listener<E> {
        Listener {
            accepts,
            end: PhantomData,
        }
    }

    /// Accepts the next connection.
    ///
    /// Waits for ever, for a manager that is away, too.
    ///
    /// # Errors
    /// `CutOff` when no manager can be reached any more; `Forked`; `System`; for a [`Receiver`](crate::Receiver) also what making a pool for arrivals fails with
    /// ([`Domain::create_pool`](crate::Domain::create_pool)). A connection that is gone again is no error: the next one is waited for.
    /// A peer that breaks the protocol before its connection is made is no error either.
    pub fn accept(&self) -> Result<E, Error> {
        self.accept_timeout(None)
    }

    /// Accepts a connection that is there, or gives `None`.
    ///
    /// Does not block.
    ///
    /// # Errors
    /// As [`accept`](Listener::accept).
    pub fn try_accept(&self) -> Result<Option<E>, Error> {
        match self.accept_timeout(Duration::ZERO) {
            Ok(end) => Ok(Some(end)),
            Err(error) if error == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Accepts a connection, or fails with `TimedOut` after `timeout`. `None`: for ever.
    ///
    /// # Errors
    /// As [`accept`](Listener::accept), and `TimedOut`.
    pub fn accept_timeout(&self, timeout: impl Into<Option<Duration>>) -> Result<E, Error> {
        E::of(self.accepts.accept(timeout.into())?)
    }

    pub(super) fn accepts(&self) -> &Accepts {
        &self.accepts
    }
}

/// The part of a listener that does not depend on the end that it gives.
#[derive(Debug)]
pub(crate) struct Accepts {
    desk: Arc<Desk>,
    /// When the manager was last looked for without any news: a killed one sends none.
    looked: Mutex<Instant>,
    /// Connections come from here, and not from the manager.
    fed: Option<Fed>,
}

/// Connections that come in at a name.
#[derive(Debug)]
struct Desk {
    domain: DomainCore,
    /// The id of the name, which differs under each manager.
    export: Arc<AtomicU32>,
    name: String,
    options: ChannelOptions,
    /// The thread that listens.
    thread: ThreadId,
    begun: Mutex<Begun>,
}

/// Connections that are being made, for the next caller that accepts.
#[derive(Debug, Default)]
struct Begun {
    all: Vec<Accepting>,
    /// No caller will accept any more.
    closed: bool,
}

/// The desks of this process.
static HERE: Mutex<Vec<Weak<Desk>>> = Mutex::new(Vec::new());

impl Desk {
    fn new(
        domain: &DomainCore,
        name: &str,
        options: ChannelOptions,
        export: Arc<AtomicU32>,
    ) -> Desk {
        Desk {
            domain: domain.clone(),
            export,
            name: name.into(),
            options,
            thread: std::thread::current().id(),
            begun: Mutex::default(),
        }
    }

    /// Begins to accept the oldest connection that is still wanted.
    fn begin(&self) -> Result<Option<Accepting>, Error> {
        while let Some(incoming) = self.domain.exports.next(&self.export) {
            let begun = open::begin_accept(&self.domain, &self.name, incoming, &self.options);
            let begun = self.unless_gone(begun)?;
            if begun.is_some() {
                return Ok(begun);
            }
        }
        Ok(None)
    }

    /// Returns `None` if the peer connected and is gone again: the caller looks for the next one.
    fn unless_gone<T>(&self, made: Result<T, Error>) -> Result<Option<T>, Error> {
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.find::<Refusal>().is_some() => {
                tracing::debug!(name = self.name, %error, "accept");
                Ok(None)
            }
            // The peer changed its half after the manager's check: that connection alone ends.
            Err(error) if error == ErrorKind::PeerViolation => {
                tracing::debug!(name = self.name, %error, "accept");
                Ok(None)
            }
            // A connection whose manager went away before it was made is no error either: the peer tries again.
            Err(error) if error == ErrorKind::ManagerAway => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps begun connections, unless no caller will accept them.
    fn keep(&self, begun: impl IntoIterator<Item = Accepting>) {
        let mut kept = lock(&self.begun);
        if !kept.closed {
            return kept.all.extend(begun);
        }
        drop(kept);
        for accepting in begun {
            open::drop_accept(&self.domain, &accepting);
        }
    }
}

/// Begins to accept for a thread that waits for a name at which it listens itself with another domain: it cannot accept
/// meanwhile. Its next accept has the other end.
pub(super) fn begin_here(domain: &DomainCore, name: &str) {
    let (here, thread) = (lock(&HERE).clone(), std::thread::current().id());
    for desk in here.iter().filter_map(Weak::upgrade) {
        if desk.thread != thread
            || desk.name != name
            || desk.domain.fork.is_child()
            || desk.domain.manager_instance() != domain.manager_instance()
        {
            continue;
        }
        desk.domain.turn_quietly();
        if lock(&desk.begun).all.is_empty()
            && let Ok(begun) = desk.begin()
        {
            desk.keep(begun);
        }
    }
}

impl Accepts {
    pub(crate) fn new(
        domain: &DomainCore,
        name: &str,
        role: Role,
        options: ChannelOptions,
    ) -> Result<Accepts, Error> {
        let export = export(domain, name, role, options.beside.as_ref())?;
        let desk = Arc::new(Desk::new(domain, name, options, export));
        lock(&HERE).push(Arc::downgrade(&desk));
        Ok(Accepts {
            desk,
            looked: Mutex::new(Instant::now()),
            fed: None,
        })
    }

    /// Ends that are made elsewhere.
    pub(crate) fn fed(
        domain: &DomainCore,
        address: &str,
        options: ChannelOptions,
        feed: Arc<Feed>,
        maker: Box<dyn Any + Send + Sync>,
    ) -> Accepts {
        Accepts {
            desk: Arc::new(Desk::new(domain, address, options, Arc::default())),
            looked: Mutex::new(Instant::now()),
            fed: Some(Fed {
                feed,
                _maker: maker,
            }),
        }
    }

    fn accept(&self, timeout: Option<Duration>) -> Result<End, Error> {
        let domain = &self.desk.domain;
        domain.check_fork()?;
        let started = Instant::now();
        let deadline = timeout.and_then(|t| started.checked_add(t));
        let awaited = || Awaited::Connection(self.desk.name.clone());
        let timed_out = || Err(TimedOut::since(started, awaited()).into());
        if let Some(Fed { feed, .. }) = &self.fed {
            loop {
                domain.turn_quietly();
                if let Some(end) = feed.pop() {
                    return Ok(end);
                }
                let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    return timed_out();
                }
                let round = left.map_or(LOOK, |left| left.min(LOOK));
                let waited = wait_readable(feed.doorbell(), Some(round));
                waited.map_err(error::system("poll"))?;
            }
        }
        loop {
            let seen = domain.wake();
            if let Some(end) = self.look_for_connection()? {
                return Ok(end);
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return timed_out();
            }
            domain.wait_news(seen, deadline);
        }
    }
}

impl Accepts {
    pub(super) fn domain(&self) -> &DomainCore {
        &self.desk.domain
    }

    /// A caller that asks often and never waits long also has to find out that the manager is gone.
    fn is_time_to_look(&self) -> bool {
        let mut looked = lock(&self.looked);
        let is_time = looked.elapsed() >= LOOK;
        if is_time {
            *looked = Instant::now();
        }
        is_time
    }

    /// Returns the next connection, if it is made. A connection that is being made stays with the listener, for the
    /// next caller.
    pub(super) fn look_for_connection(&self) -> Result<Option<End>, Error> {
        if let Some(fed) = &self.fed {
            return Ok(fed.feed.pop());
        }
        let desk = &*self.desk;
        let domain = &desk.domain;
        let looks = domain.has_news() || domain.has_left_overs() || self.is_time_to_look();
        let may_come = match looks || domain.cut_off().is_some() {
            true => domain.turn(),
            false => Ok(()),
        };
        // The manager is not spoken to under its lock.
        let mut begun = std::mem::take(&mut lock(&desk.begun).all).into_iter();
        let (mut made, mut waiting) = (Ok(None), Vec::new());
        while matches!(made, Ok(None)) {
            let accepting = match begun.next() {
                Some(accepting) => accepting,
                None if !waiting.is_empty() => break,
                // One at a time: connections that no caller asks for are left to the next listener.
                None => match desk.begin()? {
                    Some(accepting) => accepting,
                    None => break,
                },
            };
            let end = open::end_accept(domain, &accepting, &desk.options, Some(Instant::now()));
            match desk.unless_gone(end) {
                Ok(Some(None)) => waiting.push(accepting),
                end => made = end.map(Option::flatten),
            }
        }
        waiting.extend(begun);
        desk.keep(waiting);
        if !matches!(made, Ok(None)) && self.has_connection() {
            // For another task, which may have looked meanwhile.
            domain.tasks.has_news();
            domain.tasks.tell_news();
        }
        match (made, may_come) {
            (Ok(None), Err(error)) if error != ErrorKind::ManagerAway => Err(error),
            (Ok(None), Ok(())) => match domain.exports.refusal(&desk.export) {
                Some(refusal) => Err(error::refused(refusal)),
                None => Ok(None),
            },
            (made, _) => made,
        }
    }

    /// Returns the descriptor that becomes readable when another domain connects, if the manager does not tell of it.
    pub(super) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.fed.as_ref().map(|fed| fed.feed.doorbell())
    }

    /// Whether another domain has connected, as far as the manager's news were taken.
    pub(super) fn has_connection(&self) -> bool {
        if let Some(fed) = &self.fed {
            return !fed.feed.is_empty();
        }
        let desk = &self.desk;
        let waits = desk.domain.exports.has_incoming(&desk.export);
        waits || !lock(&desk.begun).all.is_empty()
    }
}

/// Offers a name. Its id differs under each manager.
fn export(
    domain: &DomainCore,
    name: &str,
    role: Role,
    beside: Option<&Beside>,
) -> Result<Arc<AtomicU32>, Error> {
    checked_name(name)?;
    let offered = beside::offered(beside, role);
    let asking = domain.exports.ask();
    let exported = domain.patiently(None, || {
        let ((event, _), era) = domain.call_in_era(|req| offered.request(req, name.into()), &[])?;
        let Event::Exported { export, .. } = event else {
            return Err(error::protocol("an answer to Export that is none"));
        };
        let id = domain.exports.add(export, (name.into(), offered));
        if domain.era() != era {
            // The manager that answered is gone, and the next one was perhaps not told of this name.
            forget(domain, &id);
            return Err(ErrorKind::ManagerAway.into());
        }
        Ok(id)
    });
    refuse(domain, asking.end());
    exported
}

/// Tells domains that connected to a name that no listener is there.
fn refuse(domain: &DomainCore, channels: Vec<ChannelId>) {
    for channel in channels {
        let _ = domain.tell(&Request::Reject { channel }, &[]);
    }
}

impl Drop for Accepts {
    fn drop(&mut self) {
        let desk = &self.desk;
        if desk.domain.fork.is_child() {
            // Its thread and its descriptors are the parent's: to stop it here would stop it there.
            std::mem::forget(self.fed.take());
            return;
        }
        if self.fed.is_some() {
            return;
        }
        lock(&HERE).retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(desk)));
        let begun = {
            let mut begun = lock(&desk.begun);
            begun.closed = true;
            std::mem::take(&mut begun.all)
        };
        for accepting in &begun {
            open::drop_accept(&desk.domain, accepting);
        }
        forget(&desk.domain, &desk.export);
    }
}

fn forget(domain: &DomainCore, id: &AtomicU32) {
    let (export, left) = domain.exports.remove(id);
    refuse(domain, left);
    let _ = domain.tell(&Request::Unexport { export }, &[]);
    domain.let_go();
}
