//! `tranship.Pool`: source of buffers.

use crate::arrays;
use crate::buffer::{Buffer, Held, LARGE, Origin};
use crate::errors::{OrRaise as _, raised};
use crate::foreign::{View, is_array};
use crate::number::Number;
use crate::slot::{Slot, closes, shown};
use crate::wait::{By, limit, wait};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tranship::{BufferMut, Error, ErrorKind, Trust};

/// Memory of this process, out of which buffers are sent. Every process that receives from it can read all of it.
///
/// >>> import tranship
/// >>> with tranship.embedded() as domain, domain.pool("images", 1 << 20) as pool:
/// ...     pool.empty((2, 3), "f4").shape, pool.alloc(100).nbytes, bytes(pool.copy(b"bytes"))
/// ((2, 3), 100, b'bytes')
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Pool {
    held: Slot<tranship::Pool>,
    name: String,
}

impl Pool {
    pub(crate) fn new(pool: tranship::Pool, name: String) -> Pool {
        Pool {
            held: Slot::new(pool, "pool"),
            name,
        }
    }

    /// Returns a handle of it.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<tranship::Pool> {
        self.held.get(py)
    }

    /// Returns a buffer with the bytes that the memory held before.
    fn fresh(
        &self,
        py: Python<'_>,
        bytes: usize,
        timeout: Option<f64>,
    ) -> PyResult<(BufferMut, Origin)> {
        let pool = self.get(py)?;
        let timeout = limit(timeout)?;
        let origin = Origin {
            trust: Some(pool.trust()),
            sender_pid: None,
        };
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        // Most are there at once. A buffer that is not may mean news of the manager's, or a wait.
        let tried = match bytes >= LARGE {
            true => py.detach(|| pool.try_alloc(bytes)),
            false => pool.try_alloc(bytes),
        };
        let buf = match tried {
            Err(error) if error == ErrorKind::OutOfMemory && !at_once => {
                wait(py, timeout, By::Time, |turn| {
                    pool.alloc_timeout(bytes, turn.slice).map(Some)
                })?
            }
            tried => tried.or_raise(py)?,
        };
        Ok((buf, origin))
    }

    pub(crate) fn buffer(
        &self,
        py: Python<'_>,
        bytes: usize,
        timeout: Option<f64>,
    ) -> PyResult<Buffer> {
        let (buf, origin) = self.fresh(py, bytes, timeout)?;
        Ok(Buffer::new(Held::Own(buf), origin))
    }
}

#[pymethods]
impl Pool {
    /// A writable buffer, with the bytes that the memory held before. Waits for memory that receivers still hold, at
    /// most `timeout` seconds.
    #[pyo3(signature = (nbytes, *, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: Number, timeout: Option<f64>) -> PyResult<Buffer> {
        self.buffer(py, nbytes.named("nbytes")?, timeout)
    }

    /// A buffer that this process and every process that gets it may write. `BadArgument`: the pool's level is not
    /// `full`.
    #[pyo3(signature = (nbytes, *, timeout=None))]
    fn block(&self, py: Python<'_>, nbytes: Number, timeout: Option<f64>) -> PyResult<Buffer> {
        let (buf, origin) = self.fresh(py, nbytes.named("nbytes")?, timeout)?;
        if origin.trust != Some(Trust::Full) {
            let text = format!(
                "pool {:?} is of level {}: others can write a pool of level \"full\" alone",
                self.name,
                origin.trust.map_or("none", Trust::name)
            );
            return Err(raised(py, &Error::new(ErrorKind::BadArgument, text)));
        }
        Ok(Buffer::in_common(buf.freeze()))
    }

    /// A buffer with a copy of an object's bytes.
    #[pyo3(signature = (data, *, timeout=None))]
    fn copy(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Buffer> {
        // An object that does not lie in one piece is put together first, which is a copy more.
        let view = View::of_data(data).or_else(|refused| {
            if refused.is_instance_of::<PyTypeError>(py) {
                return Err(refused);
            }
            let whole = match is_array(data)? {
                true => data.clone(),
                false => {
                    let whole = py.import("builtins")?.call_method1("memoryview", (data,));
                    whole.map_err(|_: PyErr| refused)?
                }
            };
            View::of(&whole.call_method0("tobytes")?)
        })?;
        let (mut buf, origin) = self.fresh(py, view.len(), timeout)?;
        match view.len() >= LARGE {
            true => py.detach(|| view.copy_into(&mut buf)),
            false => view.copy_into(&mut buf),
        }
        Ok(Buffer::new(Held::Own(buf), origin))
    }

    /// A numpy array in the pool, which is sent without a copy. It has the bytes that the memory held before.
    #[pyo3(signature = (shape, dtype=None, order="C", *, timeout=None))]
    fn empty<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
        order: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        arrays::empty(shape, dtype, order, |bytes| self.buffer(py, bytes, timeout))
    }

    /// A numpy array in the pool, of zeros.
    #[pyo3(signature = (*arguments, **named), text_signature = "($self, shape, dtype=None, order='C', *, timeout=None)")]
    fn zeros<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        array(slf, "zeros", arguments, named)
    }

    /// A numpy array in the pool with a copy of `data`.
    #[pyo3(signature = (*arguments, **named), text_signature = "($self, data, dtype=None, *, timeout=None)")]
    fn array<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        array(slf, "array", arguments, named)
    }

    /// The name of the pool.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The manager's number of it.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.id().0)
    }

    /// The most bytes that the pool can ever have.
    #[getter]
    fn max_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.max_bytes())
    }

    /// The bytes that the pool may have now.
    #[getter]
    fn quota_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.stats().quota_bytes)
    }

    /// The trust level: which processes can write it.
    #[getter]
    fn trust(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.get(py)?.trust().name())
    }

    /// Counters of this process since the pool was made.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.get(py)?.stats();
        let all = PyDict::new(py);
        all.set_item("allocs", stats.allocs)?;
        all.set_item("frees", stats.frees)?;
        all.set_item("cached", stats.cached)?;
        all.set_item("chunk_bytes_present", stats.chunk_bytes_present)?;
        all.set_item("quota_bytes", stats.quota_bytes)?;
        all.set_item("collected", stats.collected)?;
        all.set_item("collections", stats.collections)?;
        all.set_item("collect_ns", stats.collect_ns)?;
        all.set_item("blocked_ns", stats.blocked_ns)?;
        all.set_item("waiting", stats.waiting)?;
        Ok(all)
    }

    /// Lets a domain that receives buffers of this pool send them on.
    fn allow_forward(&self, py: Python<'_>, domain: Number) -> PyResult<()> {
        let domain = domain.named("domain")?;
        let pool = self.get(py)?;
        let allowed = py.detach(|| pool.allow_forward(tranship::DomainId(domain)));
        allowed.map_err(|error| raised(py, &error))
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        self.held.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let Ok(pool) = self.get(py) else {
            return format!("<tranship.Pool {:?}, not open here>", self.name);
        };
        format!(
            "<tranship.Pool {:?}, id {}, at most {} bytes, trust {}>",
            self.name,
            pool.id().0,
            pool.max_bytes(),
            pool.trust().name()
        )
    }
}

closes!(Pool);
shown!(Pool, "pool");

/// Arrays are made in Python, where numpy is.
fn array<'py>(
    pool: &Bound<'py, Pool>,
    what: &str,
    arguments: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = pool.py();
    let make = py.import("tranship._numpy")?.getattr(what)?;
    let with_pool = PyTuple::new(py, [pool.as_any()])?.add(arguments)?;
    make.call(with_pool.cast_into::<PyTuple>()?, named)
}
