//! Base object of an array over a pool's memory: numpy asks it again whether the memory may be written when a program
//! sets `flags.writeable`.

use super::Buffer;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

/// A view of a buffer, for the array that is made over it. A `memoryview` in its place would stay writable for ever.
///
/// It has no `__releasebuffer__`: numpy would put a `memoryview` between.
#[pyclass(frozen, name = "_Hold", module = "tranship._native")]
pub(crate) struct Hold(Py<Buffer>);

impl Hold {
    pub(crate) fn new<'py>(py: Python<'py>, buffer: Buffer) -> PyResult<Bound<'py, Hold>> {
        let buffer = Bound::new(py, buffer)?;
        if let Some(bytes) = buffer.get().held(py)?.bytes() {
            buffer.get().begin_view(&buffer, bytes);
        }
        Bound::new(py, Hold(buffer.unbind()))
    }
}

#[pymethods]
impl Hold {
    /// # Safety
    /// As the interpreter calls it: `view` is for this to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let py = slf.py();
        let filled = slf
            .get()
            .0
            .get()
            .held(py)
            .and_then(|held| super::fill(slf.as_any(), &held, view, flags));
        if filled.is_err() {
            // SAFETY: as the protocol wants it where there is an error.
            unsafe { (*view).obj = std::ptr::null_mut() };
        }
        filled.map(drop)
    }
}

impl Drop for Hold {
    /// Drops it with the GIL, as every object.
    fn drop(&mut self) {
        let buffer = self.0.get();
        let bytes = buffer.lock_if_ours().and_then(|held| held.bytes());
        // Writable when the view was taken: arrays are made over memory that was just allocated.
        let at = bytes.map_or(0, |bytes| bytes.ptr.addr().get());
        buffer.end_view(at, true, self.0.as_ptr());
    }
}
