//! The facade's errors as Python's. The classes themselves are in `python/tranship/_errors.py`.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tranship::{Error, ErrorKind};

/// Returns (number, name, errno, meaning) of all kinds.
pub(crate) fn kinds() -> Vec<(u16, &'static str, i32, &'static str)> {
    let row = |kind: &ErrorKind| {
        (
            *kind as u16,
            kind.name(),
            tranship::Error::from(*kind).errno(),
            kind.meaning(),
        )
    };
    ErrorKind::ALL.iter().map(row).collect()
}

/// Returns the exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "tranship._errors", "make");
    let made =
        make.and_then(|make| make.call1((error.kind() as u16, error.errno(), error.to_string())));
    made.map_or_else(|failed| failed, PyErr::from_value)
}

/// A result of the facade's as one of Python's.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}

/// Returns the error of a closed object, as Python has it for a closed file.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("the {what} is closed"))
}

/// Returns the error of an object that cannot go to another process.
pub(crate) fn not_pickled(class: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "cannot pickle 'tranship.{class}' object: it belongs to this process. The other process connects to the same manager (Domain.socket_path), and makes its own; a Buffer can be pickled"
    ))
}

/// Returns the error for two tasks that do a thing that only one can do.
pub(crate) fn busy(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}
