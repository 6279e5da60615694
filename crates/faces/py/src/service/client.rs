//! `tranship.Client` and `tranship.Call`: the caller's side.

use super::{Streams, buffer, sole, streams, without_result};
use crate::buffer::Buffer;
use crate::errors::{closed, raised};
use crate::number::Number;
use crate::pending::{Made, Pending};
use crate::sender::{cargo_of, give_back, outgoing};
use crate::slot::{Slot, holds};
use crate::wait::{By, Turn, awaited, limit, wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tranship::error::{Awaited, TimedOut};
use tranship::service::{self, CallOptions};
use tranship::{Body, SendError};

/// Calls a service. Any number of threads and tasks may.
///
#[doc = include_str!("example.txt")]
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Client {
    held: Slot<service::Client>,
    /// The service's name.
    #[pyo3(get)]
    name: String,
}

/// A call in flight. Closing it, or leaving its `with`, cancels it if its answer was not taken.
///
#[doc = include_str!("example.txt")]
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Call {
    held: Slot<Arc<service::Call>>,
    name: String,
}

type Beginning = Pin<Box<dyn Future<Output = Result<service::Call, SendError<Body>>> + Send>>;

/// Begins a call.
fn begin(client: service::Client, body: Body, options: CallOptions) -> Beginning {
    Box::pin(async move { client.begin_async(body, options).await })
}

fn options(method: Number, timeout: Option<Duration>) -> PyResult<CallOptions> {
    let method: u32 = method.named("method")?;
    let Some(method) = u8::try_from(method).ok().filter(|method| *method < 128) else {
        let text = format!("method is {method}: it is a whole number from 0 to 127");
        return Err(PyValueError::new_err(text));
    };
    let options = CallOptions::new().method(method);
    Ok(match timeout {
        Some(timeout) => options.timeout(timeout),
        None => options,
    })
}

impl Client {
    pub(crate) fn new(client: service::Client, name: &str) -> Client {
        Client {
            held: Slot::new(client, "client"),
            name: name.to_owned(),
        }
    }

    /// Sends a request. Most are sent at once; others wait for room.
    fn begun(
        &self,
        py: Python<'_>,
        (payload, moves): (&Bound<'_, PyAny>, bool),
        options: CallOptions,
        timeout: Option<Duration>,
    ) -> PyResult<service::Call> {
        let client = self.held.get(py)?;
        let mut beginning = begin(client, outgoing(payload, moves)?, options);
        let first = py.detach(|| {
            let polled = beginning
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Ready(begun) => Some(begun),
                Poll::Pending => None,
            }
        });
        let begun = match first {
            Some(begun) => begun,
            None => {
                let what = Awaited::Answer(self.name.clone());
                let begun = async move { Ok(beginning.await) };
                awaited(py, timeout, &what, Box::pin(begun))?
            }
        };
        begun.map_err(|failed| {
            give_back(payload, Some(failed.unsent));
            raised(py, &failed.error)
        })
    }
}

#[pymethods]
impl Client {
    /// Calls the service, and waits for its answer: the service's memory, read-only, without a copy. The payload is as for
    /// `Sender.send`. A time limit travels along: no worker takes a request whose time is over.
    ///
    /// ServiceFailed: the service answered with an error of its own. PeerDied: its process died, or let the request go.
    /// PeerGone: it has ended. TimedOut: after `timeout` seconds, and the call is cancelled.
    #[pyo3(signature = (payload, *, timeout=None, method=Number::of(0), r#move=false), text_signature = "($self, payload, *, timeout=None, method=0, move=False)")]
    fn call(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        method: Number,
        r#move: bool,
    ) -> PyResult<Buffer> {
        let (begun, timeout) = (Instant::now(), limit(timeout)?);
        let mut call =
            Some(self.begun(py, (payload, r#move), options(method, timeout)?, timeout)?);
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        answer(py, left, &self.name, &mut call)
    }

    /// Calls like `call`, and awaits the answer. A task that is cancelled cancels its call. The payload is shared.
    #[pyo3(signature = (payload, *, method=Number::of(0)), text_signature = "($self, payload, *, method=0)")]
    fn call_async<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        method: Number,
    ) -> PyResult<Bound<'py, PyAny>> {
        let beginning = begin(
            self.held.get(py)?,
            cargo_of(payload)?,
            options(method, None)?,
        );
        let answered = async move {
            let call = beginning.await.map_err(|failed| failed.error)?;
            let answer = call.wait_async().await;
            let made: Made = Box::new(|py| match answer {
                Ok(message) => Ok(Bound::new(py, buffer(message))?.into_any()),
                Err(failed) => Err(without_result(py, failed)),
            });
            Ok(made)
        };
        Pending::awaited(py, Box::pin(answered), None)
    }

    /// Sends a request, and does not wait for its answer: `Call.wait` does. Several calls may be in flight. With `streams` the
    /// call carries any number of items either way before its answer: `Call.send`, `Call.recv`.
    #[pyo3(signature = (payload, *, timeout=None, method=Number::of(0), r#move=false, streams=false), text_signature = "($self, payload, *, timeout=None, method=0, move=False, streams=False)")]
    fn begin(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        method: Number,
        r#move: bool,
        streams: bool,
    ) -> PyResult<Call> {
        let limit = limit(timeout)?;
        let mut options = options(method, limit)?;
        if streams {
            options = options.streams();
        }
        let call = self.begun(py, (payload, r#move), options, limit)?;
        Ok(Call {
            held: Slot::new(Arc::new(call), "call"),
            name: self.name.clone(),
        })
    }

    /// A writable buffer for a request, which no process but the service can read. Waits for memory that the service still holds,
    /// at most `timeout` seconds.
    #[pyo3(signature = (nbytes, *, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: Number, timeout: Option<f64>) -> PyResult<Buffer> {
        self.held.fork_epoch.check(py)?;
        let bytes = nbytes.named("nbytes")?;
        let got = wait(py, limit(timeout)?, By::Time, |Turn { slice, .. }| {
            let client = self.held.lock().clone();
            let got = client.map(|client| client.alloc_timeout(bytes, slice));
            got.transpose().map(Some)
        })?;
        got.map(Buffer::own).ok_or_else(|| closed("client"))
    }

    /// Processes that are connected and serve the name. Looks for further ones of a shared name.
    #[getter]
    fn workers(&self, py: Python<'_>) -> PyResult<usize> {
        let client = self.held.get(py)?;
        Ok(py.detach(|| client.workers()))
    }

    /// Calls in flight, those included that were cancelled and whose answer has still to come.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.held.get(py)?.in_flight())
    }
}

holds!(Client, "service", "Closes it. The end of a `with` does.");

/// Waits for the answer of a call, which stays where it is if there is none in time.
fn answer(
    py: Python<'_>,
    timeout: Option<Duration>,
    name: &str,
    call: &mut Option<service::Call>,
) -> PyResult<Buffer> {
    let begun = Instant::now();
    let answered = wait(py, timeout, By::Time, |Turn { slice, .. }| {
        let Some(waiting) = call.take() else {
            return Ok(None);
        };
        match waiting.wait_until(Instant::now() + slice) {
            Ok(answered) => Ok(Some(answered)),
            Err(waiting) => {
                *call = Some(waiting);
                Err(TimedOut::since(begun, Awaited::Answer(name.to_owned())).into())
            }
        }
    })?;
    answered
        .map(buffer)
        .map_err(|failed| without_result(py, failed))
}

impl Call {
    fn streams(&self) -> Streams<'_, Arc<service::Call>> {
        Streams {
            end: &self.held,
            awaited: Awaited::Answer(self.name.clone()),
        }
    }
}

#[pymethods]
impl Call {
    /// Waits for the answer, as `Client.call` does. After TimedOut it can be waited for again. Once. Items that the service sent
    /// and that were not taken are let go.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        let limit = limit(timeout)?;
        let mut call = Some(sole(py, &self.held)?.ok_or_else(|| closed("call"))?);
        let answered = answer(py, limit, &self.name, &mut call);
        *self.held.lock() = call.map(Arc::new);
        answered
    }

    /// Awaits the answer. A task that is cancelled cancels the call.
    fn wait_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let call = sole(py, &self.held)?.ok_or_else(|| closed("call"))?;
        let answered = async move {
            let answer = call.wait_async().await;
            let made: Made = Box::new(|py| match answer {
                Ok(message) => Ok(Bound::new(py, buffer(message))?.into_any()),
                Err(failed) => Err(without_result(py, failed)),
            });
            Ok(made)
        };
        Pending::awaited(py, Box::pin(answered), None)
    }

    /// Says that no further item comes: the service's `Request.recv` gives None.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let call = self.held.get(py)?;
        py.detach(|| call.finish());
        Ok(())
    }
}

streams! {
    Call,
    /// Sends an item of a call with streams, as `Sender.send` takes them. Waits until the service has taken enough of the earlier
    /// ones. TimedOut after `timeout` seconds; a buffer that was to be moved is closed then.
    send,
    /// The next item that the service sends; None: the call is over, and `wait` says how. TimedOut after `timeout` seconds.
    recv,
    /// Ends when the call is over.
    next
}

holds!(
    Call,
    "service",
    "Cancels it, unless its answer was taken. The end of a `with` does."
);
