//! `tranship.Sender`.

use crate::arrays::make_readonly;
use crate::buffer::{Buffer, Origin};
use crate::driven::Kept;
use crate::errors::{OrRaise as _, busy, closed, raised};
use crate::foreign::View;
use crate::fork::{ForkEpoch, end_with};
use crate::pool::Pool;
use crate::sending::{Cargo, Inner, moved};
use crate::wait::{By, Turn, Waits, limit, wait};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tranship::{
    Aggregate, Error, INLINE_BYTES, Kind, Message, Outcome, Payload, PollItem, WhenFull, poll,
};

/// What `when_full` may be.
const MODES: [(&str, WhenFull); 3] = [
    ("wait", WhenFull::Block),
    ("drop-new", WhenFull::DropNew),
    ("drop-oldest", WhenFull::DropOldest),
];

/// The sending end of a channel.
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Sender {
    inner: Mutex<Option<Inner>>,
    #[pyo3(get)]
    peer: u32,
    #[pyo3(get)]
    peer_pid: u32,
    #[pyo3(get)]
    peer_uid: u32,
    #[pyo3(get)]
    channel: u32,
    waits: Waits,
    fork_epoch: ForkEpoch,
}

impl Sender {
    pub(crate) fn new(sender: tranship::Sender, by: By) -> Sender {
        let (peer_pid, peer_uid) = sender.peer_pid_uid();
        Sender {
            peer: sender.peer().0,
            peer_pid,
            peer_uid,
            channel: sender.channel().0,
            inner: Mutex::new(Some(Inner::new(sender))),
            waits: Waits::new(by),
            fork_epoch: ForkEpoch::now(),
        }
    }

    /// What waits in here is told first; a task that awaits it looks once more, as its doorbell rings.
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

    /// As the receiver's.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Inner) -> T + Send,
    ) -> PyResult<T> {
        self.fork_epoch.check(py)?;
        if let Ok(mut inner) = self.inner.try_lock() {
            return inner.as_mut().map(what).ok_or_else(|| closed("sender"));
        }
        let done = py.detach(|| self.lock().as_mut().map(what));
        done.ok_or_else(|| closed("sender"))
    }

    /// Sends at once if there is room, else waits. What was not sent comes back in `cargo`.
    fn deliver(
        &self,
        py: Python<'_>,
        cargo: &mut Option<Cargo>,
        meta: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let timeout = limit(timeout)?;
        let mut pending = false;
        let mut once = |inner: &mut Inner, turn: Option<&Turn<'_>>| {
            if inner.driven.is_under_way() {
                return Ok(None);
            }
            let sender = inner.driven.end();
            let how = match turn {
                None => WhenFull::Error,
                Some(Turn {
                    signals: Some(signals),
                    slice,
                }) if !pending => {
                    let mut items = [PollItem::sender(sender), PollItem::readable(signals)];
                    poll(&mut items, Some(*slice))?;
                    WhenFull::Error
                }
                // The receiver has to agree to the pool, of which no descriptor tells.
                Some(turn) => WhenFull::BlockFor(turn.slice.min(Duration::from_millis(20))),
            };
            let Some(what) = cargo.take() else {
                return Ok(Some(true));
            };
            let unsent = match inner.attempt(how, what, meta) {
                Ok(outcome) => return Ok(Some(outcome == Outcome::Sent)),
                Err(unsent) => unsent,
            };
            let (error, what) = *unsent;
            pending = error == Kind::PoolPending;
            *cargo = Some(what);
            Err(error)
        };
        let taken = || busy("a send_async of this sender is under way: await it first");
        match self.with(py, |inner| once(inner, None))? {
            Err(error) if matches!(error.kind(), Kind::Full | Kind::PoolPending) => {}
            other => return other.or_raise(py)?.ok_or_else(taken),
        }
        let sent = wait(py, timeout, self.waits.by, |turn| {
            if self.waits.are_over() {
                return Ok(Some(Err(())));
            }
            match self.lock().as_mut() {
                None => Ok(Some(Err(()))), // closed by another thread
                Some(inner) => once(inner, Some(&turn)).map(|done| Some(Ok(done))),
            }
        })?;
        sent.map_err(|()| closed("sender"))?.ok_or_else(taken)
    }
}

/// What to send of what Python gave.
fn cargo_of(object: &Bound<'_, PyAny>) -> PyResult<Cargo> {
    let py = object.py();
    if let Ok(buffer) = object.cast::<Buffer>() {
        return buffer.get().outgoing(py).map(Cargo::from);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let mut all = Aggregate::new();
        for piece in object.try_iter()? {
            let piece = piece?;
            let piece = match piece.cast::<Buffer>() {
                Ok(buffer) => buffer.get().whole(py)?,
                Err(_) => part_of(&piece)?,
            };
            let pushed = all.push_back(piece);
            pushed.map_err(|failed| raised(py, &failed.error))?;
        }
        return Ok(Cargo::Shared(Payload::Aggregate(all)));
    }
    part_of(object).map(|part| Cargo::Shared(Payload::Buf(part)))
}

/// The part of a buffer that an array, or a view, lies in. From here on it is read-only.
fn part_of(object: &Bound<'_, PyAny>) -> PyResult<tranship::Cbuf> {
    let py = object.py();
    let view = View::of(object)?;
    let Some((buffer, at)) = view.buffer(py) else {
        let text = format!(
            "{} is not in a pool: pool.copy() copies it there, send_inline() sends up to {INLINE_BYTES} bytes in the message itself",
            object.get_type().qualname()?
        );
        return Err(PyTypeError::new_err(text));
    };
    let len = view.len();
    drop(view);
    buffer.get().ask(py)?;
    let is_array = make_readonly(object)?;
    buffer.get().part(py, at, len, is_array)
}

#[pymethods]
impl Sender {
    #[pyo3(signature = (payload, meta=0, *, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        meta: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        self.deliver(py, &mut Some(cargo_of(payload)?), meta, timeout)
    }

    #[pyo3(signature = (data, meta=0, *, timeout=None))]
    fn send_inline(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        meta: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let bytes = View::of(data)?.to_vec();
        self.deliver(py, &mut Some(Cargo::Inline(bytes)), meta, timeout)
    }

    #[pyo3(signature = (buffer, meta=0, *, timeout=None))]
    fn move_buffer(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, Buffer>,
        meta: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        let mut cargo = Some(Cargo::Moved(buffer.get().take_own(py)?));
        let moved = self.deliver(py, &mut cargo, meta, timeout);
        if let Some(Cargo::Moved(buf)) = cargo {
            buffer.get().give_back(buf);
        }
        moved
    }

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

    #[pyo3(signature = (payload, meta=0))]
    fn send_async<'py>(
        slf: Bound<'py, Self>,
        payload: Bound<'py, PyAny>,
        meta: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("tranship._aio")?;
        aio.call_method1("send", (slf, payload, meta))
    }

    #[pyo3(signature = (object, pool))]
    fn send_object_async<'py>(
        slf: Bound<'py, Self>,
        object: Bound<'py, PyAny>,
        pool: Bound<'py, Pool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("tranship._aio")?;
        aio.call_method1("send_object", (slf, object, pool))
    }

    #[pyo3(signature = (buffer, meta=0))]
    fn move_buffer_async<'py>(
        slf: Bound<'py, Self>,
        buffer: Bound<'py, Buffer>,
        meta: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("tranship._aio")?;
        aio.call_method1("move", (slf, buffer, meta))
    }

    fn wait_taken_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("tranship._aio")?;
        aio.call_method1("taken", (slf,))
    }

    /// Begins to send. True: it is done. Else `_doorbell` tells when to look again, by `_look`.
    fn _begin(&self, py: Python<'_>, payload: &Bound<'_, PyAny>, meta: u64) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        let mut cargo = Some(cargo_of(payload)?);
        self.beginning(py, |inner| inner.begin(&mut cargo, meta))
    }

    /// Begins to move.
    fn _begin_move(&self, py: Python<'_>, buffer: &Bound<'_, Buffer>, meta: u64) -> PyResult<bool> {
        self.fork_epoch.check(py)?;
        let mut cargo = Some(Cargo::Moved(buffer.get().take_own(py)?));
        let begun = self.beginning(py, |inner| inner.begin(&mut cargo, meta));
        if let Some(Cargo::Moved(buf)) = cargo {
            buffer.get().give_back(buf);
        }
        begun
    }

    /// Begins to wait until all was taken.
    fn _begin_taken(&self, py: Python<'_>) -> PyResult<bool> {
        self.beginning(py, |inner| {
            let doorbell = inner.doorbell()?;
            inner
                .driven
                .begin(|end| Box::pin(async move { Ok(end.wait_taken_async().await?) }));
            inner.look(&doorbell)
        })
    }

    /// Whether what was begun is done.
    fn _look(&self, py: Python<'_>) -> PyResult<bool> {
        let looked = self.with(py, |inner| {
            let doorbell = inner.doorbell()?;
            inner.look(&doorbell)
        })?;
        looked.or_raise(py)
    }

    /// What was begun is not done after all. What was to be moved is in its buffer again.
    #[pyo3(signature = (buffer=None))]
    fn _cancel(&self, py: Python<'_>, buffer: Option<&Bound<'_, Buffer>>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let unsent = self.with(py, |inner| {
            let unsent = inner.driven.end().take_unsent();
            inner.back.take().or(unsent.and_then(moved))
        });
        // Closed: it went with the sender.
        if let (Ok(Some(buf)), Some(buffer)) = (unsent, buffer) {
            buffer.get().give_back(buf);
        }
        Ok(())
    }

    fn _doorbell(&self, py: Python<'_>) -> PyResult<Kept> {
        self.with(py, |inner| inner.doorbell.clone())?
            .map(Kept)
            .ok_or_else(|| PyOSError::new_err("nothing was begun"))
    }

    /// Waits until everything that was sent has been taken.
    #[pyo3(signature = (timeout=None))]
    fn wait_taken(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let taken = wait(py, limit(timeout)?, By::Time, |turn| {
            match self.lock().as_mut() {
                None => Ok(Some(false)),
                Some(inner) => inner
                    .driven
                    .end()
                    .wait_taken(turn.slice)
                    .map(|()| Some(true)),
            }
        })?;
        taken.then_some(()).ok_or_else(|| closed("sender"))
    }

    /// Has the receiver agree to a pool now, instead of at the first send from it.
    #[pyo3(signature = (pool, *, timeout=None))]
    fn assign(&self, py: Python<'_>, pool: &Pool, timeout: Option<f64>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        let pool = pool.get(py)?;
        let done = wait(py, limit(timeout)?, By::Time, |turn| {
            let mut inner = self.lock();
            let Some(inner) = inner.as_mut() else {
                return Ok(Some(false));
            };
            // The request goes on between the looks.
            match inner.driven.end().assign_timeout(&pool, turn.slice) {
                Err(error) if error == Kind::ManagerAway => Err(Kind::TimedOut.into()),
                assigned => assigned.map(|()| Some(true)),
            }
        })?;
        done.then_some(()).ok_or_else(|| closed("sender"))
    }

    /// What the receiver sent back: a buffer that was moved to it, or its few bytes.
    fn try_recv_back(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let back = self.with(py, |inner| inner.driven.end().try_recv_control())?;
        Ok(back.or_raise(py)?.map(|message| self.came_back(message)))
    }

    /// The same, waiting for it.
    #[pyo3(signature = (timeout=None))]
    fn recv_back(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        self.fork_epoch.check(py)?;
        let back = wait(py, limit(timeout)?, By::Time, |turn| {
            match self.lock().as_mut() {
                None => Ok(Some(None)),
                Some(inner) => {
                    let back = inner.driven.end().recv_control_timeout(turn.slice)?;
                    Ok(Some(Some(back)))
                }
            }
        })?;
        let message = back.ok_or_else(|| closed("sender"))?;
        Ok(self.came_back(message))
    }

    #[getter]
    fn queued(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |inner| inner.driven.end().queued())
    }

    /// Messages that this sender has dropped, as `when_full` says.
    #[getter]
    fn dropped(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |inner| inner.driven.end().dropped())
    }

    /// What a send does that finds the channel full. "wait": it waits. "drop-new": it drops the message. "drop-oldest": the
    /// receiver skips each message behind which a newer one waits, and a full channel drops the new one as with "drop-new".
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

    #[getter]
    fn peer_gone(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |inner| inner.driven.end().is_peer_gone())
    }

    /// Gives up: the receiver is told that what it got is not all.
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

    /// This was all.
    fn close(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| drop(self.shut()));
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// With an error under way what was sent is not all.
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

impl Drop for Sender {
    /// Neither closed nor left: nobody said that what was sent is all. An exception that nobody caught ends here, too.
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
        let begun = self.with(py, |inner| match inner.driven.is_under_way() {
            true => None,
            false => Some(begin(inner)),
        })?;
        let taken = || busy("another send_async of this sender is under way: await it first");
        begun.ok_or_else(taken)?.or_raise(py)
    }
}
