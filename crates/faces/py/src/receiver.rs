//! `tranship.Receiver`.

use crate::buffer::{Buffer, HANDED_BACK, Origin, RELEASED};
use crate::driven::{Doorbell, Driven, Kept};
use crate::errors::{OrRaise as _, closed};
use crate::fork::{ForkEpoch, let_go};
use crate::number::Number;
use crate::sender::bytes_of;
use crate::slot::{aio, closes, iterates};
use crate::wait::{By, Waits, limit, wait};
use pyo3::exceptions::{PyOSError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tranship::{
    Body, ChannelOptions, Error, ErrorKind, Message, PollItem, Released, SendError, Trust, poll,
};

/// Trust levels of pools, as they were when the pools were offered, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<HashMap<u32, Trust>>>);

impl Told {
    /// Options with which all pools are taken, and written down.
    pub(crate) fn options(&self, options: ChannelOptions) -> ChannelOptions {
        let told = self.clone();
        options.accept_pools(move |offer| {
            let mut trusts = told.0.lock().unwrap_or_else(PoisonError::into_inner);
            trusts.insert(offer.pool.0, offer.trust);
            true
        })
    }

    fn trust_of(&self, body: &Body) -> Option<Trust> {
        let id = match body {
            Body::Buffer(buf) => buf.id(),
            Body::BufferMut(buf) => buf.id(),
            Body::Aggregate(all) => all.pieces().front()?.id(),
            Body::AggregateMut(all) => all.pieces().front()?.id(),
            Body::Inline(_) | Body::Released(_) => return None,
        };
        let trusts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        trusts.get(&id.pool().0).copied()
    }
}

/// The receiving end of a channel. Iterating ends when the sender has closed its end; PeerDied is raised if the sender
/// died instead.
///
/// >>> import tranship
/// >>> from concurrent.futures import ThreadPoolExecutor
/// >>> here = tranship.embedded()
/// >>> def sends():  # in another process, as a rule
/// ...     with tranship.connect(socket=here.socket_path) as there, there.open("numbers", tranship.Sender) as sender:
/// ...         return sender.send(b"few bytes need no pool", word=7)
/// >>> sender = ThreadPoolExecutor().submit(sends)
/// >>> with here.listen("numbers", tranship.Receiver) as listener, listener.accept(timeout=60) as receiver:
/// ...     list((message.word, bytes(message)) for message in receiver) == list(((7, b"few bytes need no pool"),))
/// True
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Receiver {
    inner: Mutex<Option<Inner>>,
    told: Told,
    /// The other end's domain.
    #[pyo3(get)]
    peer: u32,
    /// The other end's process.
    #[pyo3(get)]
    peer_pid: u32,
    /// The other end's user.
    #[pyo3(get)]
    peer_uid: u32,
    /// The manager's number of the channel.
    #[pyo3(get)]
    channel: u32,
    waits: Waits,
    fork_epoch: ForkEpoch,
}

struct Inner {
    driven: Driven<tranship::Receiver, Result<Message, Error>>,
    /// Doorbell; made when a caller first asks for a descriptor.
    doorbell: Option<Arc<Doorbell>>,
    /// Message that the future had when it was begun.
    stash: Option<Result<Message, Error>>,
}

impl Inner {
    /// Takes the next message, if it is there. With a doorbell, which rings again for the message after it.
    fn take(&mut self) -> Result<Option<Message>, Error> {
        let Some(doorbell) = self.doorbell.clone() else {
            return self.driven.end().try_recv();
        };
        doorbell.hush();
        let taken = match self.stash.take() {
            Some(taken) => taken.map(Some),
            None if self.driven.is_under_way() => self.driven.poll(&doorbell).transpose(),
            None => self.driven.end().try_recv(),
        };
        self.arm();
        taken
    }

    /// Takes what else is there. An error stays until the next call.
    fn take_more(&mut self, into: &mut Vec<Message>, most: usize) {
        if self.doorbell.is_none() {
            let _ = self.driven.end().try_recv_many(into, most);
            return;
        }
        while into.len() < most && self.stash.as_ref().is_none_or(Result::is_ok) {
            match self.take() {
                Ok(Some(message)) => into.push(message),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Makes the doorbell ring from here on when there is something to take.
    fn arm(&mut self) {
        let Some(doorbell) = self.doorbell.clone() else {
            return;
        };
        if self.stash.is_none() && !self.driven.is_under_way() {
            if self.driven.end().is_ready() {
                return doorbell.ring();
            }
            self.driven.begin(|end| Box::pin(end.recv_async()));
            self.stash = self.driven.poll(&doorbell);
        }
        if self.stash.is_some() {
            doorbell.ring();
        }
    }

    /// Returns whether there is something to take.
    fn is_ready(&mut self) -> bool {
        if let Some(doorbell) = self.doorbell.clone() {
            doorbell.hush();
            if self.stash.is_none() && self.driven.is_under_way() {
                self.stash = self.driven.poll(&doorbell);
            }
        }
        self.arm();
        self.stash.is_some() || !self.driven.is_under_way()
    }

    /// Takes a turn of a wait for a message.
    fn turn(&mut self, turn: &crate::wait::Turn<'_>) -> Result<Option<Message>, Error> {
        if let Some(message) = self.take()? {
            return Ok(Some(message));
        }
        let end = self.driven.end();
        let taken = match turn.signals {
            None => end.recv_timeout(turn.slice).map(Some),
            Some(signals) => {
                let mut items = [PollItem::receiver(end), PollItem::readable(signals)];
                let polled = poll(&mut items, Some(turn.slice));
                polled.and_then(|_| end.recv_timeout(Duration::ZERO).map(Some))
            }
        };
        self.arm();
        taken
    }
}

impl Receiver {
    pub(crate) fn new(receiver: tranship::Receiver, told: Told, by: By) -> Receiver {
        let status = receiver.status();
        Receiver {
            peer: status.peer.0,
            peer_pid: status.peer_pid,
            peer_uid: status.peer_uid,
            channel: status.channel.0,
            inner: Mutex::new(Some(Inner {
                driven: Driven::new(receiver),
                doorbell: None,
                stash: None,
            })),
            told,
            waits: Waits::new(by),
            fork_epoch: ForkEpoch::now(),
        }
    }

    /// Closes the receiver. Waiting threads are told first. An awaiting task looks once more, because its doorbell rings.
    fn shut(&self) -> Option<Inner> {
        self.waits.end();
        let inner = self.lock().take();
        if let Some(doorbell) = inner.as_ref().and_then(|inner| inner.doorbell.as_ref()) {
            doorbell.ring();
        }
        inner
    }

    fn doorbell(&self, py: Python<'_>) -> PyResult<Arc<Doorbell>> {
        let doorbell = self.with(py, |inner| match &inner.doorbell {
            Some(doorbell) => Ok(Arc::clone(doorbell)),
            None => {
                let doorbell = Arc::clone(inner.doorbell.insert(Doorbell::new()?));
                inner.arm();
                Ok(doorbell)
            }
        });
        doorbell?.map_err(|error: std::io::Error| PyOSError::new_err(error.to_string()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Inner>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a function on the Rust receiver. If another thread waits in it, the function runs after that thread's turn,
    /// and without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Inner) -> T + Send,
    ) -> PyResult<T> {
        self.fork_epoch.check(py)?;
        if let Ok(mut inner) = self.inner.try_lock() {
            return inner.as_mut().map(what).ok_or_else(|| closed("receiver"));
        }
        let done = py.detach(|| self.lock().as_mut().map(what));
        done.ok_or_else(|| closed("receiver"))
    }

    fn buffer(&self, message: Message) -> Buffer {
        let trust = self.told.trust_of(&message.body);
        let sender_pid = Some(self.peer_pid);
        Buffer::received(message, Origin { trust, sender_pid })
    }

    /// Sends something back to the sender, and leaves it where it is if that fails. At once, or as soon as there is
    /// room.
    fn hand_back<T: Send>(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
        what: &mut Option<T>,
        go: impl Fn(&mut tranship::Receiver, T, Duration) -> Result<(), SendError<T>> + Sync,
    ) -> PyResult<()> {
        let mut once = |inner: &mut Inner, slice| {
            let Some(unsent) = what.take() else {
                return Ok(());
            };
            let done = go(inner.driven.end(), unsent, slice);
            inner.arm();
            done.map_err(|failed| {
                *what = Some(failed.unsent);
                failed.error
            })
        };
        match self.with(py, |inner| once(inner, Duration::ZERO))? {
            Err(error)
                if limit != Some(Duration::ZERO)
                    && matches!(error.kind(), ErrorKind::Full | ErrorKind::PoolPending) => {}
            done => return done.or_raise(py),
        }
        let done = wait(py, limit, By::Time, |turn| {
            if self.waits.are_over() {
                return Ok(Some(false));
            }
            match self.lock().as_mut() {
                None => Ok(Some(false)), // closed by another thread
                Some(inner) => once(inner, turn.slice).map(|()| Some(true)),
            }
        })?;
        done.then_some(()).ok_or_else(|| closed("receiver"))
    }

    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        self.fork_epoch.check(py)?;
        let timeout = limit(timeout)?;
        if let Some(message) = self.with(py, Inner::take)?.or_raise(py)? {
            return Ok(self.buffer(message));
        }
        let taken = wait(py, timeout, self.waits.by, |turn| {
            if self.waits.are_over() {
                return Ok(Some(None));
            }
            match self.lock().as_mut() {
                None => Ok(Some(None)), // closed by another thread
                Some(inner) => Ok(inner.turn(&turn)?.map(Some)),
            }
        });
        let message = taken?.ok_or_else(|| closed("receiver"))?;
        Ok(self.buffer(message))
    }
}

#[pymethods]
impl Receiver {
    /// The next message: the sender's memory, read-only, without a copy.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        self.receive(py, timeout)
    }

    /// The next message, if there is one.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let taken = self.with(py, Inner::take)?.or_raise(py)?;
        Ok(taken.map(|message| self.buffer(message)))
    }

    /// All messages that are there, at most `most`. Waits for the first one as `recv` does.
    #[pyo3(signature = (most=Number::of(256), timeout=None), text_signature = "($self, most=256, timeout=None)")]
    fn recv_many(
        &self,
        py: Python<'_>,
        most: Number,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Buffer>> {
        let most: usize = most.named("most")?;
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut all = vec![self.receive(py, timeout)?];
        let mut more = Vec::new();
        self.with(py, |inner| inner.take_more(&mut more, most - 1))?;
        all.extend(more.into_iter().map(|message| self.buffer(message)));
        Ok(all)
    }

    /// Awaits the next message. One task at a time.
    fn recv_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "recv", (slf,))
    }

    /// Receives an object that `send_object` sent. Unpickling runs code of the sender's choice: use it only with
    /// senders that may run code here.
    #[pyo3(signature = (timeout=None))]
    fn recv_object<'py>(
        slf: Bound<'py, Self>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let buffer = slf.get().receive(py, timeout)?;
        let objects = py.import("tranship._objects")?;
        objects.call_method1("unpacked", (buffer,))
    }

    /// Receives an array that `send_array` sent: the sender's memory, read-only, with its type and shape. It runs no
    /// code of the sender's choice.
    #[pyo3(signature = (timeout=None))]
    fn recv_array<'py>(slf: Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let buffer = slf.get().receive(py, timeout)?;
        let objects = py.import("tranship._objects")?;
        objects.call_method1("array", (buffer,))
    }

    /// Receives like `recv_array`, and awaits it.
    fn recv_array_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "recv_array", (slf,))
    }

    /// Receives like `recv_object`, and awaits it.
    fn recv_object_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "recv_object", (slf,))
    }

    /// Ends when the sender has closed its end. That it died is an error.
    fn __next__(&self, py: Python<'_>) -> PyResult<Buffer> {
        self.receive(py, None).map_err(|error| end_or(py, error))
    }

    fn __anext__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "following", (slf.call_method0("recv_async")?,))
    }

    /// Messages that this end has skipped because newer messages were there and the sender uses "drop-oldest".
    #[getter]
    fn skipped(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |inner| inner.driven.end().status().dropped)
    }

    /// A descriptor for event loops: readable when `try_recv` has something to return.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.doorbell(py)?.fd())
    }

    fn _doorbell(&self, py: Python<'_>) -> PyResult<Kept> {
        self.doorbell(py).map(Kept)
    }

    /// Returns whether there is something to take. Only where somebody has asked for the descriptor.
    fn _is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, Inner::is_ready)
    }

    /// Sends a payload back to the sender. A buffer that was moved to this receiver is handed back, and closed here. A
    /// buffer that was shared raises AccessDenied. An object with bytes goes in the message itself, up to
    /// `INLINE_BYTES` bytes.
    ///
    /// With `released` a message of this channel is released as `Buffer.release` does, and the sender gets `word` for it
    /// from `recv_back`. BufferError while there are views.
    ///
    /// `Full` if the sender takes nothing back for `timeout` seconds. Then the buffer is as before. By default the call
    /// does not wait. With None it waits without limit.
    #[pyo3(signature = (payload, word=Number::of(0), *, timeout=Some(0.0), released=false), text_signature = "($self, payload, word=0, *, timeout=0.0, released=False)")]
    fn send_back(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: Number,
        timeout: Option<f64>,
        released: bool,
    ) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let (word, limit) = (word.named("word")?, limit(timeout)?);
        let buffer = payload.cast::<Buffer>().map(Bound::get);
        match (buffer, released) {
            (Ok(buffer), true) => {
                let mut body = Some(buffer.take_body(py, RELEASED)?);
                let sent = self.hand_back(py, limit, &mut body, |end, body, slice| {
                    let sent = end.send_back_timeout((Released(body), word), slice);
                    sent.map_err(|failed| failed.map(|(body, _)| body))
                });
                if let Some(body) = body {
                    buffer.put_body(body);
                }
                sent
            }
            (Ok(buffer), false) => {
                let mut body = Some(buffer.take_body(py, HANDED_BACK)?);
                let sent = self.hand_back(py, limit, &mut body, |end, body, slice| match body {
                    Body::BufferMut(buf) => {
                        let sent = end.send_back_timeout((buf, word), slice);
                        sent.map_err(|failed| failed.map(|(buf, _)| Body::BufferMut(buf)))
                    }
                    Body::Buffer(buf) => {
                        let sent = end.send_back_timeout((buf, word), slice);
                        sent.map_err(|failed| failed.map(|(buf, _)| Body::Buffer(buf)))
                    }
                    other => {
                        let text = "only one buffer is handed back: release it, or its pieces";
                        let error = Error::new(ErrorKind::BufferNotOwned, text);
                        Err(SendError::new(error, other))
                    }
                });
                if let Some(body) = body {
                    buffer.put_body(body);
                }
                sent
            }
            (Err(error), true) => Err(error.into()),
            (Err(_), false) => {
                let bytes = bytes_of(payload)?;
                self.hand_back(py, limit, &mut Some(()), |end, (), slice| {
                    let sent = end.send_back_timeout((&bytes[..], word), slice);
                    sent.map_err(|failed| failed.map(|((), _)| ()))
                })
            }
        }
    }

    /// Sends back like `send_back`, and awaits room for it.
    #[pyo3(signature = (payload, word=Number::of(0), *, released=false), text_signature = "($self, payload, word=0, *, released=False)")]
    fn send_back_async<'py>(
        slf: Bound<'py, Self>,
        payload: Bound<'py, PyAny>,
        word: Number,
        released: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let word: u64 = word.named("word")?;
        aio(slf.py(), "send_back", (slf, payload, word, released))
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| drop(self.shut()));
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "<tranship.Receiver, channel {}, from process {}>",
            self.channel, self.peer_pid
        )
    }
}

iterates!(Receiver);
closes!(Receiver);

impl Drop for Receiver {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let_go(
            self.fork_epoch,
            inner.unwrap_or_else(PoisonError::into_inner).take(),
        );
    }
}

/// Returns the end of an iteration, if the error says that the sender closed its end.
pub(crate) fn end_or(py: Python<'_>, error: PyErr) -> PyErr {
    static PEER_GONE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match PEER_GONE.import(py, "tranship._errors", "PeerGone") {
        Ok(class) if error.is_instance(py, class) => PyStopIteration::new_err(()),
        _ => error,
    }
}
