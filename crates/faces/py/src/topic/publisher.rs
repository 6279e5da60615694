//! `tranship.Publisher`.

use crate::buffer::Buffer;
use crate::driven::Under;
use crate::errors::OrRaise as _;
use crate::number::Number;
use crate::sender::cargo_of;
use crate::single::{Single, again, awaits, made};
use crate::slot::{aio, holds};
use crate::stat::put;
use crate::wait::limit;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::time::Duration;
use tranship::topic::{self, PublisherStatus, TopicOptions, Topics as _, WhenBehind};
use tranship::{Body, Error, Outcome};

/// The writing end of a topic. Its subscribers come and go by themselves.
///
/// The helper thread of its domain tends an idle publisher. Closing it, or the end of its `with` block, ends the topic.
/// Subscribers can still take the messages in the ring.
///
/// >>> import tranship
/// >>> from concurrent.futures import ThreadPoolExecutor
/// >>> here = tranship.embedded()
/// >>> def views():  # in another process, as a rule
/// ...     with tranship.connect(socket=here.socket_path) as there, there.subscribe("camera") as video:
/// ...         return list(frame.nbytes for frame in video) == list((1024,))
/// >>> viewer = ThreadPoolExecutor().submit(views)
/// >>> with here.publish("camera") as camera:
/// ...     camera.wait_for(1, timeout=60)
/// ...     camera.send(camera.alloc(1024))
/// True
/// >>> viewer.result()
/// True
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Publisher {
    held: Single<topic::Publisher, Result<Outcome, Error>>,
    /// The topic's name.
    #[pyo3(get)]
    name: String,
}

/// The action of a publish when a reliable subscriber is behind, as Python says it: a word, or seconds to wait.
#[derive(FromPyObject)]
pub(crate) enum Behind {
    Word(String),
    Seconds(f64),
}

impl Behind {
    pub(crate) fn parse(&self) -> PyResult<WhenBehind> {
        match self {
            Behind::Word(word) if word == "overwrite" => Ok(WhenBehind::Overwrite),
            Behind::Word(word) if word == "drop-new" => Ok(WhenBehind::DropNew),
            Behind::Word(word) => Err(PyValueError::new_err(format!(
                "when_behind is {word:?}, allowed are \"overwrite\", \"drop-new\", and seconds to wait"
            ))),
            Behind::Seconds(seconds) => {
                let time = limit(Some(*seconds))?.unwrap_or(Duration::MAX);
                Ok(WhenBehind::Wait(time))
            }
        }
    }
}

impl Publisher {
    pub(crate) fn new(
        py: Python<'_>,
        domain: &tranship::Domain,
        name: &str,
        options: TopicOptions,
    ) -> PyResult<Publisher> {
        let publisher = made(py, || domain.publish_with(name, options))?;
        Ok(Publisher::of(publisher, name))
    }

    /// Returns the object of an end.
    pub(crate) fn of(publisher: topic::Publisher, name: &str) -> Publisher {
        Publisher {
            held: Single::new(publisher, "publisher"),
            name: name.to_owned(),
        }
    }
}

/// Begins to publish; each time with another handle of the contents.
fn publishing(
    body: Body,
    word: u64,
) -> impl Fn(&'static mut topic::Publisher) -> Under<Result<Outcome, Error>> + Send + Sync {
    move |publisher| {
        let body = again(&body);
        Box::pin(async move {
            let sent = publisher.send_async((body?, word)).await;
            sent.map_err(|failed| failed.error)
        })
    }
}

#[pymethods]
impl Publisher {
    /// A writable buffer of the topic's own pool, with the bytes that the memory held before. All subscribers can read
    /// that pool, and its buffers can be sent over this topic only. If no memory is free, the oldest messages are
    /// withdrawn. Waits for memory that subscribers hold, at most `timeout` seconds; then OutOfMemory names the
    /// holders.
    #[pyo3(signature = (nbytes, *, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: Number, timeout: Option<f64>) -> PyResult<Buffer> {
        let bytes = nbytes.named("nbytes")?;
        let buf = self.held.wait(py, limit(timeout)?, |publisher, slice| {
            publisher.alloc_timeout(bytes, slice)
        })?;
        Ok(Buffer::own(buf))
    }

    /// Allocates like `alloc`, and awaits memory.
    #[pyo3(signature = (nbytes))]
    fn alloc_async<'py>(slf: Bound<'py, Self>, nbytes: Number) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "alloc", (slf, nbytes.named::<usize>("nbytes")?))
    }

    /// Publishes a buffer of `alloc`, an array that lies in one, or a list of such, by reference: all are read-only from then
    /// on. Other objects with bytes go in the message itself, up to `INLINE_BYTES` bytes.
    ///
    /// Waits only for reliable subscribers, as `when_behind` says. True: it was published. False: it was dropped, because
    /// a reliable subscriber was behind ("drop-new"). TimedOut after `timeout` seconds: nothing was published.
    #[pyo3(
        signature = (payload, word=Number::of(0), *, timeout=None),
        text_signature = "($self, payload, word=0, *, timeout=None)"
    )]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: Number,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        self.held.fork_epoch().check(py)?;
        let publishing = publishing(cargo_of(payload)?, word.named("word")?);
        let sent = self.held.drive(py, limit(timeout)?, publishing)?;
        Ok(sent.or_raise(py)? == Outcome::Sent)
    }

    /// Publishes like `send`, and awaits reliable subscribers. One task at a time.
    #[pyo3(signature = (payload, word=Number::of(0)), text_signature = "($self, payload, word=0)")]
    fn send_async<'py>(
        slf: Bound<'py, Self>,
        payload: Bound<'py, PyAny>,
        word: Number,
    ) -> PyResult<Bound<'py, PyAny>> {
        aio(
            slf.py(),
            "single",
            (slf, "publisher", payload, word.named::<u64>("word")?),
        )
    }

    /// Looks whether a message that a task publishes is on its way.
    fn _look(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: u64,
    ) -> PyResult<Option<bool>> {
        let publishing = publishing(cargo_of(payload)?, word);
        let Some(sent) = self.held.look(py, publishing)? else {
            return Ok(None);
        };
        Ok(Some(sent.or_raise(py)? == Outcome::Sent))
    }

    /// Takes new subscribers in, and removes those that are gone. `send` does this from time to time. An idle publisher
    /// calls `tend`, for example when the domain's descriptor is readable. The call does not block.
    fn tend(&self, py: Python<'_>) -> PyResult<()> {
        self.held.detached(py, topic::Publisher::tend)?.or_raise(py)
    }

    /// Waits until at least `subscribers` of them have joined. TimedOut after `timeout` seconds.
    #[pyo3(signature = (subscribers, timeout=None))]
    fn wait_for(&self, py: Python<'_>, subscribers: Number, timeout: Option<f64>) -> PyResult<()> {
        let subscribers = subscribers.named("subscribers")?;
        self.held.wait(py, limit(timeout)?, |publisher, slice| {
            publisher.wait_for(subscribers, slice)
        })
    }

    /// Subscribers that have joined and not left.
    #[getter]
    fn subscribers(&self, py: Python<'_>) -> PyResult<usize> {
        self.held.with(py, |publisher| publisher.subscribers())
    }

    /// The publisher's status: what was published, and what each subscriber holds and has not yet taken.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.held.with(py, |publisher| publisher.status())?;
        dict(py, &status)
    }
}

awaits!(Publisher);
holds!(Publisher, "topic", "Closes it. The end of a `with` does.");

/// A publisher's figures, as a dictionary.
fn dict<'py>(py: Python<'py>, status: &PublisherStatus) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    put!(all, status: published, dropped, demoted, expelled, buffers);
    let subscribers = status.subscribers.iter().map(|seen| {
        let one = PyDict::new(py);
        one.set_item("domain", seen.domain.0)?;
        put!(one, seen: pid, uid, reliable, behind, kept, more, left);
        Ok(one)
    });
    let subscribers: PyResult<Vec<_>> = subscribers.collect();
    all.set_item("subscribers", PyList::new(py, subscribers?)?)?;
    Ok(all)
}
