//! `tranship.admin.Admin`.

use crate::domain::Domain;
use crate::errors::{OrRaise as _, raised};
use crate::number::Number;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use tranship::PoolId;

/// An operator's questions to the manager, and to the domain that it is of (`Domain.admin`).
#[pyclass(frozen, module = "tranship.admin")]
pub(crate) struct Admin(Py<Domain>);

impl Admin {
    pub(crate) fn of(domain: Bound<'_, Domain>) -> Admin {
        Admin(domain.unbind())
    }

    fn domain(&self, py: Python<'_>) -> PyResult<Arc<tranship::Domain>> {
        self.0.get().get(py)
    }
}

#[pymethods]
impl Admin {
    /// Whether its manager is there.
    #[getter]
    fn is_managed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.domain(py)?.admin().is_managed())
    }

    /// The manager's figures: of itself, domains, pools, channels, and the holders of buffers.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domain = self.domain(py)?;
        let records = py.detach(|| domain.admin().stat()).or_raise(py)?;
        crate::stat::dict(py, records)
    }

    /// The buffers that this domain holds: those of others, and with TRANSHIP_LEAKS=1 its own, with their age and
    /// channel.
    fn leaks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domain = self.domain(py)?;
        crate::stat::leaks(py, &py.detach(|| domain.admin().leaks()))
    }

    /// Sets the quota of a pool, by its `id`. Returns the bytes that the manager gave it.
    fn set_quota(&self, py: Python<'_>, pool: Number, quota_bytes: Number) -> PyResult<u64> {
        let domain = self.domain(py)?;
        let (pool, quota_bytes) = (pool.named("pool")?, quota_bytes.named("quota_bytes")?);
        let set = py.detach(|| domain.admin().set_quota(PoolId(pool), quota_bytes));
        set.map_err(|error| raised(py, &error))
    }
}
