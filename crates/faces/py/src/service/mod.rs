//! Services: `tranship.Service`, `tranship.Request`, `tranship.Client` and `tranship.Call`.

mod client;
mod request;
mod worker;

pub(crate) use client::{Call, Client};
pub(crate) use request::Request;
pub(crate) use worker::Service;

use crate::buffer::{Buffer, Origin};
use crate::errors::{OrRaise as _, busy, closed, raised};
use crate::pending::{Made, Pending};
use crate::sender::give_back;
use crate::slot::Slot;
use crate::wait::awaited;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;
use std::time::Duration;
use tranship::error::Awaited;
use tranship::service::CallError;
use tranship::{Body, Error, Message, SendError};

/// Makes the object of an answer, or of a request's payload.
fn buffer(message: Message) -> Buffer {
    Buffer::received(message, Origin::default())
}

/// Returns the exception of a call without a result.
fn without_result<T>(py: Python<'_>, failed: CallError<T>) -> PyErr {
    static FAILED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let text = failed.to_string();
    match failed {
        CallError::Unsent(failed) => raised(py, &failed.error),
        CallError::Untaken(error) | CallError::Broken(error) => raised(py, &error),
        CallError::Failed(message) => {
            let make = FAILED.import(py, "tranship._errors", "failed");
            let made = make.and_then(|make| make.call1((buffer(message), text)));
            made.map_or_else(|failed| failed, PyErr::from_value)
        }
    }
}

/// Items of a call with streams, of which either side has an end.
struct Streams<'a, T: Send> {
    end: &'a Slot<T>,
    /// Name of the awaited event, for errors.
    awaited: Awaited,
}

type Going<R> = std::pin::Pin<Box<dyn Future<Output = R> + Send>>;

impl<T: Send> Streams<'_, T> {
    /// Waits for a future of the end, until another thread closes it.
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        going: Going<R>,
    ) -> PyResult<R> {
        let going = self.end.while_open(going);
        let going = Box::pin(async move { Ok(going.await) });
        awaited(py, timeout, &self.awaited, going)?.ok_or_else(|| closed(self.end.what))
    }

    fn send(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        payload: &Bound<'_, PyAny>,
        going: Going<Result<(), SendError<Body>>>,
    ) -> PyResult<()> {
        self.wait(py, timeout, going)?.map_err(|failed| {
            give_back(payload, Some(failed.unsent));
            raised(py, &failed.error)
        })
    }

    fn recv(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        going: Going<Result<Option<Message>, Error>>,
    ) -> PyResult<Option<Buffer>> {
        Ok(self.wait(py, timeout, going)?.or_raise(py)?.map(buffer))
    }
}

/// Adds to a class, whose field `held` has one end of a call with streams, what it does with items.
macro_rules! streams {
    ($class:ident, $(#[$send:meta])* send, $(#[$recv:meta])* recv, $(#[$next:meta])* next) => {
        #[pyo3::pymethods]
        impl $class {
            $(#[$send])*
            #[pyo3(signature = (payload, *, timeout=None, r#move=false), text_signature = "($self, payload, *, timeout=None, move=False)")]
            fn send(
                &self,
                py: Python<'_>,
                payload: &Bound<'_, PyAny>,
                timeout: Option<f64>,
                r#move: bool,
            ) -> PyResult<()> {
                let (end, limit) = (self.held.get(py)?, crate::wait::limit(timeout)?);
                let body = crate::sender::outgoing(payload, r#move)?;
                let going = Box::pin(async move { end.send_async(body).await });
                self.streams().send(py, limit, payload, going)
            }

            /// Sends like `send`, and awaits it.
            #[pyo3(signature = (payload))]
            fn send_async<'py>(
                &self,
                py: Python<'py>,
                payload: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let (end, body) = (self.held.get(py)?, crate::sender::cargo_of(payload)?);
                let going = Box::pin(async move { end.send_async(body).await });
                crate::service::send_async(py, going)
            }

            $(#[$recv])*
            #[pyo3(signature = (timeout=None))]
            fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Buffer>> {
                let (end, limit) = (self.held.get(py)?, crate::wait::limit(timeout)?);
                let going = Box::pin(async move { end.recv_async().await });
                self.streams().recv(py, limit, going)
            }

            /// Awaits the next item.
            fn recv_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let end = self.held.get(py)?;
                let going = Box::pin(async move { end.recv_async().await });
                crate::service::recv_async(py, going)
            }

            $(#[$next])*
            fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
                self.recv(py, None)
            }

            fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                crate::slot::aio(py, "item", (self.recv_async(py)?,))
            }
        }
        crate::slot::iterates!($class);
    };
}

use streams;

/// Returns a coroutine that awaits a send of an item. The payload is shared.
fn send_async<'py>(
    py: Python<'py>,
    going: Going<Result<(), SendError<Body>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let sent = async move {
        going.await.map_err(|failed| failed.error)?;
        let made: Made = Box::new(|py| Ok(py.None().into_bound(py)));
        Ok(made)
    };
    Pending::awaited(py, Box::pin(sent), None)
}

/// Returns a coroutine that awaits the next item, or None.
fn recv_async<'py>(
    py: Python<'py>,
    going: Going<Result<Option<Message>, Error>>,
) -> PyResult<Bound<'py, PyAny>> {
    let came = async move {
        let item = going.await?;
        let made: Made = Box::new(|py| match item {
            Some(message) => Ok(Bound::new(py, buffer(message))?.into_any()),
            None => Ok(py.None().into_bound(py)),
        });
        Ok(made)
    };
    Pending::awaited(py, Box::pin(came), None)
}

/// Takes the end of a call that no other thread uses.
fn sole<T: Send + Sync>(py: Python<'_>, slot: &Slot<Arc<T>>) -> PyResult<Option<T>> {
    let Some(end) = slot.take(py)? else {
        return Ok(None);
    };
    Arc::try_unwrap(end).map(Some).map_err(|end| {
        *slot.lock() = Some(end);
        busy("another thread or task sends or receives items of this call: let it end first")
    })
}
