//! An exported name: everyone who connects gets a link of its own.

use super::feed::{Fed, Feed};
use super::open::{self, Accepting, End};
use super::sleep::LOOK;
use super::{Receiver, Sender};
use crate::base::checked_name;
use crate::base::lock;
use crate::domain::DomainCore;
use crate::error::{self, Awaited, Error, Kind, TimedOut};
use crate::options::LinkOptions;
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, Event, Refusal, Request, Role};
use tranship_sys::epoll::wait_readable;

/// A name that others connect to.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, Role};
///
/// let domain = Domain::embedded()?;
/// let listener = domain.listen("local:jobs", Role::Sink)?; // this end receives
/// let mut jobs = domain.open_sender("local:jobs")?; // elsewhere
/// let mut worker = listener.accept_receiver()?;
/// jobs.send_inline(b"a job", 0)?;
/// assert_eq!(worker.recv()?.to_vec(), b"a job");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    domain: DomainCore,
    /// Our name's id; another one under another manager.
    export: Arc<AtomicU32>,
    name: String,
    role: Role,
    options: LinkOptions,
    /// Connections that are being made for whoever awaits one.
    begun: Mutex<Vec<Accepting>>,
    /// When the manager was last looked for without any news: a killed one sends none.
    looked: Mutex<Instant>,
    /// Connections come from here, and not from the manager.
    fed: Option<Fed>,
}

impl Listener {
    pub(crate) fn new(
        domain: &DomainCore,
        name: &str,
        role: Role,
        options: LinkOptions,
    ) -> Result<Listener, Error> {
        let export = export(domain, name, role)?;
        Ok(Listener {
            domain: domain.clone(),
            export,
            name: name.into(),
            role,
            options,
            begun: Mutex::default(),
            looked: Mutex::new(Instant::now()),
            fed: None,
        })
    }

    /// One whose ends are made elsewhere.
    pub(crate) fn fed(
        domain: &DomainCore,
        address: &str,
        role: Role,
        options: LinkOptions,
        feed: Arc<Feed>,
        maker: Box<dyn Any + Send + Sync>,
    ) -> Listener {
        Listener {
            domain: domain.clone(),
            export: Arc::default(),
            name: address.into(),
            role,
            options,
            begun: Mutex::default(),
            looked: Mutex::new(Instant::now()),
            fed: Some(Fed {
                feed,
                _maker: maker,
            }),
        }
    }

    /// The role that this side has in every link.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The next connection, as its sending end. For a listener with [`Role::Source`].
    ///
    /// Waits for ever, for a manager that is away, too.
    ///
    /// # Errors
    /// `ChannelDirection` for a listener of the other role; `CutOff` when no manager can be reached any more; `Forked`; `System`. That somebody
    /// connects and is gone again is none: the next one is waited for.
    pub fn accept_sender(&self) -> Result<Sender, Error> {
        self.accept_sender_within(None)
    }

    /// Accepts a connection as its sending end, or fails with `TimedOut` after `timeout`.
    /// `None`: for ever; [`Duration::ZERO`]: not at all.
    ///
    /// # Errors
    /// As [`accept_sender`](Listener::accept_sender), and `TimedOut`.
    pub fn accept_sender_within(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Sender, Error> {
        self.accept(Role::Source, timeout.into())?.into_sender()
    }

    /// The next connection, as its receiving end. For a listener with [`Role::Sink`].
    ///
    /// Waits for ever, for a manager that is away, too.
    ///
    /// # Errors
    /// As [`accept_sender`](Listener::accept_sender), and what making a pool for arrivals fails with ([`Domain::create_pool`](crate::Domain::create_pool)).
    pub fn accept_receiver(&self) -> Result<Receiver, Error> {
        self.accept_receiver_within(None)
    }

    /// Accepts a connection as its receiving end, or fails with `TimedOut` after `timeout`.
    /// `None`: for ever; [`Duration::ZERO`]: not at all.
    ///
    /// # Errors
    /// As [`accept_receiver`](Listener::accept_receiver), and `TimedOut`.
    pub fn accept_receiver_within(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Receiver, Error> {
        self.accept(Role::Sink, timeout.into())?.into_receiver()
    }

    /// Who asks for the other end than this listener has is wrong before anybody has connected.
    pub(super) fn check_role(&self, asked: Role) -> Result<(), Error> {
        let (role, call) = match self.role {
            Role::Source => ("source", "accept_sender"),
            Role::Sink => ("sink", "accept_receiver"),
        };
        if asked == self.role {
            return Ok(());
        }
        let text = format!("this side of {:?} is the {role}: use {call}", self.name);
        Err(Error::new(Kind::ChannelDirection, text))
    }

    fn accept(&self, role: Role, timeout: Option<Duration>) -> Result<End, Error> {
        self.domain.check_fork()?;
        self.check_role(role)?;
        let started = Instant::now();
        let deadline = timeout.and_then(|t| started.checked_add(t));
        let timed_out = || {
            Err(TimedOut {
                awaited: Awaited::Connection(self.name.clone()),
                waited_ms: crate::base::millis(started.elapsed()),
            }
            .into())
        };
        if let Some(Fed { feed, .. }) = &self.fed {
            loop {
                self.domain.turn_quietly();
                if let Some(end) = feed.pop() {
                    return Ok(end);
                }
                let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    return timed_out();
                }
                let round = left.map_or(LOOK, |left| left.min(LOOK));
                let waited = wait_readable(feed.doorbell(), Some(round));
                waited.map_err(Error::system("poll"))?;
            }
        }
        loop {
            let seen = self.domain.wake();
            if let Some(end) = self.look_for_connection()? {
                return Ok(end);
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return timed_out();
            }
            self.domain.wait_news(seen, deadline);
        }
    }
}

impl Listener {
    pub(super) fn domain(&self) -> &DomainCore {
        &self.domain
    }

    /// Nothing of who connected and is gone again: the next one, please.
    fn unless_gone<T>(&self, made: Result<T, Error>) -> Result<Option<T>, Error> {
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.find::<Refusal>().is_some() => {
                tracing::debug!(name = self.name, %error, "accept");
                Ok(None)
            }
            // So is a connection whose manager went away before it was made: they will try again.
            Err(error) if error == Kind::ManagerAway => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Who asks often, and never waits long, finds out as well that the manager is gone.
    fn is_time_to_look(&self) -> bool {
        let mut looked = lock(&self.looked);
        let is_time = looked.elapsed() >= LOOK;
        if is_time {
            *looked = Instant::now();
        }
        is_time
    }

    /// The next connection, if it is made. What is being made stays with the listener, whoever asks next.
    pub(super) fn look_for_connection(&self) -> Result<Option<End>, Error> {
        if let Some(fed) = &self.fed {
            return Ok(fed.feed.pop());
        }
        let (domain, name, options) = (&self.domain, &self.name, &self.options);
        let looks = domain.has_news() || domain.has_left_overs() || self.is_time_to_look();
        let may_come = match looks || domain.cut_off().is_some() {
            true => domain.turn(),
            false => Ok(()),
        };
        while let Some(incoming) = domain.exports.next(&self.export) {
            let begun = open::begin_accept(domain, name, incoming, options);
            lock(&self.begun).extend(self.unless_gone(begun)?);
        }
        // The manager is not spoken to under its lock.
        let mut begun = std::mem::take(&mut *lock(&self.begun)).into_iter();
        let (mut made, mut waiting) = (Ok(None), Vec::new());
        while matches!(made, Ok(None)) {
            let Some(accepting) = begun.next() else { break };
            let end = open::end_accept(domain, &accepting, options, Some(Instant::now()));
            match self.unless_gone(end) {
                Ok(Some(None)) => waiting.push(accepting),
                end => made = end.map(Option::flatten),
            }
        }
        waiting.extend(begun);
        if !waiting.is_empty() {
            lock(&self.begun).extend(waiting);
            if !matches!(made, Ok(None)) {
                // For another task, which may have looked meanwhile.
                domain.tasks.has_news();
                domain.tasks.tell_news();
            }
        }
        match (made, may_come) {
            (Ok(None), Err(error)) if error != Kind::ManagerAway => Err(error),
            (made, _) => made,
        }
    }

    /// What becomes readable when somebody connects, if that is not the manager's news.
    pub(super) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.fed.as_ref().map(|fed| fed.feed.doorbell())
    }

    /// Whether somebody has connected, as far as the manager's news were taken.
    pub(super) fn has_connection(&self) -> bool {
        if let Some(fed) = &self.fed {
            return !fed.feed.is_empty();
        }
        let waits = self.domain.exports.has_incoming(&self.export);
        waits || !lock(&self.begun).is_empty()
    }
}

/// Offers a name. Its id is another one under another manager.
fn export(domain: &DomainCore, name: &str, role: Role) -> Result<Arc<AtomicU32>, Error> {
    checked_name(name)?;
    let asking = domain.exports.ask();
    let exported = domain.patiently(None, || {
        let ((event, _), era) = domain.call_in_era(
            |req| Request::Export {
                req,
                name: name.into(),
                role,
            },
            &[],
        )?;
        let Event::Exported { export, .. } = event else {
            return Err(error::protocol("an answer to Export that is none"));
        };
        let id = domain.exports.add(export, (name.into(), role));
        if domain.era() != era {
            // The manager that answered is gone, and the next one was perhaps not told of this name.
            forget(domain, &id);
            return Err(Kind::ManagerAway.into());
        }
        Ok(id)
    });
    refuse(domain, asking.end());
    exported
}

/// Whoever connected to a name at which nobody listens hears of it.
fn refuse(domain: &DomainCore, channels: Vec<ChannelId>) {
    for channel in channels {
        let _ = domain.tell(&Request::Reject { channel }, &[]);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.domain.fork.is_child() {
            // Its thread and its descriptors are the parent's: to stop it here would stop it there.
            std::mem::forget(self.fed.take());
            return;
        }
        if self.fed.is_some() {
            return;
        }
        for accepting in lock(&self.begun).drain(..) {
            open::drop_accept(&self.domain, &accepting);
        }
        forget(&self.domain, &self.export);
    }
}

fn forget(domain: &DomainCore, id: &AtomicU32) {
    let (export, left) = domain.exports.remove(id);
    refuse(domain, left);
    let _ = domain.tell(&Request::Unexport { export }, &[]);
    domain.let_go();
}
