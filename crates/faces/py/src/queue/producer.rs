//! `tranship.Producer`.

use crate::buffer::{Buffer, Origin};
use crate::driven::Under;
use crate::errors::OrRaise as _;
use crate::number::Number;
use crate::sender::cargo_of;
use crate::single::{Single, again, awaits, made};
use crate::slot::{aio, holds};
use crate::stat::put;
use crate::wait::limit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tranship::queue::{self, Cause, QueueOptions, Queues as _};
use tranship::{Body, Error};

/// A writing end of a queue: each item goes to one consumer.
///
/// A producer that rarely sends calls `tend`, which takes consumers in and gives back the items of dead consumers. When
/// the producer is closed, only consumers that have joined can still take its waiting items: `wait_done` waits for
/// them.
///
#[doc = include_str!("example.txt")]
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Producer {
    held: Single<queue::Producer, Result<(), Error>>,
    /// The queue's name.
    #[pyo3(get)]
    name: String,
}

impl Producer {
    pub(crate) fn new(
        py: Python<'_>,
        domain: &tranship::Domain,
        name: &str,
        options: QueueOptions,
    ) -> PyResult<Producer> {
        let producer = made(py, || domain.produce_with(name, options))?;
        Ok(Producer::of(producer, name))
    }

    /// Returns the object of an end.
    pub(crate) fn of(producer: queue::Producer, name: &str) -> Producer {
        Producer {
            held: Single::new(producer, "producer"),
            name: name.to_owned(),
        }
    }
}

/// Begins to send; each time with another handle of the contents.
fn sending(
    body: Body,
    word: u64,
) -> impl Fn(&'static mut queue::Producer) -> Under<Result<(), Error>> + Send + Sync {
    move |producer| {
        let body = again(&body);
        Box::pin(async move {
            let sent = producer.send_async((body?, word)).await;
            sent.map_err(|failed| failed.error)
        })
    }
}

#[pymethods]
impl Producer {
    /// A writable buffer of the producer's own pool, with the bytes that the memory held before. All consumers can read
    /// that pool, and its buffers can be sent over this queue only. Waits for memory that items and consumers hold, at
    /// most `timeout` seconds.
    #[pyo3(signature = (nbytes, *, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: Number, timeout: Option<f64>) -> PyResult<Buffer> {
        let bytes = nbytes.named("nbytes")?;
        let buf = self.held.wait(py, limit(timeout)?, |producer, slice| {
            producer.alloc_timeout(bytes, slice)
        })?;
        Ok(Buffer::own(buf))
    }

    /// Allocates like `alloc`, and awaits memory.
    #[pyo3(signature = (nbytes))]
    fn alloc_async<'py>(slf: Bound<'py, Self>, nbytes: Number) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "alloc", (slf, nbytes.named::<usize>("nbytes")?))
    }

    /// Puts a buffer of `alloc`, an array in such a buffer, or a list of these, into the queue by reference: all are
    /// read-only from then on. Other objects with bytes go in the item itself, up to `INLINE_BYTES` bytes.
    ///
    /// Waits for room, at most `timeout` seconds: then Full or TimedOut names the consumers.
    #[pyo3(signature = (payload, word=Number::of(0), *, timeout=None), text_signature = "($self, payload, word=0, *, timeout=None)")]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: Number,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.held.fork_epoch().check(py)?;
        let (word, limit) = (word.named("word")?, limit(timeout)?);
        let mut body = Some(cargo_of(payload)?);
        self.held.wait(py, limit, |producer, slice| {
            let Some(unsent) = body.take() else {
                return Ok(());
            };
            producer
                .send_timeout((unsent, word), slice)
                .map_err(|failed| {
                    body = Some(failed.unsent.0);
                    failed.error
                })
        })
    }

    /// Sends like `send`, and awaits room.
    #[pyo3(signature = (payload, word=Number::of(0)), text_signature = "($self, payload, word=0)")]
    fn send_async<'py>(
        slf: Bound<'py, Self>,
        payload: Bound<'py, PyAny>,
        word: Number,
    ) -> PyResult<Bound<'py, PyAny>> {
        aio(
            slf.py(),
            "single",
            (slf, "producer", payload, word.named::<u64>("word")?),
        )
    }

    /// Looks whether an item that a task sends is in the queue.
    fn _look(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: u64,
    ) -> PyResult<Option<bool>> {
        let sent = self.held.look(py, sending(cargo_of(payload)?, word))?;
        Ok(sent.transpose().or_raise(py)?.map(|()| true))
    }

    /// Takes new consumers in, and gives back the items that ended consumers had not acknowledged. The call does not
    /// block.
    fn tend(&self, py: Python<'_>) -> PyResult<()> {
        self.held.detached(py, queue::Producer::tend)?.or_raise(py)
    }

    /// Waits until at least `consumers` of them have joined. TimedOut after `timeout` seconds.
    #[pyo3(signature = (consumers, timeout=None))]
    fn wait_for(&self, py: Python<'_>, consumers: Number, timeout: Option<f64>) -> PyResult<()> {
        let consumers = consumers.named("consumers")?;
        self.held.wait(py, limit(timeout)?, |producer, slice| {
            producer.wait_for(consumers, slice)
        })
    }

    /// Waits until all items are taken, and acknowledged, lost or rejected. TimedOut after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait_done(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.held.wait(py, limit(timeout)?, |producer, slice| {
            producer.wait_done(slice)
        })
    }

    /// An item that was lost with its consumer ("ended", with `report_lost`) or that a consumer has rejected ("rejected"), as
    /// (buffer, cause, consumer's process); None if there is none.
    fn take_lost(&self, py: Python<'_>) -> PyResult<Option<(Buffer, &'static str, Option<u32>)>> {
        let lost = self.held.detached(py, queue::Producer::take_lost)?;
        Ok(lost.map(|lost| {
            let cause = match lost.cause {
                Cause::Ended => "ended",
                Cause::Rejected => "rejected",
            };
            let buffer = Buffer::received(lost.message, Origin::default());
            (buffer, cause, lost.consumer.map(|(_, pid)| pid))
        }))
    }

    /// Consumers that have joined and not left.
    #[getter]
    fn consumers(&self, py: Python<'_>) -> PyResult<usize> {
        self.held.with(py, |producer| producer.consumers())
    }

    /// The producer's status: items that were sent, that wait and that consumers have, and what each consumer keeps.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.held.with(py, |producer| producer.status())?;
        let all = PyDict::new(py);
        put!(all, status: sent, waiting, open, redelivered, lost, rejected, expelled, buffers);
        let consumers = status.consumers.iter().map(|seen| {
            let one = PyDict::new(py);
            one.set_item("domain", seen.domain.0)?;
            put!(one, seen: pid, uid, open, kept, more, left);
            Ok(one)
        });
        let consumers: PyResult<Vec<_>> = consumers.collect();
        all.set_item("consumers", consumers?)?;
        Ok(all)
    }
}

awaits!(Producer);
holds!(Producer, "queue", "Closes it. The end of a `with` does.");
