//! A task's sleep on what a subscriber or a publisher awaits.

use crate::domain::{DomainCore, Key};
use crate::error::Error;
use crate::link::{Receiver, Registration, put_task};
use crate::membership::Domain;
use std::task::Context;
use std::time::{Duration, Instant};
use tranship_ring::Waker;

/// The longest sleep: a manager that was killed sends no news.
const LOOK: Duration = Duration::from_millis(250);

/// A task's sleep: on the descriptors of channels, on the manager's news, and until a time. It ends with it.
pub struct Sleep {
    domain: DomainCore,
    key: Key,
    on: Vec<Registration>,
}

impl Sleep {
    /// Makes one that has not begun.
    pub fn new(domain: &Domain) -> Sleep {
        let domain = domain.core().clone();
        // A child's tasks are its parent's.
        let key = match domain.fork.is_child() {
            true => 0,
            false => domain.tasks.key(),
        };
        let on = Vec::new();
        Sleep { domain, key, on }
    }

    /// Begins a sleep of at most `most`. What comes from here on wakes the task. The caller looks again after it.
    ///
    /// # Errors
    /// `Forked`; `System` if the thread that wakes tasks, or its descriptors, cannot be made.
    pub fn begin<'a>(
        &mut self,
        receivers: impl Iterator<Item = &'a Receiver>,
        context: &Context<'_>,
        most: Duration,
    ) -> Result<(), Error> {
        self.domain.check_fork()?;
        self.on.clear();
        put_task(&self.domain, self.key, context.waker())?;
        let at = Instant::now() + most.min(LOOK);
        self.domain.tasks.wake_at(self.key, at);
        for receiver in receivers {
            let mut on = Registration::default();
            on.begin(receiver.link_arc(), context, Waker::Fences, None)?;
            self.on.push(on);
        }
        Ok(())
    }

    /// Says whether the manager has news. They are taken by the caller.
    pub fn has_news(&self) -> bool {
        self.domain.has_news()
    }

    /// Ends the sleep.
    pub fn end(&mut self) {
        self.on.clear();
        if !self.domain.fork.is_child() {
            self.domain.tasks.forget(self.key);
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}
