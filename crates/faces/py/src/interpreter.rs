//! The module belongs to the main interpreter: a dropped object takes the GIL as that one's.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Refuses a subinterpreter: in it the end of an object would wait for the GIL that its own thread holds, for ever.
pub(crate) fn check(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the GIL is held, so that there is a current interpreter; it lives as long as this call.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match id {
        0 => Ok(()),
        id => Err(PyImportError::new_err(format!(
            "tranship is for the main interpreter, and this is subinterpreter {id}: use threads or processes"
        ))),
    }
}
