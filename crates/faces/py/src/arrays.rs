//! Arrays in pools. numpy makes them, in `_numpy.py`. This module makes each further one of a known kind.

use crate::buffer::{Buffer, Hold};
use crate::foreign::{View, array_class, is_array};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A class or a function of Python's, looked up once.
type Known = PyOnceLock<Py<PyAny>>;

fn numpys<'a, 'py>(
    py: Python<'py>,
    known: &'a Known,
    name: &str,
) -> PyResult<&'a Bound<'py, PyAny>> {
    known.import(py, "tranship._numpy", name)
}

/// Makes an array over a buffer of as many bytes as `alloc` is asked for.
pub(crate) fn empty<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    order: &str,
    alloc: impl FnOnce(usize) -> PyResult<Buffer>,
) -> PyResult<Bound<'py, PyAny>> {
    static PLAN: Known = Known::new();
    static PLAN_ONCE: Known = Known::new();
    static ROW: Known = Known::new();
    static SHAPED: Known = Known::new();
    static NOTHING: Known = Known::new();
    let py = shape.py();
    let plan = match numpys(py, &PLAN, "plan")?.call1((shape, dtype)) {
        // A list, perhaps, which cannot be looked up.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            numpys(py, &PLAN_ONCE, "plan_once")?.call1((shape, dtype))?
        }
        plan => plan?,
    };
    let (bytes, is_row, shape): (Option<usize>, bool, Bound<'py, PyAny>) = plan.extract()?;
    let Some(bytes) = bytes else {
        return numpys(py, &NOTHING, "nothing")?.call1((shape, dtype, order));
    };
    let hold = Hold::new(py, alloc(bytes)?)?;
    let row = numpys(py, &ROW, "row")?.call1((hold, dtype))?;
    match is_row {
        true => Ok(row),
        false => numpys(py, &SHAPED, "shaped")?.call1((row, shape, order)),
    }
}

/// Returns an object's bytes as address and length, if they are in one piece, in whatever order.
pub(crate) fn place(value: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    static PLACE: Known = Known::new();
    let py = value.py();
    let plain = array_class(py)?.is_some_and(|class| value.get_type().is(class));
    let is_array = plain || is_array(value)?;
    match View::of(value) {
        Ok(view) if plain || !is_array => Ok((view.address(), view.len())),
        // An object of another class, or of a type or in an order that the buffer protocol cannot express.
        _ if is_array => numpys(py, &PLACE, "place")?.call1((value,))?.extract(),
        view => view.map(|view| (view.address(), view.len())),
    }
}

/// Marks an array, and those that it is a view of, read-only. Other objects stay as they are. Returns whether it was an
/// array.
#[pyfunction]
pub(crate) fn make_readonly(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    let Some(array) = array_class(py)? else {
        return Ok(false);
    };
    let mut next = value.clone();
    while next.is_instance(array)? {
        next.call_method1(intern!(py, "setflags"), (false,))?;
        next = next.getattr(intern!(py, "base"))?;
    }
    Ok(!next.is(value))
}
