//! Arrays in pools. numpy makes them, in `_numpy.py`; here is what each new one of a kind that was there before takes.

use crate::buffer::Buffer;
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

/// An array over a buffer of as many bytes as `alloc` is asked for.
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
    let (bytes, is_row, shape): (usize, bool, Bound<'py, PyAny>) = plan.extract()?;
    if bytes == 0 {
        return numpys(py, &NOTHING, "nothing")?.call1((shape, dtype, order));
    }
    let buffer = Bound::new(py, alloc(bytes)?)?;
    let row = numpys(py, &ROW, "row")?.call1((buffer, dtype))?;
    match is_row {
        true => Ok(row),
        false => numpys(py, &SHAPED, "shaped")?.call1((row, shape, order)),
    }
}

/// Marks an array, and those that it is a view of, read-only. Other objects stay as they are. Whether it was an array.
#[pyfunction]
pub(crate) fn make_readonly(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static ARRAY: Known = Known::new();
    let py = value.py();
    let array = match ARRAY.get(py) {
        Some(array) => array.bind(py),
        None => {
            // Nobody has an array before numpy is there.
            let modules = py.import("sys")?.getattr("modules")?;
            if !modules.contains("numpy")? {
                return Ok(false);
            }
            ARRAY.import(py, "numpy", "ndarray")?
        }
    };
    let mut next = value.clone();
    while next.is_instance(array)? {
        next.call_method1(intern!(py, "setflags"), (false,))?;
        next = next.getattr(intern!(py, "base"))?;
    }
    Ok(!next.is(value))
}
