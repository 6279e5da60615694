//! `tranship.Subscriber`.

use crate::buffer::{Buffer, Origin};
use crate::errors::OrRaise as _;
use crate::receiver::end_or;
use crate::single::{Single, awaits, made};
use crate::slot::{aio, holds, iterates};
use crate::stat::put;
use crate::wait::limit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tranship::topic::{self, SubscriberOptions, Topics as _};
use tranship::{Error, Message};

/// The reading end of a topic. Iterating ends when the publisher has ended the topic. If the publisher died, PeerDied
/// is raised. A later `recv` waits for another publisher of the name.
///
/// >>> import tranship
/// >>> with tranship.embedded() as domain, domain.subscribe("camera") as video:
/// ...     video.try_recv() is None, video.missed  # no publisher is there
/// (True, 0)
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Subscriber {
    held: Single<topic::Subscriber, Result<Came, Error>>,
    /// The topic's name.
    #[pyo3(get)]
    name: String,
}

/// A message, and the process that published it.
type Came = (Message, Option<u32>);

fn taken(subscriber: &mut topic::Subscriber) -> Result<Option<Came>, Error> {
    let message = subscriber.try_recv()?;
    Ok(message.map(|message| (message, pid(subscriber))))
}

fn pid(subscriber: &topic::Subscriber) -> Option<u32> {
    subscriber.source().map(|(_, pid)| pid)
}

fn buffer((message, sender_pid): Came) -> Buffer {
    let origin = Origin::published(&message.body, sender_pid);
    Buffer::received(message, origin)
}

impl Subscriber {
    pub(crate) fn new(
        py: Python<'_>,
        domain: &tranship::Domain,
        name: &str,
        options: SubscriberOptions,
    ) -> PyResult<Subscriber> {
        let subscriber = made(py, || domain.subscribe_with(name, options))?;
        Ok(Subscriber::of(subscriber, name))
    }

    /// Returns the object of an end.
    pub(crate) fn of(subscriber: topic::Subscriber, name: &str) -> Subscriber {
        Subscriber {
            held: Single::new(subscriber, "subscriber"),
            name: name.to_owned(),
        }
    }

    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        let timeout = limit(timeout)?;
        if let Some(came) = self.held.with(py, taken)?.or_raise(py)? {
            return Ok(buffer(came));
        }
        let came = self.held.wait(py, timeout, |subscriber, slice| {
            let message = subscriber.recv_timeout(slice)?;
            Ok((message, pid(subscriber)))
        })?;
        Ok(buffer(came))
    }
}

#[pymethods]
impl Subscriber {
    /// The next message: the publisher's memory, read-only, without a copy. Waits for a publisher, too. A message that
    /// was overwritten before it was taken is counted in `missed`.
    ///
    /// PeerGone when the publisher has ended the topic, PeerDied when it died. Each is raised once: the next call waits
    /// for another publisher. `Limit` (SystemFailed) when this subscriber keeps as many buffers as it may.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        self.receive(py, timeout)
    }

    /// The next message, if it is there. The call also joins the topic.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let came = self.held.with(py, taken)?.or_raise(py)?;
        Ok(came.map(buffer))
    }

    /// Awaits the next message. One task at a time.
    fn recv_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "single", (slf, "subscriber"))
    }

    /// Looks at the message that a task awaits.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let came = self.held.look(py, |subscriber| {
            Box::pin(async move {
                let message = subscriber.recv_async().await?;
                Ok((message, pid(subscriber)))
            })
        })?;
        Ok(came.transpose().or_raise(py)?.map(buffer))
    }

    /// Ends when the publisher has ended the topic. That it died is an error.
    fn __next__(&self, py: Python<'_>) -> PyResult<Buffer> {
        self.receive(py, None).map_err(|error| end_or(py, error))
    }

    fn __anext__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "following", (slf.call_method0("recv_async")?,))
    }

    /// Messages that were overwritten before they were taken, or skipped by `latest`.
    #[getter]
    fn missed(&self, py: Python<'_>) -> PyResult<u64> {
        self.held.with(py, |subscriber| subscriber.missed())
    }

    /// The subscriber's status: the publisher, whether it has taken this subscriber in, the missed messages, and the
    /// held buffers.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.held.with(py, |subscriber| subscriber.status())?;
        let all = PyDict::new(py);
        let publisher = status.publisher;
        all.set_item("publisher", publisher.map(|(domain, _)| domain.0))?;
        all.set_item("publisher_pid", publisher.map(|(_, pid)| pid))?;
        put!(all, status: joined, reliable, missed, held);
        Ok(all)
    }
}

awaits!(Subscriber);
iterates!(Subscriber);
holds!(Subscriber, "topic", "Closes it. The end of a `with` does.");
