//! Ends that one thread at a time uses: of topics and of queues.

use crate::driven::{Doorbell, Driven, Kept, Under};
use crate::errors::{OrRaise as _, closed};
use crate::fork::ForkEpoch;
use crate::slot::Slot;
use crate::wait::{By, Turn, Waits, wait};
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tranship::{Body, Error, ErrorKind, PollItem, error, poll};

/// An end that one thread or task at a time uses, and any thread closes. `R` is what its futures end with.
///
/// A future that waits in the end does not keep others out: they drop it, and its thread or task begins it anew.
pub(crate) struct Single<E: Send + 'static, R: Send> {
    slot: Slot<Driven<E, R>>,
    /// Rings when the future is to be polled, or begun anew. Made with the first future.
    doorbell: OnceLock<Arc<Doorbell>>,
    waits: Waits,
}

impl<E: Send + 'static, R: Send> Single<E, R> {
    pub(crate) fn new(inner: E, what: &'static str) -> Single<E, R> {
        Single {
            slot: Slot::new(Driven::new(inner), what),
            doorbell: OnceLock::new(),
            waits: Waits::new(By::Time),
        }
    }

    pub(crate) fn fork_epoch(&self) -> ForkEpoch {
        self.slot.fork_epoch
    }

    fn ring(&self) {
        if let Some(doorbell) = self.doorbell.get() {
            doorbell.ring();
        }
    }

    /// Runs on the end.
    fn on<T>(&self, driven: &mut Driven<E, R>, what: impl FnOnce(&mut E) -> T) -> T {
        let was_under_way = driven.is_under_way();
        let done = what(driven.end());
        if was_under_way {
            self.ring();
        }
        done
    }

    /// Runs with the end. If another thread waits in it, this runs when that thread's turn is over, and without the GIL.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut E) -> T + Send,
    ) -> PyResult<T> {
        self.slot.fork_epoch.check(py)?;
        if let Some(mut inner) = self.slot.try_lock() {
            let done = inner.as_mut().map(|driven| self.on(driven, what));
            return done.ok_or_else(|| closed(self.slot.what));
        }
        self.detached(py, what)
    }

    /// Runs with the end, without the GIL.
    pub(crate) fn detached<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut E) -> T + Send,
    ) -> PyResult<T> {
        self.slot.fork_epoch.check(py)?;
        let run = || {
            self.slot
                .lock()
                .as_mut()
                .map(|driven| self.on(driven, what))
        };
        py.detach(run).ok_or_else(|| closed(self.slot.what))
    }

    /// Waits in turns, each of which has the end for at most the given time.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut turn: impl FnMut(&mut E, Duration) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.slot.fork_epoch.check(py)?;
        let done = wait(py, timeout, self.waits.by, |Turn { slice, .. }| {
            if self.waits.are_over() {
                return Ok(Some(None));
            }
            match self.slot.lock().as_mut() {
                None => Ok(Some(None)), // closed by another thread
                Some(driven) => self
                    .on(driven, |end| turn(end, slice))
                    .map(|done| Some(Some(done))),
            }
        })?;
        done.ok_or_else(|| closed(self.slot.what))
    }

    /// Closes it. Waiting threads and tasks are told first.
    pub(crate) fn close(&self, py: Python<'_>) {
        if !self.slot.fork_epoch.is_inherited() {
            self.waits.end();
            self.slot.close(py);
            self.ring();
        }
    }

    fn doorbell(&self) -> Result<&Arc<Doorbell>, Error> {
        if let Some(doorbell) = self.doorbell.get() {
            return Ok(doorbell);
        }
        let made = Doorbell::new().map_err(error::system("eventfd"))?;
        Ok(self.doorbell.get_or_init(|| made))
    }

    /// Polls the future, and begins it if none is under way.
    fn poll(
        &self,
        begin: impl FnOnce(&'static mut E) -> Under<R>,
    ) -> Option<Result<Option<R>, Error>> {
        let doorbell = match self.doorbell() {
            Ok(doorbell) => doorbell,
            Err(error) => return Some(Err(error)),
        };
        let mut inner = self.slot.lock();
        let driven = inner.as_mut()?;
        doorbell.hush();
        if !driven.is_under_way() {
            driven.begin(begin);
        }
        Some(Ok(driven.poll(doorbell)))
    }

    /// Looks at the future that a task awaits. None: the doorbell rings when to look again.
    pub(crate) fn look(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&'static mut E) -> Under<R> + Send,
    ) -> PyResult<Option<R>> {
        self.slot.fork_epoch.check(py)?;
        let looked = py.detach(|| self.poll(begin));
        looked.ok_or_else(|| closed(self.slot.what))?.or_raise(py)
    }

    /// Returns the doorbell of the task's future.
    pub(crate) fn kept(&self, py: Python<'_>) -> PyResult<Kept> {
        self.doorbell().cloned().map(Kept).or_raise(py)
    }

    /// Drops the future of a task, or a thread, that awaits it no more.
    pub(crate) fn rest(&self, py: Python<'_>) {
        if !self.slot.fork_epoch.is_inherited() {
            py.detach(|| {
                self.slot
                    .lock()
                    .as_mut()
                    .map(|driven| self.on(driven, |_| ()))
            });
        }
    }

    /// Waits for a future, without the end being taken meanwhile: Ctrl-C and `close` end the wait.
    pub(crate) fn drive(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        begin: impl Fn(&'static mut E) -> Under<R> + Send + Sync,
    ) -> PyResult<R> {
        if let Some(done) = self.look(py, &begin)? {
            return Ok(done);
        }
        let doorbell = self.kept(py)?;
        let done = wait(py, timeout, By::Descriptor, |turn| {
            let mut items = vec![PollItem::readable(&*doorbell.0)];
            items.extend(turn.signals.map(PollItem::readable));
            poll(&mut items, Some(turn.slice))?;
            match self.poll(&begin) {
                None => Ok(Some(None)), // closed by another thread
                Some(looked) => Ok(looked?.map(Some)),
            }
        });
        if done.is_err() {
            self.rest(py);
        }
        done?.ok_or_else(|| closed(self.slot.what))
    }
}

/// Adds to a class, whose field `held` is a [`Single`], what the futures of its tasks need.
macro_rules! awaits {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            fn _doorbell(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<crate::driven::Kept> {
                self.held.kept(py)
            }

            fn _rest(&self, py: pyo3::Python<'_>) {
                self.held.rest(py);
            }
        }
    };
}

pub(crate) use awaits;

/// Returns another handle of what is sent, for a future that is begun anew. What Python publishes is shared.
pub(crate) fn again(body: &Body) -> Result<Body, Error> {
    body.share().ok_or_else(|| ErrorKind::BufferState.into())
}

/// Makes an end without the GIL.
pub(crate) fn made<T: Send>(
    py: Python<'_>,
    make: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(make).or_raise(py)
}
