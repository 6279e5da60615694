//! Views of other objects' bytes: of arrays, `bytes`, whatever has the buffer protocol.

use crate::buffer::{Buffer, Held, Origin, find};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use tranship::BufferMut;

/// An object's bytes, in one piece and in C's order. Given back when it is dropped.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: the bytes of a view may be read from any thread, and it is given back with the GIL.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// # Errors
    /// The object's error: it has no such bytes.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        // SAFETY: fills the view, or says that it did not.
        let got = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_SIMPLE)
        };
        if got != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let view = Box::into_raw(view).cast::<ffi::Py_buffer>();
        // SAFETY: it was just filled, and comes from a box.
        Ok(View(unsafe { Box::from_raw(view) }))
    }

    /// Returns a [`View::of`] data that is to be copied for others: no addresses are in it.
    ///
    /// # Errors
    /// TypeError: there are.
    pub(crate) fn of_data(object: &Bound<'_, PyAny>) -> PyResult<View> {
        if has_addresses(object)? {
            let text = format!(
                "a {} has addresses in it, which are this process's alone: send_object() sends what they lead to",
                object.get_type().qualname()?
            );
            return Err(PyTypeError::new_err(text));
        }
        View::of(object)
    }

    pub(crate) fn address(&self) -> usize {
        self.0.buf.addr()
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or(0)
    }

    /// # Safety
    /// `len` bytes from `to` on may be written, and are no part of this.
    unsafe fn copy_to(&self, to: *mut u8, len: usize) {
        // SAFETY: the view keeps its bytes; a thread that changes them meanwhile causes a mixed copy.
        let from = unsafe { tranship::View::new(self.0.buf.cast(), len.min(self.len())) };
        // SAFETY: as the caller says.
        unsafe { from.copy_to(to) };
    }

    /// Copies it into a new buffer of a pool's, as far as that has room.
    pub(crate) fn copy_into(&self, buf: &mut BufferMut) {
        let len = buf.len().min(self.len());
        let Some(to) = buf.writable_ptr() else {
            return; // memory that was just allocated can be written
        };
        // SAFETY: the buffer is ours alone, mapped for writing and `len` long, and overlaps nothing that Python has: it
        // was just allocated.
        unsafe { self.copy_to(to, len) };
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len()];
        // SAFETY: as long as the view, and new.
        unsafe { self.copy_to(all.as_mut_ptr(), all.len()) };
        all
    }

    /// Returns the `Buffer` that these bytes lie in, and their place.
    pub(crate) fn buffer<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, Buffer>, usize)> {
        lies_in(py, self.0.buf.addr(), self.len())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let view = &mut *self.0;
        // None if the interpreter is going down.
        let _ = Python::try_attach(|_| {
            // SAFETY: given back once, with the GIL.
            unsafe { ffi::PyBuffer_Release(view) }
        });
    }
}

/// Returns whether an object's bytes are addresses, to Python's objects or to C's memory. An object that cannot tell
/// its kind of bytes has none.
fn has_addresses(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_exact_instance_of::<PyBytes>() || object.is_exact_instance_of::<Buffer>() {
        return Ok(false);
    }
    if is_array(object)? {
        return object.getattr("dtype")?.getattr("hasobject")?.extract();
    }
    let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
    // SAFETY: fills the view, or says that it did not.
    let got =
        unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_FULL_RO) };
    if got != 0 {
        drop(PyErr::take(object.py()));
        return Ok(false);
    }
    let view = Box::into_raw(view).cast::<ffi::Py_buffer>();
    // SAFETY: it was just filled, and comes from a box.
    let view = View(unsafe { Box::from_raw(view) });
    if view.0.format.is_null() {
        return Ok(false);
    }
    // SAFETY: a text that ends, and stays as long as the view.
    Ok(names_addresses(
        unsafe { CStr::from_ptr(view.0.format) }.to_bytes(),
    ))
}

/// Returns whether a format, as the buffer protocol has them, has an address. Names of fields stand between colons.
fn names_addresses(format: &[u8]) -> bool {
    let kinds = format.split(|&byte| byte == b':').step_by(2);
    let has = |kind: &[u8]| {
        let complex = |at: usize| matches!(kind.get(at + 1), Some(b'd' | b'f' | b'g'));
        let mut all = kind.iter().enumerate();
        all.any(|(at, byte)| match byte {
            b'O' | b'P' | b'z' | b'&' | b'X' => true,
            b'Z' => !complex(at),
            _ => false,
        })
    };
    kinds.into_iter().any(has)
}

/// Returns the `Buffer` that these bytes lie in, and their place, or None. They stay where they are meanwhile: the
/// caller holds their owner.
#[pyfunction]
pub(crate) fn lies_in(
    py: Python<'_>,
    address: usize,
    length: usize,
) -> Option<(Bound<'_, Buffer>, usize)> {
    let (object, at) = find(py, address, length)?;
    Some((object.cast_into().ok()?, at))
}

/// Returns the `Buffer` that an object's bytes lie in, and their place, or None: they are not in a pool.
#[pyfunction]
pub(crate) fn in_pool<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, Buffer>, usize, usize)>> {
    let view = View::of(object)?;
    let found = view.buffer(object.py());
    Ok(found.map(|(buffer, at)| (buffer, at, view.len())))
}

/// Returns a buffer of its own with a copy of an object's bytes, in no pool: a pickled buffer becomes such a buffer
/// elsewhere.
#[pyfunction]
pub(crate) fn copied(data: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let bytes = View::of(data)?.to_vec();
    Ok(Buffer::new(Held::Copy(bytes.into()), Origin::default()))
}

/// Returns the class of arrays. There are no arrays before numpy is there.
pub(crate) fn array_class(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyAny>>> {
    static ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(array) = ARRAY.get(py) {
        return Ok(Some(array.bind(py)));
    }
    let modules = py.import("sys")?.getattr("modules")?;
    match modules.contains("numpy")? {
        true => ARRAY.import(py, "numpy", "ndarray").map(Some),
        false => Ok(None),
    }
}

pub(crate) fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = array_class(value.py())?;
    class.map_or(Ok(false), |class| value.is_instance(class))
}
