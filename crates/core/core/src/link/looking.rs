//! Repeated looks for news of the manager or of another thread: by tasks, and, for channels that are being opened, by
//! callers without a task.

use super::listener::begin_here;
use super::open::{End, NamedOpening};
use super::reactor;
use super::sleep::LOOK;
use crate::domain::{DomainCore, Key, ROUND};
use crate::error::Error;
use crate::options::ChannelOptions;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tranship_proto::Role;

/// Looks whether something is there, once.
type Look<T> = Box<dyn FnMut() -> Result<Option<T>, Error> + Send>;

/// A channel that is being opened. Awaited, in any runtime, it is the channel's end; a caller that awaits nothing looks
/// now and then ([`try_open`](Opening::try_open)). Many may be opened at once. Dropped, the name is not waited for any
/// more.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{ChannelOptions, Domain, Receiver, Sender};
///
/// let domain = Domain::embedded()?;
/// let mut opening = domain.open_async::<Sender>("local:jobs", ChannelOptions::new());
/// assert!(opening.try_open()?.is_none()); // nobody listens there yet
/// let listener = domain.listen::<Receiver>("local:jobs")?;
/// let mut sender = opening.try_open()?.expect("somebody does now");
/// sender.send(b"a job")?;
/// assert_eq!(listener.accept()?.recv()?.to_vec(), b"a job");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is opened before it is awaited or looked at"]
pub struct Opening<T> {
    looking: Looking<Look<T>>,
    over: bool,
}

impl<T> Opening<T> {
    pub(crate) fn new(
        domain: &DomainCore,
        mut look: Look<End>,
        as_end: fn(End) -> Result<T, Error>,
    ) -> Opening<T>
    where
        T: 'static,
    {
        let look: Look<T> = Box::new(move || look()?.map(as_end).transpose());
        Opening {
            looking: Looking::new(domain.clone(), look),
            over: false,
        }
    }

    /// Returns the channel's end, if the channel is open by now. The first call begins to open. `None`: call again,
    /// after a while, or when the [`Domain`](crate::Domain)'s descriptor is readable. After the end, or an error, no
    /// call returns anything.
    ///
    /// It does not block.
    ///
    /// # Errors
    /// As [`Domain::open_with`](crate::Domain::open_with), `TimedOut` after the time that the options say, at the first look by which the manager has said why.
    pub fn try_open(&mut self) -> Result<Option<T>, Error> {
        if self.over {
            return Ok(None);
        }
        self.looking.domain.check_fork()?;
        let found = (self.looking.look)();
        self.over = !matches!(found, Ok(None));
        found
    }
}

impl<T> Future for Opening<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Opening { looking, over } = self.get_mut();
        if *over {
            return Poll::Pending; // it was ready before
        }
        let done = Pin::new(looking).poll(context);
        *over = done.is_ready();
        done
    }
}

impl<T> std::fmt::Debug for Opening<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening")
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

/// Connects to an exported name as `role`.
pub(crate) fn open(
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
) -> Result<End, Error> {
    let mut opening = NamedOpening::new(domain, name, role, options);
    loop {
        let round = Instant::now() + ROUND;
        let until = opening.deadline().map_or(round, |at| at.min(round));
        if let Some(end) = opening.look(Some(until))? {
            return Ok(end);
        }
        begin_here(domain, name);
        domain.idle();
    }
}

/// Looks whether a connection to a name is made. When the returned function is dropped, the attempt ends, and no
/// listener accepts a peer that is not there.
pub(crate) fn look_for_named(
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
) -> Box<dyn FnMut() -> Result<Option<End>, Error> + Send> {
    let mut opening = NamedOpening::new(domain, name, role, options);
    Box::new(move || opening.look(Some(Instant::now())))
}

/// A task that looks again at each news of the manager.
pub(super) struct Looking<F> {
    domain: DomainCore,
    key: Key,
    look: F,
}

impl<F> Looking<F> {
    pub(super) fn new(domain: DomainCore, look: F) -> Looking<F> {
        // A child's tasks are its parent's.
        let key = match domain.fork.is_child() {
            true => 0,
            false => domain.tasks.key(),
        };
        Looking { domain, key, look }
    }
}

impl<T, F: FnMut() -> Result<Option<T>, Error> + Unpin> Future for Looking<F> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Looking { domain, key, look } = self.get_mut();
        domain.check_fork()?;
        reactor::put(domain, *key, context.waker())?;
        match look().transpose() {
            Some(done) => {
                domain.tasks.forget(*key);
                Poll::Ready(done)
            }
            None => {
                // Also without news: a request that waits for an absent manager is tried again.
                domain.tasks.wake_at(*key, Instant::now() + LOOK);
                Poll::Pending
            }
        }
    }
}

impl<F> Drop for Looking<F> {
    fn drop(&mut self) {
        if !self.domain.fork.is_child() {
            self.domain.tasks.forget(self.key);
        }
    }
}
