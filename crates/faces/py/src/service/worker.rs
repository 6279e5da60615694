//! `tranship.Service`: the worker's side.

use super::Request;
use crate::errors::{OrRaise as _, closed};
use crate::pending::{Made, Pending};
use crate::slot::{Slot, closes, iterates};
use crate::wait::{By, Turn, Waits, limit, wait};
use pyo3::prelude::*;
use tranship::service;

/// A name at which clients call. Any number of threads and tasks may take requests: the idle one gets the next.
///
/// Closing it, or leaving its `with`, ends the service.
///
#[doc = include_str!("example.txt")]
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Service {
    held: Slot<service::Service>,
    /// The service's name.
    #[pyo3(get)]
    name: String,
    waits: Waits,
}

impl Service {
    pub(crate) fn new(service: service::Service, name: &str) -> Service {
        Service {
            held: Slot::new(service, "service"),
            name: name.to_owned(),
            waits: Waits::new(By::Time),
        }
    }
}

#[pymethods]
impl Service {
    /// The next request. Waits for it, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Request> {
        let service = self.held.get(py)?;
        let came = wait(
            py,
            limit(timeout)?,
            self.waits.by,
            |Turn { slice, .. }| match self.waits.are_over() {
                true => Ok(Some(None)),
                false => service.recv_timeout(slice).map(|came| Some(Some(came))),
            },
        )?;
        came.map(Request::new).ok_or_else(|| closed("service"))
    }

    /// The next request, if there is one.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Request>> {
        let service = self.held.get(py)?;
        let came = py.detach(|| service.try_recv()).or_raise(py)?;
        Ok(came.map(Request::new))
    }

    /// Awaits the next request. Any number of tasks may.
    fn recv_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let service = self.held.get(py)?;
        let came = async move {
            let request = Request::new(service.recv_async().await?);
            let made: Made = Box::new(|py| Ok(Bound::new(py, request)?.into_any()));
            Ok(made)
        };
        Pending::awaited(py, Box::pin(came), None)
    }

    /// Never ends by itself.
    fn __next__(&self, py: Python<'_>) -> PyResult<Request> {
        self.recv(py, None)
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.recv_async(py)
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        self.waits.end();
        self.held.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<tranship.Service {:?}>", self.name)
    }
}

iterates!(Service);
closes!(Service);
