//! `tranship.Listener`: a name that others connect to.

use crate::errors::closed;
use crate::fork::{ForkEpoch, let_go};
use crate::pending::{Ahead, Connecting, End, Pending, Waiters};
use crate::receiver::Told;
use crate::slot::{closes, iterates};
use crate::wait::{By, limit, wait};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tranship::{Error, PollItem, poll};

/// A listener, by the end that it gives.
#[derive(Debug)]
pub(crate) enum Either {
    Sender(tranship::Listener<tranship::Sender>),
    Receiver(tranship::Listener<tranship::Receiver>),
}

impl Either {
    fn poll_item(&self) -> PollItem<'_> {
        match self {
            Either::Sender(listener) => PollItem::listener(listener),
            Either::Receiver(listener) => PollItem::listener(listener),
        }
    }

    fn accept(&self, timeout: Duration) -> Result<End, Error> {
        match self {
            Either::Sender(listener) => listener.accept_timeout(timeout).map(End::Sender),
            Either::Receiver(listener) => listener.accept_timeout(timeout).map(End::Receiver),
        }
    }
}

/// A name that others connect to. Each connection is a channel of its own.
///
/// >>> import tranship
/// >>> with tranship.embedded() as domain, domain.listen("numbers", tranship.Sender) as listener:
/// ...     listener.name
/// 'numbers'
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Listener {
    listener: Mutex<Option<Arc<Either>>>,
    name: String,
    told: Told,
    /// Way in which its channels wait.
    by: By,
    waiters: Arc<Waiters>,
    ahead: Arc<Mutex<Ahead>>,
    fork_epoch: ForkEpoch,
}

impl Listener {
    pub(crate) fn new(listener: Either, name: String, told: Told, by: By) -> Listener {
        Listener {
            listener: Mutex::new(Some(Arc::new(listener))),
            name,
            told,
            by,
            waiters: Arc::default(),
            ahead: Arc::default(),
            fork_epoch: ForkEpoch::now(),
        }
    }

    fn get(&self) -> Option<Arc<Either>> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.clone()
    }

    /// Returns the connection that the descriptor reported, which was taken ahead.
    fn take_ahead(&self) -> Option<Result<End, Error>> {
        lock(&self.ahead).take()
    }

    fn arm(&self) -> bool {
        let Some(listener) = self.get() else {
            return false;
        };
        lock(&self.ahead).arm(|| accepted(listener))
    }
}

fn lock(ahead: &Mutex<Ahead>) -> MutexGuard<'_, Ahead> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next connection.
fn accepted(listener: Arc<Either>) -> Connecting {
    Box::pin(async move {
        match &*listener {
            Either::Sender(listener) => listener.accept_async().await.map(End::Sender),
            Either::Receiver(listener) => listener.accept_async().await.map(End::Receiver),
        }
    })
}

#[pymethods]
impl Listener {
    /// The next connection: the end that `listen` named.
    #[pyo3(signature = (timeout=None))]
    fn accept<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.fork_epoch.check(py)?;
        let timeout = limit(timeout)?;
        let end = wait(py, timeout, By::Descriptor, |turn| {
            let Some(listener) = self.get() else {
                return Ok(Some(None)); // closed by another thread
            };
            if let Some(end) = self.take_ahead() {
                return end.map(|end| Some(Some(end)));
            }
            let mut slice = turn.slice;
            if let Some(signals) = turn.signals {
                let mut items = [listener.poll_item(), PollItem::readable(signals)];
                poll(&mut items, Some(slice))?;
                slice = Duration::ZERO;
            }
            Ok(Some(Some(listener.accept(slice)?)))
        });
        py.detach(|| self.arm());
        let end = end?.ok_or_else(|| closed("listener"))?;
        end.into_object(py, &self.told, self.by)
    }

    /// Awaits the next connection. Any number of tasks may wait.
    fn accept_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.fork_epoch.check(py)?;
        let listener = self.get().ok_or_else(|| closed("listener"))?;
        let ahead = Arc::clone(&self.ahead);
        let accepted = async move {
            let taken = lock(&ahead).take();
            let end = match taken {
                Some(taken) => taken,
                None => accepted(Arc::clone(&listener)).await,
            };
            lock(&ahead).arm(|| accepted(listener));
            end
        };
        let waiters = Some(Arc::clone(&self.waiters));
        Pending::connection(py, accepted, waiters, &self.told, self.by)
    }

    /// A descriptor for event loops: readable when a peer has connected. The listener may already take one connection,
    /// for the next `accept`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.fork_epoch.check(py)?;
        if self.get().is_none() {
            return Err(closed("listener"));
        }
        let fd = lock(&self.ahead).doorbell()?.fd();
        py.detach(|| self.arm());
        Ok(fd)
    }

    /// Returns whether somebody has connected. Only where somebody has asked for the descriptor.
    fn _is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        match self.get() {
            Some(_) => Ok(py.detach(|| self.arm())),
            None => Err(closed("listener")),
        }
    }

    /// `Listener[Sender]`, in annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let types = class.py().import("types")?;
        types.call_method1("GenericAlias", (class, item))
    }

    /// The name or address at which the listener listens.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        if self.fork_epoch.is_inherited() {
            return;
        }
        py.detach(|| {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            drop(listener.take());
            drop(listener);
            self.waiters.send_away();
            lock(&self.ahead).end();
        });
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.accept(py, None)
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.accept_async(py)
    }

    fn __repr__(&self) -> String {
        format!("<tranship.Listener {:?}>", self.name)
    }
}

iterates!(Listener);
closes!(Listener);

impl Drop for Listener {
    fn drop(&mut self) {
        let listener = self.listener.get_mut();
        let listener = listener.unwrap_or_else(PoisonError::into_inner).take();
        let_go(
            self.fork_epoch,
            listener.map(|listener| (listener, std::mem::take(&mut self.ahead))),
        );
    }
}
