//! Views of other objects' bytes: of arrays, `bytes`, whatever has the buffer protocol.

use crate::buffer::{Buffer, find};
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::MaybeUninit;
use tranship::CbufMut;

/// An object's bytes, in one piece and in C's order. Given back when it is dropped.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: the bytes of a view may be read from any thread, and it is given back with the GIL.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// # Errors
    /// What the object says: it has no such bytes.
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

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or(0)
    }

    /// # Safety
    /// `len` bytes from `to` on may be written, and are no part of this.
    unsafe fn copy_to(&self, to: *mut u8, len: usize) {
        // SAFETY: the view keeps its bytes; who changes them meanwhile gets a mixture copied.
        let from = unsafe { tranship::View::new(self.0.buf.cast(), len.min(self.len())) };
        // SAFETY: as the caller says.
        unsafe { from.copy_to(to) };
    }

    /// Copies it into a new buffer of a pool's, as far as that has room.
    pub(crate) fn copy_into(&self, buf: &mut CbufMut) {
        let len = buf.len().min(self.len());
        let Some(to) = buf.writable_ptr() else {
            return; // what was just allocated can be written
        };
        // SAFETY: the buffer is ours alone, mapped for writing and `len` long, and overlaps nothing that Python has: it was just
        // allocated.
        unsafe { self.copy_to(to, len) };
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len()];
        // SAFETY: as long as the view, and new.
        unsafe { self.copy_to(all.as_mut_ptr(), all.len()) };
        all
    }

    /// The `Buffer` that these bytes lie in, and where.
    pub(crate) fn buffer<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, Buffer>, usize)> {
        let (object, at) = find(py, self.0.buf.addr(), self.len())?;
        Some((object.cast_into().ok()?, at))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let view = &mut *self.0;
        // None where the interpreter is going down.
        let _ = Python::try_attach(|_| {
            // SAFETY: given back once, with the GIL.
            unsafe { ffi::PyBuffer_Release(view) }
        });
    }
}

/// The `Buffer` that an object's bytes lie in, and where, or None: they are not in a pool.
#[pyfunction]
pub(crate) fn in_pool<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, Buffer>, usize, usize)>> {
    let view = View::of(object)?;
    let found = view.buffer(object.py());
    Ok(found.map(|(buffer, at)| (buffer, at, view.len())))
}
