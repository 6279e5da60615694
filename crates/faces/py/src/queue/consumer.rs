//! `tranship.Consumer`.

use super::Item;
use crate::errors::OrRaise as _;
use crate::single::{Single, awaits, made};
use crate::slot::{aio, holds, iterates};
use crate::stat::put;
use crate::wait::limit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tranship::Error;
use tranship::queue::{self, ConsumerOptions, Queues as _};

/// A reading end of a queue. It takes items of all producers. No other consumer gets an item that it has taken.
/// Iterating never ends.
///
/// >>> import tranship
/// >>> with tranship.embedded() as domain, domain.consume("jobs") as jobs:
/// ...     jobs.try_recv() is None  # no producer is there
/// True
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Consumer {
    held: Single<queue::Consumer, Result<queue::Item, Error>>,
    /// The queue's name.
    #[pyo3(get)]
    name: String,
}

impl Consumer {
    pub(crate) fn new(
        py: Python<'_>,
        domain: &tranship::Domain,
        name: &str,
        options: ConsumerOptions,
    ) -> PyResult<Consumer> {
        let consumer = made(py, || domain.consume_with(name, options))?;
        Ok(Consumer::of(consumer, name))
    }

    /// Returns the object of an end.
    pub(crate) fn of(consumer: queue::Consumer, name: &str) -> Consumer {
        Consumer {
            held: Single::new(consumer, "consumer"),
            name: name.to_owned(),
        }
    }
}

#[pymethods]
impl Consumer {
    /// The next item. Waits for a producer, too, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Item> {
        let timeout = limit(timeout)?;
        if let Some(item) = self
            .held
            .with(py, queue::Consumer::try_recv)?
            .or_raise(py)?
        {
            return Ok(Item::new(item));
        }
        let item = self.held.wait(py, timeout, queue::Consumer::recv_timeout)?;
        Ok(Item::new(item))
    }

    /// The next item, if there is one. The call also joins the queue.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        let item = self.held.with(py, queue::Consumer::try_recv)?;
        Ok(item.or_raise(py)?.map(Item::new))
    }

    /// Awaits the next item. One task at a time.
    fn recv_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "single", (slf, "consumer"))
    }

    /// Looks at the item that a task awaits.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        let item = self
            .held
            .look(py, |consumer| Box::pin(consumer.recv_async()))?;
        Ok(item.transpose().or_raise(py)?.map(Item::new))
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Item> {
        self.recv(py, None)
    }

    fn __anext__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Consumer::recv_async(slf)
    }

    /// The producers that this consumer knows: the domain and process of each, whether it has taken this consumer in, and what
    /// this consumer has of it.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.held.with(py, |consumer| consumer.status())?;
        let producers = status.producers.iter().map(|seen| {
            let one = PyDict::new(py);
            one.set_item("domain", seen.domain.0)?;
            put!(one, seen: pid, joined, open, held);
            Ok(one)
        });
        let producers: PyResult<Vec<_>> = producers.collect();
        let all = PyDict::new(py);
        all.set_item("producers", producers?)?;
        Ok(all)
    }
}

awaits!(Consumer);
iterates!(Consumer);
holds!(
    Consumer,
    "queue",
    "Closes it. The end of a `with` does. Items that were not acknowledged go back to the queue."
);
