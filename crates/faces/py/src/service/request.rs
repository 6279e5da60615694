//! `tranship.Request`: a request that a worker has taken.

use super::{Streams, sole, streams};
use crate::buffer::{Buffer, Carried, Origin};
use crate::errors::{OrRaise as _, raised};
use crate::number::Number;
use crate::sender::{give_back, outgoing};
use crate::slot::{Slot, closes};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Instant;
use tranship::error::Awaited;
use tranship::{Body, Message, SendError, service};

/// A request that a worker has taken. It ends by `reply`, by `fail`, or by being let go, which its client is told.
///
/// Leaving its `with` lets it go if it was not answered.
///
#[doc = include_str!("example.txt")]
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Request {
    held: Slot<Arc<service::Request>>,
    carried: Carried,
    /// The number of the called method; 0 where the service has none.
    #[pyo3(get)]
    method: u8,
    /// The client's domain.
    #[pyo3(get)]
    client: u32,
    /// The client's process.
    #[pyo3(get)]
    client_pid: u32,
    /// The client's user.
    #[pyo3(get)]
    client_uid: u32,
    deadline: Option<Instant>,
}

impl Request {
    pub(super) fn new(mut request: service::Request) -> Request {
        let body = request.take_body();
        let client = request.client();
        Request {
            method: request.method(),
            client: client.peer.0,
            client_pid: client.peer_pid,
            client_uid: client.peer_uid,
            deadline: request.deadline(),
            carried: Carried::new(Message { word: 0, body }),
            held: Slot::new(Arc::new(request), "request"),
        }
    }

    fn end(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        moves: bool,
        end: fn(service::Request, Body) -> Result<(), SendError<Body>>,
    ) -> PyResult<()> {
        self.held.fork_epoch.check(py)?;
        let body = outgoing(payload, moves)?;
        let request = match sole(py, &self.held) {
            Ok(Some(request)) => request,
            taken => {
                give_back(payload, Some(body));
                taken?;
                return Err(over());
            }
        };
        let sent = py.detach(|| end(request, body));
        sent.map_err(|failed| {
            give_back(payload, Some(failed.unsent));
            raised(py, &failed.error)
        })
    }

    fn streams(&self) -> Streams<'_, Arc<service::Request>> {
        Streams {
            end: &self.held,
            awaited: Awaited::Answer(format!("process {}", self.client_pid)),
        }
    }
}

fn over() -> PyErr {
    PyValueError::new_err("the request was answered, or let go")
}

#[pymethods]
impl Request {
    /// Payload that the client sent.
    #[getter]
    fn payload(&self, py: Python<'_>) -> PyResult<Py<Buffer>> {
        self.carried.get(py, |_| Origin::default())
    }

    /// A writable buffer for the answer, which no process but the client can read. Waits at most 5 s for a client that keeps
    /// its earlier answers; then OutOfMemory.
    fn alloc(&self, py: Python<'_>, nbytes: Number) -> PyResult<Buffer> {
        let (request, bytes) = (self.held.get(py)?, nbytes.named("nbytes")?);
        py.detach(|| request.alloc(bytes))
            .map(Buffer::own)
            .or_raise(py)
    }

    /// Answers with a result: a buffer, an array that lies in one, a list of such, or up to `INLINE_BYTES` bytes, as
    /// `Sender.send` takes them. Waits at most 5 s for a client that has to agree to a pool. The request is over then, also
    /// if this fails.
    #[pyo3(signature = (payload, *, r#move=false), text_signature = "($self, payload, *, move=False)")]
    fn reply(&self, py: Python<'_>, payload: &Bound<'_, PyAny>, r#move: bool) -> PyResult<()> {
        self.end(py, payload, r#move, service::Request::reply)
    }

    /// Answers with an error of the service's own: the client's call raises ServiceFailed, which has this payload.
    #[pyo3(signature = (payload, *, r#move=false), text_signature = "($self, payload, *, move=False)")]
    fn fail(&self, py: Python<'_>, payload: &Bound<'_, PyAny>, r#move: bool) -> PyResult<()> {
        self.end(py, payload, r#move, service::Request::fail)
    }

    /// Whether nobody waits for the answer any more: the call was cancelled, its time is over, or its client is gone.
    #[getter]
    fn is_cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        self.held.fork_epoch.check(py)?;
        let request = self.held.lock().clone();
        Ok(py.detach(|| request.is_none_or(|request| request.is_cancelled())))
    }

    /// Seconds for which the client still waits; None: without end.
    #[getter]
    fn left(&self) -> Option<f64> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        self.deadline.map(|at| left(at).as_secs_f64())
    }

    /// Lets it go, if it was not answered: its client's call raises PeerDied. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        self.held.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<tranship.Request of process {}>", self.client_pid)
    }
}

streams! {
    Request,
    /// Sends an item of a call with streams to the client, as `Sender.send` takes them. Waits until the client has taken enough
    /// of the earlier ones. PeerGone: nobody waits for the call any more. TimedOut after `timeout` seconds; a buffer that was to
    /// be moved is closed then.
    send,
    /// The next item of a call with streams; None: the client has finished. Waits, and fails, as `send` does.
    recv,
    /// Ends when the client has finished.
    next
}
closes!(Request);
