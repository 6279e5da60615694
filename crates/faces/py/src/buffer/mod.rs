//! `tranship.Buffer`: bytes in a pool, as an object of Python's.
//!
//! A view (a `memoryview`, an array) keeps the object, and with it the memory. Sent memory is read-only from then on.
//! Views that were taken before stay as they are. Therefore a buffer with writable views is not sent, unless through
//! the array itself.

mod carried;
mod dlpack;
mod exports;
mod held;
mod hold;

pub(crate) use carried::Carried;
pub(crate) use exports::find;
pub(crate) use held::{Bytes, Held, Origin};
pub(crate) use hold::Hold;

use crate::errors::OrRaise as _;
use crate::fork::{ForkEpoch, let_go};
use crate::number::{Number, perhaps};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship::{Aggregate, Body, Buffer as Shared, BufferMut, Inline, Message, Trust};

/// Size from which on copying lets other threads of the interpreter run.
pub(crate) const LARGE: usize = 64 << 10;

/// Bytes in a pool. `memoryview(buffer)` and `numpy.asarray(buffer)` show them without a copy.
///
/// The buffer is writable while no other process can have it: from `Pool.alloc` to the first send, and after a move if
/// the receiver may write. Dropping the last reference, views included, lets the memory be used again.
///
/// >>> import tranship
/// >>> with tranship.embedded() as domain, domain.pool("bytes", 1 << 20) as pool:
/// ...     with pool.alloc(5) as buffer:
/// ...         with memoryview(buffer) as view:
/// ...             view.obj is buffer, view.readonly
/// ...         buffer.freeze()
/// ...         buffer.nbytes, buffer.readonly, bytes(buffer.slice(1, 1))
/// (True, False)
/// (5, True, b'')
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Buffer {
    held: Mutex<Held>,
    /// Views that Python has of it.
    views: AtomicUsize,
    writable_views: AtomicUsize,
    word: u64,
    origin: Origin,
    fork_epoch: ForkEpoch,
}

/// How a buffer's content goes over a channel, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    how: &'static str,
    was: &'static str,
}

pub(crate) const RELEASED: Gone = Gone {
    how: "released",
    was: "was released",
};

pub(crate) const HANDED_BACK: Gone = Gone {
    how: "handed back",
    was: "was handed back",
};

impl Buffer {
    pub(crate) fn new(held: Held, origin: Origin) -> Buffer {
        Buffer::with(held, 0, origin)
    }

    /// Makes the object of a buffer that was allocated for one channel, topic, queue or call: its pool is of level `producer`.
    pub(crate) fn own(buf: BufferMut) -> Buffer {
        let trust = Some(Trust::default());
        let sender_pid = None;
        Buffer::new(Held::Own(buf), Origin { trust, sender_pid })
    }

    /// Returns a buffer that others have, too. All that have one of level `full` write it.
    pub(crate) fn in_common(buffer: Shared) -> Buffer {
        let trust = buffer.trust();
        let held = match trust {
            Trust::Full => Held::Block(buffer),
            _ => Held::Shared(buffer),
        };
        let origin = Origin {
            trust: Some(trust),
            sender_pid: None,
        };
        Buffer::new(held, origin)
    }

    pub(crate) fn received(message: Message, origin: Origin) -> Buffer {
        let held = Held::of(message.body);
        Buffer::with(held, message.word, origin)
    }

    fn with(held: Held, word: u64, origin: Origin) -> Buffer {
        Buffer {
            held: Mutex::new(held),
            views: AtomicUsize::new(0),
            writable_views: AtomicUsize::new(0),
            word,
            origin,
            fork_epoch: ForkEpoch::now(),
        }
    }

    /// Locks it briefly, and never while Python runs.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its content, if it is this process's and was not given back.
    fn held(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Held>> {
        self.fork_epoch.check(py)?;
        let held = self.lock();
        match &*held {
            Held::Gone(how) => Err(PyValueError::new_err(format!("the buffer {how}"))),
            _ => Ok(held),
        }
    }

    fn views(&self) -> usize {
        self.views.load(Ordering::Relaxed) // changes under the GIL
    }

    fn writable_views(&self) -> usize {
        self.writable_views.load(Ordering::Relaxed) // as above
    }

    /// Makes it read-only. Its views must be read-only, too, unless `through_array` says that the caller has made them
    /// so.
    fn freeze_for(&self, held: &mut Held, through_array: bool) -> PyResult<()> {
        self.ask_for(held)?;
        let views = self.writable_views();
        if matches!(held, Held::Own(_)) && views > 0 && !through_array {
            let text = format!(
                "this buffer of {} bytes has {}, and what is sent must not change: release them before, or send the array itself",
                held.len(),
                count(views, "writable view")
            );
            return Err(PyBufferError::new_err(text));
        }
        held.freeze();
        Ok(())
    }

    /// Returns whether it may become read-only while there are arrays, before any of them is made so.
    pub(crate) fn ask(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held(py)?;
        self.ask_for(&held)
    }

    fn ask_for(&self, held: &Held) -> PyResult<()> {
        let views = self.writable_views();
        let Held::Own(buf) = held else { return Ok(()) };
        let which = match (buf.seals(), self.origin.trust) {
            (true, _) => "is one that is sealed for everybody (seal_from)",
            (false, Some(Trust::Half)) => "is in a pool of level \"half\"",
            _ => return Ok(()),
        };
        if views == 0 {
            return Ok(());
        }
        let text = format!(
            "this buffer of {} bytes {which}, where sending makes the pages themselves read-only: it has {}, and writing through it would end the process. Arrays of such a pool are not sent: fill a buffer of alloc(), drop the views, send the buffer",
            held.len(),
            count(views, "writable view")
        );
        Err(PyBufferError::new_err(text))
    }

    /// Returns its memory for sending by reference.
    pub(crate) fn outgoing(&self, py: Python<'_>) -> PyResult<Body> {
        let mut held = self.held(py)?;
        self.freeze_for(&mut held, false)?;
        Ok(match &*held {
            Held::Shared(buf) | Held::Block(buf) => Body::Buffer(buf.clone()),
            Held::Pieces(pieces) => {
                let mut all = Aggregate::new();
                for piece in pieces {
                    let pushed = all.push_back(piece.clone());
                    pushed.map_err(|e| crate::errors::raised(py, &e.error))?;
                }
                Body::Aggregate(all)
            }
            other => Body::Inline(Inline::try_from(&*other.to_vec()).or_raise(py)?),
        })
    }

    /// Returns a part of it, to be sent as a piece, or for an array that lies in it.
    pub(crate) fn part(
        &self,
        py: Python<'_>,
        from: usize,
        len: usize,
        through_array: bool,
    ) -> PyResult<Shared> {
        let mut held = self.held(py)?;
        self.freeze_for(&mut held, through_array)?;
        match &*held {
            Held::Shared(buf) | Held::Block(buf) => Ok(buf.slice(from..from + len)),
            _ => Err(PyValueError::new_err(
                "no part of a pool: it came inside the message, or lies in several buffers",
            )),
        }
    }

    /// Returns it as a whole.
    pub(crate) fn whole(&self, py: Python<'_>) -> PyResult<Shared> {
        let len = self.held(py)?.len();
        self.part(py, 0, len, false)
    }

    /// Takes the only handle out, for a move. Without views only.
    pub(crate) fn take_own(&self, py: Python<'_>) -> PyResult<BufferMut> {
        let mut held = self.held(py)?;
        self.no_views(&held, "moved")?;
        match std::mem::take(&mut *held) {
            Held::Own(buf) => {
                *held = Held::Gone("was moved");
                Ok(buf)
            }
            other => {
                *held = other;
                let text = "the buffer is shared, and what others may have cannot be moved: send it, or move one that was never sent";
                Err(PyValueError::new_err(text))
            }
        }
    }

    /// A move that failed.
    pub(crate) fn give_back(&self, buf: BufferMut) {
        *self.lock() = Held::Own(buf);
    }

    /// Takes out its content, to be released or handed back by a channel. Without views only.
    pub(crate) fn take_body(&self, py: Python<'_>, gone: Gone) -> PyResult<Body> {
        let mut held = self.held(py)?;
        self.no_views(&held, gone.how)?;
        match std::mem::take(&mut *held).into_body() {
            Ok(body) => {
                *held = Held::Gone(gone.was);
                Ok(body)
            }
            Err(same) => {
                *held = same;
                let text = "the buffer did not come by a channel";
                Err(PyValueError::new_err(text))
            }
        }
    }

    /// Takes back the content that a channel did not take.
    pub(crate) fn put_body(&self, body: Body) {
        *self.lock() = Held::of(body);
    }

    fn no_views(&self, held: &Held, what: &str) -> PyResult<()> {
        match self.views() {
            0 => Ok(()),
            views => Err(PyBufferError::new_err(format!(
                "this buffer of {} bytes has {}: it can be {what} when there is none",
                held.len(),
                count(views, "view")
            ))),
        }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.lock_if_ours().map_or(0, |held| held.len())
    }

    /// The length in bytes; 0 when the buffer was released.
    #[getter]
    fn nbytes(&self) -> usize {
        self.__len__()
    }

    /// The word that the sender sent with the bytes.
    #[getter]
    fn word(&self) -> u64 {
        self.word
    }

    /// Whether this process cannot write the bytes.
    #[getter]
    fn readonly(&self) -> bool {
        let bytes = self.lock_if_ours().and_then(|held| held.bytes());
        !bytes.is_some_and(|bytes| bytes.writable)
    }

    /// Whether the buffer was released, sent back or moved away, or belongs to a parent process.
    #[getter]
    fn released(&self) -> bool {
        self.lock_if_ours()
            .is_none_or(|held| matches!(*held, Held::Gone(_)))
    }

    /// Whether this is not a buffer, but the message that the receiver has released one (`Receiver.send_back`). Then
    /// `id` is the released buffer, if both ends know it by the same number, and `word` is the receiver's word.
    #[getter]
    fn is_release(&self) -> bool {
        self.lock_if_ours()
            .is_some_and(|held| matches!(*held, Held::Word(_)))
    }

    /// The buffer's number: the same in every process, while a process holds it.
    #[getter]
    fn id(&self) -> Option<u64> {
        match &*self.lock_if_ours()? {
            Held::Own(buf) => Some(buf.id().0),
            Held::Shared(buf) | Held::Block(buf) => Some(buf.id().0),
            Held::Word(id) => id.map(|id| id.0),
            _ => None,
        }
    }

    /// The trust level of the buffer's pool, if it is known: which processes can write the pool.
    #[getter]
    fn trust(&self) -> Option<&'static str> {
        self.origin.trust.map(Trust::name)
    }

    /// The process that sent the buffer; None for a buffer that was allocated here.
    #[getter]
    fn sender_pid(&self) -> Option<u32> {
        self.origin.sender_pid
    }

    /// The number of views of the buffer.
    #[getter]
    fn exports(&self) -> usize {
        self.views()
    }

    /// Whether no other process can have the buffer.
    #[getter]
    fn unique(&self) -> bool {
        self.lock_if_ours().is_some_and(|held| match &*held {
            Held::Own(_) | Held::Copy(_) | Held::Word(_) => true,
            Held::Shared(buf) => buf.is_unique(),
            _ => false,
        })
    }

    /// The pieces of a message: a list with the buffer itself, or the buffers of a list that was sent.
    #[getter]
    fn pieces<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let this = slf.get();
        let parts: Vec<Shared> = match &*this.held(py)? {
            Held::Pieces(pieces) => pieces.clone(),
            _ => Vec::new(),
        };
        if parts.is_empty() {
            return PyTuple::new(py, [slf]);
        }
        let origin = this.origin;
        let part = |piece| Bound::new(py, Buffer::new(Held::Shared(piece), origin));
        let parts: PyResult<Vec<_>> = parts.into_iter().map(part).collect();
        PyTuple::new(py, parts?)
    }

    fn __repr__(&self) -> String {
        let Some(held) = self.lock_if_ours() else {
            return "<tranship.Buffer of the parent process>".into();
        };
        if let Held::Gone(how) = &*held {
            return format!("<tranship.Buffer, {how}>");
        }
        let bytes = held.len();
        let state = match (&*held, held.bytes()) {
            (Held::Pieces(pieces), _) => format!("read-only, in {} pieces", pieces.len()),
            (_, Some(Bytes { writable: true, .. })) => "writable".into(),
            _ => "read-only".into(),
        };
        let holders = match &*held {
            Held::Own(_) => "held only here",
            Held::Copy(_) => "a copy",
            Held::Word(_) => "the word that something was released",
            Held::Shared(buf) if buf.is_unique() => "held only here",
            _ => "shared",
        };
        let trust = self.origin.trust.map(Trust::name);
        let trust = trust.map_or_else(String::new, |trust| format!(", trust {trust}"));
        let from = self.origin.sender_pid;
        let from = from.map_or_else(String::new, |pid| format!(", from process {pid}"));
        let id = match &*held {
            Held::Own(buf) => Some(buf.id()),
            Held::Shared(buf) | Held::Block(buf) => Some(buf.id()),
            Held::Word(id) => *id,
            _ => None,
        };
        let id = id.map_or_else(String::new, |id| {
            format!(", pool {} slot {}", id.pool().0, id.slot())
        });
        let views = match self.views() {
            0 => String::new(),
            views => format!(", {}", count(views, "view")),
        };
        format!("<tranship.Buffer of {bytes} bytes, {state}, {holders}{trust}{from}{id}{views}>")
    }

    /// Makes the buffer read-only. BufferError while there are writable views.
    fn freeze(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.held(py)?;
        self.freeze_for(&mut held, false)
    }

    fn _ask(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py)
    }

    /// Makes it read-only, with writable views left: the caller has made the arrays read-only.
    fn _freeze_array(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.held(py)?;
        self.freeze_for(&mut held, true)
    }

    /// A part of the buffer, in the same memory. The buffer becomes read-only. `buffer[start:stop]` does this too, and
    /// counts from the end for negative numbers.
    #[pyo3(
        signature = (start=Number::of(0), stop=None),
        text_signature = "($self, start=0, stop=None)"
    )]
    fn slice(&self, py: Python<'_>, start: Number, stop: Option<Number>) -> PyResult<Buffer> {
        let (start, stop) = (start.named("start")?, perhaps(stop, "stop")?);
        let len = self.held(py)?.len();
        let stop = stop.unwrap_or(len);
        if start > stop || stop > len {
            let text = format!("bytes {start} to {stop} of a buffer of {len} bytes");
            return Err(PyIndexError::new_err(text));
        }
        self.cut(py, start, stop)
    }

    /// Returns a byte, or a part like `slice`.
    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = index.py();
        let len = self.held(py)?.len();
        let signed = isize::try_from(len).unwrap_or(isize::MAX);
        if let Ok(slice) = index.cast::<PySlice>() {
            let all = slice.indices(signed)?;
            if all.step != 1 {
                let text = format!("a step of {}: a part has all bytes between", all.step);
                return Err(PyValueError::new_err(text));
            }
            let start = usize::try_from(all.start).unwrap_or(0);
            let stop = usize::try_from(all.stop).unwrap_or(0).max(start);
            return Ok(Bound::new(py, self.cut(py, start, stop)?)?.into_any());
        }
        let index: isize = index.extract()?;
        let at = if index < 0 { index + signed } else { index };
        let byte = usize::try_from(at)
            .ok()
            .and_then(|at| self.held(py).ok()?.byte(at));
        match byte {
            Some(byte) => Ok(byte.into_pyobject(py)?.into_any()),
            None => Err(PyIndexError::new_err(format!(
                "byte {index} of a buffer of {len} bytes"
            ))),
        }
    }

    /// Shortens the buffer to `len` bytes. BufferError while there are views.
    fn truncate(&self, py: Python<'_>, len: Number) -> PyResult<()> {
        let len = len.named("len")?;
        let mut held = self.held(py)?;
        self.no_views(&held, "shortened")?;
        match &mut *held {
            Held::Own(buf) => buf.truncate(len),
            Held::Shared(buf) if len < buf.len() => *buf = buf.slice(..len),
            _ => {}
        }
        Ok(())
    }

    /// A copy of all its bytes.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let held = self.held(py)?;
        let len = held.len();
        let parts: Vec<Bytes> = match &*held {
            Held::Pieces(pieces) => {
                let part = |piece: &Shared| {
                    let ptr = piece.view().as_ptr().cast_mut();
                    let ptr = std::ptr::NonNull::new(ptr)?;
                    let (len, writable) = (piece.len(), false);
                    Some(Bytes { ptr, len, writable })
                };
                pieces.iter().filter_map(part).collect()
            }
            other => other.bytes().into_iter().collect(),
        };
        PyBytes::new_with(py, len, |to| {
            let mut at = 0;
            for part in parts {
                // SAFETY: the bytes of a handle in `held`, which is locked; others may write them meanwhile, which a
                // view allows.
                let view = unsafe { tranship::View::new(part.ptr.as_ptr(), part.len) };
                if let Some(to) = to.get_mut(at..at + part.len) {
                    let _ = view.copy_to_slice(0, to); // as long as the view
                }
                at += part.len;
            }
            Ok(())
        })
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py)
    }

    /// Releases the buffer now. BufferError while there are views. Without this call the buffer is released with its
    /// last view.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.fork_epoch.is_inherited() {
            return Ok(()); // it was never this process's
        }
        let mut held = self.lock();
        self.no_views(&held, "released")?;
        let gone = match &*held {
            Held::Gone(how) => how,
            _ => "was released",
        };
        let was = std::mem::replace(&mut *held, Held::Gone(gone));
        drop(held);
        py.detach(|| drop(was));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// With an error under way views only put the release off, as dropping does: the error is more important.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match kind.is_none() || self.views() == 0 {
            true => self.release(py),
            false => Ok(()),
        }
    }

    /// Pickles it. Protocol 5 takes the bytes out of band, as a view; below it, and without a callback, they are
    /// copied.
    fn __reduce_ex__<'py>(slf: Bound<'py, Self>, protocol: i32) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        drop(slf.get().held(py)?);
        let objects = py.import("tranship._objects")?;
        let rebuilt = objects.getattr("rebuilt")?;
        let in_one = slf.get().lock().bytes().is_some();
        let bytes = match protocol >= 5 && in_one {
            true => py.import("pickle")?.call_method1("PickleBuffer", (&slf,))?,
            false => slf.get().tobytes(py)?.into_any(),
        };
        (rebuilt, (bytes,)).into_pyobject(py)
    }

    /// Fails with the reason: numpy asks for it if there is no view.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let view = py.import("builtins")?.call_method1("memoryview", (slf,))?;
        py.import("tranship._numpy")?
            .call_method1("shown", (view, dtype, copy))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = dlpack::Asked {
            stream: stream.is_some(),
            version: max_version,
            device: dl_device,
            copy,
        };
        // A view like any other: counted, and kept as long as the tensor.
        let py = slf.py();
        let view = py.import("builtins")?.call_method1("memoryview", (&slf,))?;
        let writable = !view.getattr("readonly")?.extract::<bool>()?;
        let bytes = slf.get().held(py)?.bytes();
        let bytes = bytes.map(|bytes| Bytes { writable, ..bytes });
        let bytes = bytes.ok_or_else(|| PyBufferError::new_err("the buffer has no bytes"))?;
        dlpack::capsule(view, bytes, &asked)
    }

    /// # Safety
    /// As the interpreter calls it: `view` is for this to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let filled = this.held(slf.py()).and_then(|held| {
            let bytes = fill(slf.as_any(), &held, view, flags)?;
            this.begin_view(&slf, bytes);
            Ok(())
        });
        if filled.is_err() {
            // SAFETY: as the protocol wants it where there is an error.
            unsafe { (*view).obj = std::ptr::null_mut() };
        }
        filled
    }

    /// # Safety
    /// As the interpreter calls it, once for each view that was given.
    unsafe fn __releasebuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer) {
        let this = slf.get();
        // SAFETY: a view that `fill` filled.
        let (at, writable) = unsafe { ((*view).buf, (*view).readonly == 0) };
        this.end_view(at.addr(), writable, slf.as_ptr());
    }
}

crate::slot::shown!(Buffer, "buffer");

impl Drop for Buffer {
    /// Drops the content. Most is given back in nanoseconds, for which no thread should wait for the GIL again. These
    /// may take a lock, or a system call: a large buffer of our own, and any buffer whose pages are protected.
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        let own = self.origin.sender_pid.is_none() || matches!(held, Held::Own(_));
        if (own || self.origin.trust == Some(Trust::Half)) && held.len() >= LARGE {
            let_go(self.fork_epoch, Some(std::mem::take(held)));
        }
    }
}

impl Buffer {
    /// Locks it. None in a forked child, which has no part in it.
    fn lock_if_ours(&self) -> Option<MutexGuard<'_, Held>> {
        (!self.fork_epoch.is_inherited()).then(|| self.lock())
    }

    /// Counts one view more.
    fn begin_view(&self, object: &Bound<'_, Self>, bytes: Bytes) {
        if self.views.fetch_add(1, Ordering::Relaxed) == 0 {
            exports::insert(bytes.ptr.addr().get(), bytes.len, object.as_ptr());
        }
        if bytes.writable {
            self.writable_views.fetch_add(1, Ordering::Relaxed); // under the GIL
        }
    }

    /// Counts one view less, of the memory at `at`.
    fn end_view(&self, at: usize, writable: bool, object: *mut ffi::PyObject) {
        if writable {
            self.writable_views.fetch_sub(1, Ordering::Relaxed); // under the GIL
        }
        // Relaxed: under the GIL.
        if self.views.fetch_sub(1, Ordering::Relaxed) == 1 {
            exports::remove(at, object);
        }
    }

    /// Returns a part, sharing the memory. It ends writing.
    fn cut(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<Buffer> {
        let mut held = self.held(py)?;
        self.freeze_for(&mut held, false)?;
        Ok(Buffer::new(held.cut(start, stop), self.origin))
    }
}

/// Fills a view of `object`'s, which keeps the memory as long as it lives.
fn fill(
    object: &Bound<'_, PyAny>,
    held: &Held,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<Bytes> {
    let Some(bytes) = held.bytes() else {
        let text = format!(
            "the buffer's {} bytes lie in several pieces: `pieces` has them, `tobytes()` copies them",
            held.len()
        );
        return Err(PyBufferError::new_err(text));
    };
    let Ok(len) = ffi::Py_ssize_t::try_from(bytes.len) else {
        return Err(PyBufferError::new_err("longer than Python can say"));
    };
    if flags & ffi::PyBUF_WRITABLE != 0 && !bytes.writable {
        return Err(PyBufferError::new_err(
            "the buffer is read-only: it was sent, or it is another process's",
        ));
    }
    // SAFETY: the memory stays where it is as long as there are views: no operation that ends `held` is done while
    // views are counted, and the view holds a reference to the object. Other threads may write the memory; code that
    // reads it through Python has to accept that.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            object.as_ptr(),
            bytes.ptr.as_ptr().cast(),
            len,
            c_int::from(!bytes.writable),
            flags,
        )
    };
    if filled != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    Ok(bytes)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
