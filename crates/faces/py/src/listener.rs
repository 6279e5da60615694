//! `tranship.Listener`: a name that others connect to.

use crate::errors::closed;
use crate::fork::{ForkEpoch, let_go};
use crate::pending::{Ahead, Connecting, End, Pending, Waiters};
use crate::receiver::Told;
use crate::wait::{By, limit, wait};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tranship::{Error, PollItem, Role, poll};

/// A name that others connect to. Each connection is a channel of its own.
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Listener {
    listener: Mutex<Option<Arc<tranship::Listener>>>,
    name: String,
    told: Told,
    /// Way in which its channels wait.
    by: By,
    waiters: Arc<Waiters>,
    ahead: Arc<Mutex<Ahead>>,
    fork_epoch: ForkEpoch,
}

impl Listener {
    pub(crate) fn new(listener: tranship::Listener, name: String, told: Told, by: By) -> Listener {
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

    fn get(&self) -> Option<Arc<tranship::Listener>> {
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

/// Accepts the next connection.
fn accepted(listener: Arc<tranship::Listener>) -> Connecting {
    Box::pin(async move {
        match listener.role() {
            Role::Source => listener.accept_sender_async().await.map(End::Sender),
            Role::Sink => listener.accept_receiver_async().await.map(End::Receiver),
        }
    })
}

#[pymethods]
impl Listener {
    /// The next connection: a Sender where the role is "send", else a Receiver.
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
                let mut items = [PollItem::listener(&listener), PollItem::readable(signals)];
                poll(&mut items, Some(slice))?;
                slice = std::time::Duration::ZERO;
            }
            let end = match listener.role() {
                Role::Source => End::Sender(listener.accept_sender_within(slice)?),
                Role::Sink => End::Receiver(listener.accept_receiver_within(slice)?),
            };
            Ok(Some(Some(end)))
        });
        py.detach(|| self.arm());
        let end = end?.ok_or_else(|| closed("listener"))?;
        end.into_object(py, &self.told, self.by)
    }

    /// Awaits the next connection. Any number of tasks may.
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
        Pending::awaited(py, accepted, waiters, &self.told, self.by)
    }

    /// A descriptor for event loops: readable when a peer has connected. One connection may be taken ahead of its
    /// time, for the next `accept`.
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

    /// The name, or address, at which it listens.
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

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.accept(py, None)
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.accept_async(py)
    }

    fn __repr__(&self) -> String {
        format!("<tranship.Listener {:?}>", self.name)
    }
}

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
