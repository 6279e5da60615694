//! Futures that a task awaits: a connection, a request, an answer.

use crate::driven::Doorbell;
use crate::errors::{OrRaise as _, closed};
use crate::fork::{ForkEpoch, let_go};
use crate::receiver::{Receiver, Told};
use crate::sender::Sender;
use crate::slot::aio;
use crate::wait::By;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tranship::Error;

/// Connection of this side.
pub(crate) enum End {
    Sender(tranship::Sender),
    Receiver(tranship::Receiver),
}

impl End {
    pub(crate) fn into_object<'py>(
        self,
        py: Python<'py>,
        told: &Told,
        by: By,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            End::Sender(end) => Bound::new(py, Sender::new(end, by))?.into_any(),
            End::Receiver(end) => Bound::new(py, Receiver::new(end, told.clone(), by))?.into_any(),
        })
    }
}

/// Makes the object that a future has ended with.
pub(crate) type Made = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send>;

/// A future of such an object.
pub(crate) type Making = Pin<Box<dyn Future<Output = Result<Made, Error>> + Send>>;

/// Tasks that await connections of a listener; `None` when it is closed.
#[derive(Debug)]
pub(crate) struct Waiters(Mutex<Option<Vec<Weak<Doorbell>>>>);

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters(Mutex::new(Some(Vec::new())))
    }
}

impl Waiters {
    fn join(&self, doorbell: &Arc<Doorbell>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = all.as_mut() {
            all.retain(|doorbell| doorbell.strong_count() > 0);
            all.push(Arc::downgrade(doorbell));
        }
    }

    fn are_sent_away(&self) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.is_none()
    }

    /// Makes all tasks look once more, because the listener is closed.
    pub(crate) fn send_away(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let doorbells = all.into_iter().flatten();
        doorbells
            .filter_map(|doorbell| doorbell.upgrade())
            .for_each(|doorbell| doorbell.ring());
    }
}

pub(crate) type Connecting = Pin<Box<dyn Future<Output = Result<End, Error>> + Send>>;

/// Doorbell of a listener's descriptor, and a connection that was taken ahead of its time.
#[derive(Default)]
pub(crate) struct Ahead {
    doorbell: Option<Arc<Doorbell>>,
    future: Option<Connecting>,
    stash: Option<Result<End, Error>>,
}

impl Ahead {
    /// Returns the descriptor, from here on.
    pub(crate) fn doorbell(&mut self) -> std::io::Result<&Arc<Doorbell>> {
        match self.doorbell.take() {
            Some(there) => Ok(self.doorbell.insert(there)),
            None => Ok(self.doorbell.insert(Doorbell::new()?)),
        }
    }

    pub(crate) fn take(&mut self) -> Option<Result<End, Error>> {
        self.future = None;
        self.stash.take()
    }

    /// Makes the doorbell ring from here on when a peer has connected. Returns whether one has already.
    pub(crate) fn arm(&mut self, accept: impl FnOnce() -> Connecting) -> bool {
        let Some(doorbell) = &self.doorbell else {
            return false;
        };
        doorbell.hush();
        if self.stash.is_none() {
            let future = self.future.get_or_insert_with(accept);
            let waker = Waker::from(Arc::clone(doorbell));
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.future = None;
                self.stash = Some(done);
            }
        }
        if self.stash.is_some() {
            doorbell.ring();
        }
        self.stash.is_some()
    }

    /// Closes the listener. A task that waits on the descriptor looks once more.
    pub(crate) fn end(&mut self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
        *self = Ahead {
            doorbell: self.doorbell.take(),
            ..Ahead::default()
        };
    }
}

/// A future, and the descriptor that tells when to look at it again.
#[pyclass(frozen, name = "_Pending", module = "tranship._native")]
pub(crate) struct Pending {
    future: Mutex<Option<Making>>,
    doorbell: Arc<Doorbell>,
    waiters: Option<Arc<Waiters>>,
    fork_epoch: ForkEpoch,
}

impl Pending {
    /// Returns a coroutine that awaits a connection.
    pub(crate) fn connection<'py>(
        py: Python<'py>,
        future: impl Future<Output = Result<End, Error>> + Send + 'static,
        waiters: Option<Arc<Waiters>>,
        told: &Told,
        by: By,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = told.clone();
        let made = async move {
            let end = future.await?;
            let made: Made = Box::new(move |py| end.into_object(py, &told, by));
            Ok(made)
        };
        Pending::awaited(py, Box::pin(made), waiters)
    }

    /// Returns a coroutine that awaits a future.
    pub(crate) fn awaited(
        py: Python<'_>,
        future: Making,
        waiters: Option<Arc<Waiters>>,
    ) -> PyResult<Bound<'_, PyAny>> {
        let doorbell = Doorbell::new().map_err(|error| PyOSError::new_err(error.to_string()))?;
        if let Some(waiters) = &waiters {
            waiters.join(&doorbell);
        }
        let pending = Pending {
            future: Mutex::new(Some(future)),
            doorbell,
            waiters,
            fork_epoch: ForkEpoch::now(),
        };
        aio(py, "awaited", (pending,))
    }

    fn poll(&self) -> Option<Result<Made, Error>> {
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        self.doorbell.hush();
        let waker = Waker::from(Arc::clone(&self.doorbell));
        let polled = future
            .as_mut()?
            .as_mut()
            .poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Pending => None,
            Poll::Ready(done) => {
                *future = None;
                Some(done)
            }
        }
    }
}

#[pymethods]
impl Pending {
    /// Returns the object, if it is there, in a tuple: the object may be None.
    fn look<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
        self.fork_epoch.check(py)?;
        if self.waiters.as_ref().is_some_and(|all| all.are_sent_away()) {
            return Err(closed("listener"));
        }
        match py.detach(|| self.poll()) {
            None => Ok(None),
            Some(made) => made.or_raise(py)?(py).map(|made| Some((made,))),
        }
    }

    fn fileno(&self) -> i32 {
        self.doorbell.fd()
    }

    /// Cancels it: no task awaits it any more.
    fn cancel(&self) {
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let_go(self.fork_epoch, future.take());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.cancel();
    }
}
