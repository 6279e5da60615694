//! `tranship.Sender`.

use crate::arrays::{make_readonly, place};
use crate::buffer::{Buffer, Origin};
use crate::driven::Kept;
use crate::errors::{OrRaise as _, busy, closed, raised};
use crate::foreign::{View, lies_in};
use crate::fork::{ForkEpoch, end_with};
use crate::number::Number;
use crate::pool::Pool;
use crate::sending::{Inner, moved};
use crate::slot::aio;
use crate::wait::{By, Turn, Waits, limit, wait};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tranship::error::PoolPending;
use tranship::{
    Aggregate, Body, Error, ErrorKind, INLINE_BYTES, Inline, Message, Outcome, PollItem, WhenFull,
    poll,
};

/// Values of `when_full`.
const MODES: [(&str, WhenFull); 3] = [
    ("wait", WhenFull::Wait),
    ("drop-new", WhenFull::DropNew),
    ("drop-oldest", WhenFull::DropOldest),
];

/// The sending end of a channel. At the end of its `with` block the receiver is told that all was sent. If an exception
/// ends the block, the receiver is told that it was not all.
///
/// >>> import tranship
/// >>> from concurrent.futures import ThreadPoolExecutor
/// >>> here = tranship.embedded()
/// >>> def reads():  # in another process, as a rule
/// ...     with tranship.connect(socket=here.socket_path) as there, there.open("numbers", tranship.Receiver) as receiver:
/// ...         return receiver.recv_array().tolist()
/// >>> reader = ThreadPoolExecutor().submit(reads)
/// >>> with here.listen("numbers", tranship.Sender) as listener, listener.accept(timeout=60) as sender:
/// ...     pool = here.pool("numbers", 1 << 20)
/// ...     sender.send_array(pool.array((1, 2)), pool)
/// >>> reader.result() == list((1, 2))
/// True
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Sender {
    inner: Mutex<Option<Inner>>,
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

impl Sender {
    pub(crate) fn new(sender: tranship::Sender, by: By) -> Sender {
        let status = sender.status();
        Sender {
            peer: status.peer.0,
            peer_pid: status.peer_pid,
            peer_uid: status.peer_uid,
            channel: status.channel.0,
            inner: Mutex::new(Some(Inner::new(sender))),
            waits: Waits::new(by),
            fork_epoch: ForkEpoch::now(),
        }
    }

    /// Closes it. Waiting threads are told first; a task that awaits it looks once more, because its doorbell rings.
    fn shut(&self) -> Option<Inner> {
        self.waits.end();
        let inner = self.lock().take();
        if let Some(doorbell) = inner.as_ref().and_then(|inner| inner.doorbell.as_ref()) {
            doorbell.ring();
        }
        inner
    }

    fn came_back(&self, message: Message) -> Buffer {
        let origin = Origin {
            trust: None,
            sender_pid: Some(self.peer_pid),
        };
        Buffer::received(message, origin)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Inner>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs with the sender, in the way of the receiver's `with`.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Inner) -> T + Send,
    ) -> PyResult<T> {
        self.fork_epoch.check(py)?;
        let what = armed(what);
        if let Ok(mut inner) = self.inner.try_lock() {
            return inner.as_mut().map(what).ok_or_else(|| closed("sender"));
        }
        let done = py.detach(|| self.lock().as_mut().map(what));
        done.ok_or_else(|| closed("sender"))
    }

    /// Takes a turn of a wait, in which something is done with the inside. None: another thread has closed it.
    fn turn<T>(&self, what: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        self.lock().as_mut().map(armed(what))
    }

    /// Sends at once if there is room, else waits. A cargo that was not sent comes back in `cargo`.
    fn deliver(
        &self,
        py: Python<'_>,
        cargo: &mut Option<Body>,
        word: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let timeout = limit(timeout)?;
        let mut pending = false;
        let mut own_thread =
            OwnThread::new(timeout.is_none() && self.peer_pid == std::process::id());
        let mut once = |inner: &mut Inner, turn: Option<&Turn<'_>>| {
            if inner.is_under_way() {
                return Ok(None);
            }
            let sender = inner.driven.end();
            let time = match turn {
                None => Duration::ZERO,
                Some(Turn {
                    signals: Some(signals),
                    slice,
                }) if !pending => {
                    let mut items = [PollItem::sender(sender), PollItem::readable(signals)];
                    poll(&mut items, Some(*slice))?;
                    Duration::ZERO
                }
                // The receiver has to agree to the pool, of which no descriptor tells.
                Some(turn) => turn.slice.min(Duration::from_millis(20)),
            };
            let Some(what) = cargo.take() else {
                return Ok(Some(true));
            };
            let failed = match inner.attempt(time, (what, word)) {
                Ok(outcome) => return Ok(Some(outcome == Outcome::Sent)),
                Err(failed) => failed,
            };
            pending = failed.error == ErrorKind::PoolPending;
            own_thread.look(&failed.error);
            *cargo = Some(failed.unsent.0);
            Err(failed.error)
        };
        match self.with(py, |inner| once(inner, None))? {
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::PoolPending) => {}
            other => return other.or_raise(py)?.ok_or_else(under_way),
        }
        let sent = wait(py, timeout, self.waits.by, |turn| {
            if self.waits.are_over() {
                return Ok(Some(Err(())));
            }
            match self.turn(|inner| once(inner, Some(&turn))) {
                None => Ok(Some(Err(()))), // closed by another thread
                Some(done) => done.map(|done| Some(Ok(done))),
            }
        })?;
        sent.map_err(|()| closed("sender"))?.ok_or_else(under_way)
    }
}

/// A send without a time whose receiver is in this process, too, and has to agree to a pool: if one thread has both it
/// waits for ever.
struct OwnThread(Option<Instant>);

impl OwnThread {
    /// Time after which a slow receiver is no longer the likely reason.
    const SUSPECT: Duration = Duration::from_secs(3);

    fn new(may_be: bool) -> OwnThread {
        OwnThread(may_be.then(Instant::now))
    }

    /// Reports it, once.
    fn look(&mut self, error: &Error) {
        let late = |since: &Instant| since.elapsed() >= OwnThread::SUSPECT;
        if let Some(pending) = error.find::<PoolPending>()
            && let Some(since) = self.0.take_if(|since| late(since))
        {
            eprintln!(
                "tranship: send has waited {} s for a receiver in this process to agree to pool {}. It agrees in its next recv(). If that is for the same thread, this waits for ever: let another thread receive, or give send() a timeout",
                since.elapsed().as_secs(),
                pending.pool.0
            );
        }
    }
}

fn under_way() -> PyErr {
    busy("a send_async of this sender is under way: await it first")
}

/// Runs it, and then arms the doorbell for messages that come back.
fn armed<T>(what: impl FnOnce(&mut Inner) -> T) -> impl FnOnce(&mut Inner) -> T {
    |inner| {
        let done = what(inner);
        inner.arm();
        done
    }
}

/// Returns the cargo of an object that Python shares, or gives away.
pub(crate) fn outgoing(object: &Bound<'_, PyAny>, moves: bool) -> PyResult<Body> {
    match moves {
        true => {
            let buffer = object.cast::<Buffer>()?;
            buffer.get().take_own(object.py()).map(Body::BufferMut)
        }
        false => cargo_of(object),
    }
}

/// A buffer that was to be given away is the object's again.
pub(crate) fn give_back(object: &Bound<'_, PyAny>, body: Option<Body>) {
    if let Some(Body::BufferMut(buf)) = body
        && let Ok(buffer) = object.cast::<Buffer>()
    {
        buffer.get().give_back(buf);
    }
}

/// Returns the cargo of an object that Python shares.
pub(crate) fn cargo_of(object: &Bound<'_, PyAny>) -> PyResult<Body> {
    let py = object.py();
    if let Ok(buffer) = object.cast::<Buffer>() {
        return buffer.get().outgoing(py);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        if object.len()? == 0 {
            return Inline::try_from(&[][..]).map(Body::Inline).or_raise(py);
        }
        let mut all = Aggregate::new();
        for piece in object.try_iter()? {
            let piece = piece?;
            let piece = match piece.cast::<Buffer>() {
                Ok(buffer) => buffer.get().whole(py)?,
                Err(_) => part_of(&piece)?.ok_or_else(|| nowhere(&piece))?,
            };
            let pushed = all.push_back(piece);
            pushed.map_err(|failed| raised(py, &failed.error))?;
        }
        return Ok(Body::Aggregate(all));
    }
    match part_of(object)? {
        Some(part) => Ok(Body::Buffer(part)),
        None => Inline::try_from(&*bytes_of(object)?)
            .map(Body::Inline)
            .or_raise(py),
    }
}

/// Returns a copy of an object's bytes, which go in the message itself.
pub(crate) fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let bytes = View::of_data(object)?;
    match bytes.len() {
        ..=INLINE_BYTES => Ok(bytes.to_vec()),
        long => {
            let text = format!(
                "{long} bytes are too many for the message itself, which holds {INLINE_BYTES}: pool.copy() copies them into a buffer, send_array() an array"
            );
            let error = Error::new(ErrorKind::TooLarge, text);
            Err(raised(object.py(), &error))
        }
    }
}

/// The part of a buffer that an array, or a view, lies in. From here on it is read-only. None: it is in no pool.
pub(crate) fn part_of(object: &Bound<'_, PyAny>) -> PyResult<Option<tranship::Buffer>> {
    let py = object.py();
    let (address, len) = place(object)?;
    let Some((buffer, at)) = lies_in(py, address, len) else {
        return Ok(None);
    };
    buffer.get().ask(py)?;
    let is_array = make_readonly(object)?;
    buffer.get().part(py, at, len, is_array).map(Some)
}

/// Whether there was no room in time.
fn is_full(py: Python<'_>, error: &PyErr) -> bool {
    let class = py
        .import("tranship")
        .and_then(|module| module.getattr("Full"));
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

fn nowhere(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().qualname();
    let kind = kind.map_or_else(|_| "it".into(), |kind| kind.to_string());
    PyTypeError::new_err(format!(
        "{kind} is not in a pool: pool.copy() copies it there, send_array() an array"
    ))
}

#[pymethods]
impl Sender {
    /// A writable buffer of the channel's own pool, with the bytes that the memory held before. Only the receiver can
    /// read that pool, and its buffers can be sent over this channel only. Waits for memory that the receiver still
    /// holds, at most `timeout` seconds.
    #[pyo3(signature = (nbytes, *, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: Number, timeout: Option<f64>) -> PyResult<Buffer> {
        self.fork_epoch.check(py)?;
        let bytes = nbytes.named("nbytes")?;
        let got = wait(py, limit(timeout)?, By::Time, |turn| {
            let got = self.turn(|inner| match inner.is_under_way() {
                true => Ok(None),
                false => inner
                    .driven
                    .end()
                    .alloc_timeout(bytes, turn.slice)
                    .map(Some),
            });
            match got {
                None => Ok(Some(None)), // closed by another thread
                Some(got) => got.map(|buf| Some(Some(buf))),
            }
        })?;
        let buf = got.ok_or_else(|| closed("sender"))?.ok_or_else(under_way)?;
        Ok(Buffer::own(buf))
    }

    /// Allocates like `alloc`, and awaits memory.
    #[pyo3(signature = (nbytes))]
    fn alloc_async<'py>(slf: Bound<'py, Self>, nbytes: Number) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "alloc", (slf, nbytes.named::<usize>("nbytes")?))
    }

    /// Sends a buffer, an array in a buffer, or a list of these, by reference: all are read-only from then on. Only the
    /// bytes of an array arrive. Other objects with bytes go in the message itself, up to `INLINE_BYTES` bytes.
    ///
    /// With `move` a buffer that was never sent and has no views is given away, and closed here. If the send fails, the
    /// buffer is as it was.
    ///
    /// Returns True if the payload was sent, False if it was dropped, as `when_full` says.
    #[pyo3(signature = (payload, word=Number::of(0), *, timeout=None, r#move=false), text_signature = "($self, payload, word=0, *, timeout=None, move=False)")]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: Number,
        timeout: Option<f64>,
        r#move: bool,
    ) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        let word = word.named("word")?;
        let mut cargo = Some(outgoing(payload, r#move)?);
        let sent = self.deliver(py, &mut cargo, word, timeout);
        give_back(payload, cargo);
        sent
    }

    /// Sends several payloads, each as `send` does, with one wake-up of the receiver. `words` are those of the payloads, 0 by
    /// default. Waits for room, at most `timeout` seconds for all together.
    ///
    /// Returns how many were sent, in order from the first. `Full` if none was sent.
    #[pyo3(signature = (payloads, words=None, *, timeout=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        words: Option<Vec<u64>>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        self.fork_epoch.check(py)?;
        let words = words.unwrap_or_default().into_iter();
        let words = words.chain(std::iter::repeat(0));
        let mut left = Vec::new();
        for (payload, word) in payloads.try_iter()?.zip(words) {
            left.push((cargo_of(&payload?)?, word));
        }
        let begun = Instant::now();
        let all = left.len();
        while !left.is_empty() {
            let batch = std::mem::take(&mut left);
            let tried = self.with(py, |inner| match inner.is_under_way() {
                true => None,
                false => Some(inner.driven.end().try_send_many(batch)),
            })?;
            let failed = match tried.ok_or_else(under_way)? {
                Ok(_) => break,
                Err(failed) => failed,
            };
            if !matches!(failed.kind(), ErrorKind::Full | ErrorKind::PoolPending) {
                return Err(raised(py, &failed.error));
            }
            left = failed.unsent;
            let (first, word) = left.remove(0);
            let time = timeout.map(|time| (time - begun.elapsed().as_secs_f64()).max(0.0));
            let sent = self.deliver(py, &mut Some(first), word, time);
            let went = all - left.len() - 1;
            match sent {
                Err(error) if went > 0 && is_full(py, &error) => return Ok(went),
                sent => _ = sent?,
            }
        }
        Ok(all)
    }

    /// Sends any object that can be pickled. Parts of it that lie in a pool and have at least 1 KiB are not copied.
    /// Arrays and buffers arrive read-only.
    #[pyo3(signature = (object, pool, *, timeout=None))]
    fn send_object<'py>(
        slf: Bound<'py, Self>,
        object: Bound<'py, PyAny>,
        pool: Bound<'py, Pool>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let py = slf.py();
        limit(timeout)?;
        let objects = py.import("tranship._objects")?;
        objects.call_method1("send", (slf, object, pool, timeout))?;
        Ok(())
    }

    /// Sends like `send`, and awaits room. One task at a time. If the task is cancelled before the buffer was given
    /// away, the buffer is as before.
    #[pyo3(signature = (payload, word=Number::of(0), *, r#move=false), text_signature = "($self, payload, word=0, *, move=False)")]
    fn send_async<'py>(
        slf: Bound<'py, Self>,
        payload: Bound<'py, PyAny>,
        word: Number,
        r#move: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        aio(
            slf.py(),
            "send",
            (slf, payload, word.named::<u64>("word")?, r#move),
        )
    }

    /// Sends an array with its type, shape and strides, without pickle. An array that lies in a pool is not copied;
    /// others are copied to `pool`.
    #[pyo3(signature = (array, pool, *, timeout=None))]
    fn send_array<'py>(
        slf: Bound<'py, Self>,
        array: Bound<'py, PyAny>,
        pool: Bound<'py, Pool>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let py = slf.py();
        limit(timeout)?;
        let objects = py.import("tranship._objects")?;
        objects.call_method1("send_array", (slf, array, pool, timeout))?;
        Ok(())
    }

    /// Sends like `send_array`, and awaits room and memory.
    #[pyo3(signature = (array, pool))]
    fn send_array_async<'py>(
        slf: Bound<'py, Self>,
        array: Bound<'py, PyAny>,
        pool: Bound<'py, Pool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "send_array", (slf, array, pool))
    }

    /// Sends like `send_object`, and awaits room and memory.
    #[pyo3(signature = (object, pool))]
    fn send_object_async<'py>(
        slf: Bound<'py, Self>,
        object: Bound<'py, PyAny>,
        pool: Bound<'py, Pool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "send_object", (slf, object, pool))
    }

    /// Awaits the moment when the receiver has taken all messages.
    fn wait_taken_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio(slf.py(), "taken", (slf,))
    }

    /// Begins to send. True: it is done. Else `_doorbell` tells when to look again, by `_look`.
    fn _begin(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        word: u64,
        moves: bool,
    ) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        let mut cargo = Some(outgoing(payload, moves)?);
        let begun = self.beginning(py, |inner| inner.begin(&mut cargo, word));
        give_back(payload, cargo);
        begun
    }

    /// Begins to wait until all was taken.
    fn _begin_taken(&self, py: Python<'_>) -> PyResult<bool> {
        self.beginning(py, Inner::begin_taken)
    }

    /// Returns whether the begun send is done.
    fn _look(&self, py: Python<'_>) -> PyResult<bool> {
        let looked = self.with(py, |inner| {
            let doorbell = inner.doorbell()?;
            inner.look(&doorbell)
        })?;
        looked.or_raise(py)
    }

    /// Takes back a send that was begun. A buffer that was to be moved has its memory again.
    #[pyo3(signature = (buffer=None))]
    fn _cancel(&self, py: Python<'_>, buffer: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let unsent = self.with(py, |inner| {
            let unsent = inner.driven.end().take_unsent();
            inner.back.take().or(unsent.and_then(moved))
        });
        // Closed: it went with the sender.
        if let (Ok(Some(buf)), Some(buffer)) = (unsent, buffer) {
            give_back(buffer, Some(Body::BufferMut(buf)));
        }
        Ok(())
    }

    fn _doorbell(&self, py: Python<'_>) -> PyResult<Kept> {
        self.with(py, |inner| inner.doorbell.clone())?
            .map(Kept)
            .ok_or_else(|| PyOSError::new_err("nothing was begun"))
    }

    /// Waits until the receiver has taken all messages.
    #[pyo3(signature = (timeout=None))]
    fn wait_taken(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let taken = wait(py, limit(timeout)?, By::Time, |turn| {
            match self.turn(|inner| inner.driven.end().wait_taken(turn.slice)) {
                None => Ok(Some(false)),
                Some(done) => done.map(|()| Some(true)),
            }
        })?;
        taken.then_some(()).ok_or_else(|| closed("sender"))
    }

    /// Makes the receiver agree to the pool now, instead of at the first send.
    #[pyo3(signature = (pool, *, timeout=None))]
    fn assign(&self, py: Python<'_>, pool: &Pool, timeout: Option<f64>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let pool = pool.get(py)?;
        let done = wait(py, limit(timeout)?, By::Time, |turn| {
            // The request goes on between the looks.
            match self.turn(|inner| inner.driven.end().assign_timeout(&pool, turn.slice)) {
                None => Ok(Some(false)),
                Some(Err(error)) if error == ErrorKind::ManagerAway => {
                    Err(ErrorKind::TimedOut.into())
                }
                Some(assigned) => assigned.map(|()| Some(true)),
            }
        })?;
        done.then_some(()).ok_or_else(|| closed("sender"))
    }

    /// Takes the next payload that the receiver sent back, if there is one: a buffer, a few bytes, or the message that
    /// the receiver has released a buffer (`Buffer.is_release`).
    fn try_recv_back(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let back = self.with(py, Inner::reply)?;
        Ok(back.or_raise(py)?.map(|message| self.came_back(message)))
    }

    /// Waits for a message that the receiver sends back. PeerGone when the receiver is gone and all messages were
    /// taken.
    #[pyo3(signature = (timeout=None))]
    fn recv_back(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        self.fork_epoch.check(py)?;
        let back = wait(py, limit(timeout)?, By::Time, |turn| {
            match self.turn(|inner| inner.reply_within(turn.slice)) {
                None => Ok(Some(None)),
                Some(back) => back.map(|back| Some(Some(back))),
            }
        })?;
        let message = back.ok_or_else(|| closed("sender"))?;
        Ok(self.came_back(message))
    }

    /// A descriptor for event loops: readable when `try_recv_back` has something to return. It does not become readable
    /// while a send is awaited.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let doorbell = self.with(py, Inner::replies)?;
        Ok(doorbell?.fd())
    }

    /// Returns whether something came back. To be called only after the descriptor was asked for.
    fn _is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, Inner::has_reply)
    }

    /// Messages that the receiver has not taken yet.
    #[getter]
    fn queued(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |inner| inner.driven.end().queued())
    }

    /// Messages that this sender has dropped, as `when_full` says.
    #[getter]
    fn dropped(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |inner| inner.driven.end().status().dropped)
    }

    /// The action of a send that finds the channel full. "wait": the send waits. "drop-new": the send drops the
    /// message. "drop-oldest": the receiver skips each message that has a newer one behind it, and a send into a full
    /// channel drops the message as with "drop-new".
    #[getter]
    fn when_full(&self, py: Python<'_>) -> PyResult<&'static str> {
        let mode = self.with(py, |inner| inner.when_full)?;
        let name = MODES.iter().find(|(_, of)| *of == mode);
        Ok(name.map_or(MODES[0].0, |(name, _)| name))
    }

    #[setter]
    fn set_when_full(&self, py: Python<'_>, mode: &str) -> PyResult<()> {
        let Some((_, mode)) = MODES.iter().find(|(name, _)| *name == mode) else {
            let text = format!(
                "when_full is {mode:?}, allowed are \"wait\", \"drop-new\" and \"drop-oldest\""
            );
            return Err(PyValueError::new_err(text));
        };
        self.with(py, |inner| {
            inner.when_full = *mode;
            inner.driven.end().set_when_full(*mode);
        })
    }

    /// Whether the receiver is closed, or dead.
    #[getter]
    fn peer_gone(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |inner| inner.driven.end().status().peer_gone)
    }

    /// Closes the channel, and tells the receiver that not all was sent.
    fn abandon(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| {
                let inner = self.shut();
                if let Some(inner) = inner {
                    inner.driven.into_end().abandon();
                }
            });
        }
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| drop(self.shut()));
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// With an error under way the sent messages are not all.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        match kind.is_none() {
            true => self.close(py),
            false => self.abandon(py),
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "<tranship.Sender, channel {}, to process {}>",
            self.channel, self.peer_pid
        )
    }
}

crate::slot::stays!(Sender);

impl Drop for Sender {
    /// Abandons a sender that was neither closed nor left: no code has said that the sent messages are all. An
    /// exception that is not caught ends here, too.
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let inner = inner.unwrap_or_else(PoisonError::into_inner).take();
        end_with(self.fork_epoch, inner, |inner| {
            inner.driven.into_end().abandon()
        });
    }
}

impl Sender {
    fn beginning(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&mut Inner) -> Result<bool, Error> + Send,
    ) -> PyResult<bool> {
        let begun = self.with(py, |inner| match inner.is_under_way() {
            true => None,
            false => Some(begin(inner)),
        })?;
        let taken = || busy("another send_async of this sender is under way: await it first");
        begun.ok_or_else(taken)?.or_raise(py)
    }
}
