//! `tranship.Domain`: the process's membership with a manager.

use crate::errors::{OrRaise as _, closed, raised};
use crate::fork::{ForkEpoch, let_go};
use crate::listener::Listener;
use crate::number::{Number, perhaps};
use crate::pending::{End, Pending};
use crate::pool::Pool;
use crate::receiver::{Receiver, Told};
use crate::sender::Sender;
use crate::wait::{By, awaited, by, limit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tranship::{Awaited, DomainBuilder, LinkOptions, PoolId, PoolOptions, Role, Trust, Wait};

/// This process's membership with a manager. A forked child connects anew.
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Domain {
    domain: Mutex<Option<Arc<tranship::Domain>>>,
    /// Trust levels of pools, kept apart from the domain: all receivers report them.
    told: Told,
    fork_epoch: ForkEpoch,
}

/// Options of a domain.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Choices {
    name: Option<String>,
    socket: Option<PathBuf>,
    autostart: bool,
    program: Option<PathBuf>,
    helper_thread: bool,
    non_dumpable: bool,
    /// Seconds.
    manager_timeout: f64,
}

impl Choices {
    fn builder(self) -> PyResult<DomainBuilder> {
        let limit = limit(Some(self.manager_timeout))?;
        let mut builder = tranship::Domain::builder()
            .manager_timeout(limit.unwrap_or(Duration::MAX))
            .autostart(self.autostart)
            .helper_thread(self.helper_thread);
        if let Some(name) = &self.name {
            builder = builder.name(name);
        }
        if let Some(socket) = self.socket {
            builder = builder.socket(socket);
        }
        if let Some(program) = self.program {
            builder = builder.manager_program(program);
        }
        Ok(match self.non_dumpable {
            true => builder.non_dumpable(),
            false => builder,
        })
    }
}

/// Joins a manager; `tranship.connect` describes the choices.
#[pyfunction]
pub(crate) fn connect(py: Python<'_>, choices: &Bound<'_, PyDict>) -> PyResult<Domain> {
    let builder = choices.extract::<Choices>()?.builder()?;
    let domain = py.detach(|| builder.connect()).or_raise(py)?;
    tranship::net::add_to(&domain).or_raise(py)?;
    Ok(Domain::new(domain))
}

/// Runs a manager in this process.
#[pyfunction]
pub(crate) fn embedded(py: Python<'_>, choices: &Bound<'_, PyDict>) -> PyResult<Domain> {
    let builder = choices.extract::<Choices>()?.builder()?;
    let domain = py.detach(|| builder.embedded()).or_raise(py)?;
    tranship::net::add_to(&domain).or_raise(py)?;
    Ok(Domain::new(domain))
}

/// Returns the role of this side.
fn role(name: &str) -> PyResult<Role> {
    match name {
        "send" => Ok(Role::Source),
        "receive" => Ok(Role::Sink),
        other => Err(PyValueError::new_err(format!(
            "role {other:?}: it is \"send\" or \"receive\""
        ))),
    }
}

fn trust(name: &str) -> PyResult<Trust> {
    let found = Trust::ALL.into_iter().find(|trust| trust.name() == name);
    found.ok_or_else(|| {
        PyValueError::new_err(format!(
            "trust {name:?}: it is \"none\", \"producer\", \"half\" or \"full\""
        ))
    })
}

fn options(lines: Number, wait: &str) -> PyResult<(LinkOptions, Wait)> {
    let wait = match wait {
        "spin-then-sleep" => Wait::default(),
        "spin" => Wait::Spin,
        "sleep" => Wait::Sleep,
        other => {
            return Err(PyValueError::new_err(format!(
                "wait {other:?}: it is \"spin-then-sleep\", \"spin\" or \"sleep\""
            )));
        }
    };
    let options = LinkOptions::new().lines(lines.named("lines")?).wait(wait);
    Ok((options, wait))
}

impl Domain {
    fn new(domain: tranship::Domain) -> Domain {
        Domain {
            domain: Mutex::new(Some(Arc::new(domain))),
            told: Told::default(),
            fork_epoch: ForkEpoch::now(),
        }
    }

    fn receiving(
        &self,
        py: Python<'_>,
        lines: Number,
        snapshots: Option<&Pool>,
        wait: &str,
    ) -> PyResult<(LinkOptions, By)> {
        let (options, wait) = options(lines, wait)?;
        let mut options = self.told.options(options);
        if let Some(pool) = snapshots {
            options = options.snapshots(pool.get(py)?.id());
        }
        Ok((options, by(wait)))
    }

    fn get(&self, py: Python<'_>) -> PyResult<Arc<tranship::Domain>> {
        self.fork_epoch.check(py)?;
        let domain = self.domain.lock().unwrap_or_else(PoisonError::into_inner);
        domain.clone().ok_or_else(|| closed("domain"))
    }
}

#[pymethods]
impl Domain {
    /// Makes a pool of at most so many bytes. `trust` says which processes can write it besides this one: by default
    /// none. At "half" and "full" every process that has the pool can punch holes into its memory: a reader that
    /// touches a hole pays for the page. Buffers begin at multiples of `align`; `below` is the address below which all
    /// of it is mapped in this process. At level "none" buffers of at least `seal_from` bytes are not copied by their
    /// receivers: no process can write them once they are sent. With `allow_forward` all receivers of its buffers may
    /// send them on.
    #[pyo3(
        signature = (
            name, max_bytes, *, slots=None, chunk_bytes=None, trust="producer", keep=Number::of(0), preallocate=Number::of(0),
            huge_pages=false, align=None, below=None, seal_from=None, allow_forward=false
        ),
        text_signature = "($self, name, max_bytes, *, slots=None, chunk_bytes=None, trust='producer', keep=0, preallocate=0, huge_pages=False, align=None, below=None, seal_from=None, allow_forward=False)"
    )]
    #[expect(clippy::too_many_arguments, reason = "by name, in Python")]
    fn pool(
        &self,
        py: Python<'_>,
        name: &str,
        max_bytes: Number,
        slots: Option<Number>,
        chunk_bytes: Option<Number>,
        trust: &str,
        keep: Number,
        preallocate: Number,
        huge_pages: bool,
        align: Option<Number>,
        below: Option<Number>,
        seal_from: Option<Number>,
        allow_forward: bool,
    ) -> PyResult<Pool> {
        let domain = self.get(py)?;
        let mut options = PoolOptions::new(max_bytes.named("max_bytes")?)
            .name(name)
            .trust(self::trust(trust)?)
            .keep(keep.named("keep")?)
            .preallocate(preallocate.named("preallocate")?)
            .huge_pages(huge_pages)
            .allow_forward(allow_forward);
        if let Some(slots) = perhaps(slots, "slots")? {
            options = options.slots(slots);
        }
        if let Some(bytes) = perhaps(chunk_bytes, "chunk_bytes")? {
            options = options.chunk_bytes(bytes);
        }
        if let Some(bytes) = perhaps(align, "align")? {
            options = options.align(bytes);
        }
        if let Some(address) = perhaps(below, "below")? {
            options = options.below(address);
        }
        if let Some(bytes) = perhaps(seal_from, "seal_from")? {
            options = options.seal_from(bytes);
        }
        let pool = py.detach(|| domain.create_pool(options)).or_raise(py)?;
        Ok(Pool::new(pool, name.to_owned()))
    }

    /// Exports a name, at which other processes open the other end. `wait` is how this end waits: it polls for some
    /// microseconds and then sleeps ("spin-then-sleep"), sleeps at once ("sleep"), or keeps a processor busy until
    /// there is a message ("spin").
    #[pyo3(signature = (name, role, *, lines=Number::of(256), wait="spin-then-sleep"), text_signature = "($self, name, role, *, lines=256, wait='spin-then-sleep')")]
    fn listen(
        &self,
        py: Python<'_>,
        name: &str,
        role: &str,
        lines: Number,
        wait: &str,
    ) -> PyResult<Listener> {
        let (domain, role) = (self.get(py)?, self::role(role)?);
        let (options, wait) = options(lines, wait)?;
        let options = self.told.options(options);
        let made = py.detach(|| domain.listen_with(name, role, options));
        Ok(Listener::new(
            made.or_raise(py)?,
            name.to_owned(),
            self.told.clone(),
            by(wait),
        ))
    }

    /// Connects to a name at which a process receives; waits for it.
    #[pyo3(signature = (name, *, timeout=None, lines=Number::of(256), wait="spin-then-sleep"), text_signature = "($self, name, *, timeout=None, lines=256, wait='spin-then-sleep')")]
    fn sender(
        &self,
        py: Python<'_>,
        name: &str,
        timeout: Option<f64>,
        lines: Number,
        wait: &str,
    ) -> PyResult<Sender> {
        let domain = self.get(py)?;
        let (options, wait) = options(lines, wait)?;
        let opened = domain.open_sender_async(name, options);
        let made = awaited(
            py,
            limit(timeout)?,
            &Awaited::Offer(name.to_owned()),
            opened,
        )?;
        Ok(Sender::new(made, by(wait)))
    }

    /// Connects to a name at which a process sends; waits for it. Messages out of pools of level "none" are copied
    /// into the pool `snapshots`.
    #[pyo3(signature = (name, *, timeout=None, lines=Number::of(256), wait="spin-then-sleep", snapshots=None), text_signature = "($self, name, *, timeout=None, lines=256, wait='spin-then-sleep', snapshots=None)")]
    fn receiver(
        &self,
        py: Python<'_>,
        name: &str,
        timeout: Option<f64>,
        lines: Number,
        wait: &str,
        snapshots: Option<&Pool>,
    ) -> PyResult<Receiver> {
        let domain = self.get(py)?;
        let (options, by) = self.receiving(py, lines, snapshots, wait)?;
        let opened = domain.open_receiver_async(name, options);
        let made = awaited(
            py,
            limit(timeout)?,
            &Awaited::Offer(name.to_owned()),
            opened,
        )?;
        Ok(Receiver::new(made, self.told.clone(), by))
    }

    /// Connects like `sender`, and awaits it.
    #[pyo3(signature = (name, *, lines=Number::of(256), wait="spin-then-sleep"), text_signature = "($self, name, *, lines=256, wait='spin-then-sleep')")]
    fn sender_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        lines: Number,
        wait: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (options, wait) = options(lines, wait)?;
        let opened = self.get(py)?.open_sender_async(name, options);
        let opened = async move { opened.await.map(End::Sender) };
        Pending::awaited(py, opened, None, &self.told, by(wait))
    }

    /// Connects like `receiver`, and awaits it.
    #[pyo3(signature = (name, *, lines=Number::of(256), wait="spin-then-sleep", snapshots=None), text_signature = "($self, name, *, lines=256, wait='spin-then-sleep', snapshots=None)")]
    fn receiver_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        lines: Number,
        wait: &str,
        snapshots: Option<&Pool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (options, by) = self.receiving(py, lines, snapshots, wait)?;
        let opened = self.get(py)?.open_receiver_async(name, options);
        let opened = async move { opened.await.map(End::Receiver) };
        Pending::awaited(py, opened, None, &self.told, by)
    }

    /// The manager's number of it.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.id().0)
    }

    /// Path of the manager's socket, at which other processes join; None if it has none.
    #[getter]
    fn socket_path(&self, py: Python<'_>) -> PyResult<Option<PathBuf>> {
        Ok(self.get(py)?.socket_path())
    }

    /// Whether its manager is there.
    #[getter]
    fn is_managed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.is_managed())
    }

    /// The manager's figures: of itself, domains, pools, channels, and the holders of buffers.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domain = self.get(py)?;
        let records = py.detach(|| domain.stat()).or_raise(py)?;
        crate::stat::dict(py, records)
    }

    /// The buffers that this domain holds: those of others, and with TRANSHIP_LEAKS=1 its own, with their age and
    /// channel.
    fn leaks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domain = self.get(py)?;
        crate::stat::leaks(py, &py.detach(|| domain.leaks()))
    }

    /// Sets the quota of a pool, by its `id`. Returns the bytes that the manager gave it.
    fn set_quota(&self, py: Python<'_>, pool: Number, quota_bytes: Number) -> PyResult<u64> {
        let domain = self.get(py)?;
        let (pool, quota_bytes) = (pool.named("pool")?, quota_bytes.named("quota_bytes")?);
        let set = py.detach(|| domain.set_quota(PoolId(pool), quota_bytes));
        set.map_err(|error| raised(py, &error))
    }

    /// Handles the manager's news. For programs that seldom call anything else here, and have not set `helper_thread`.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        let domain = self.get(py)?;
        py.detach(|| domain.turn()).or_raise(py)
    }

    /// Readable when `turn` is to be called.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.get(py)?.as_fd().as_raw_fd())
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| {
                let mut domain = self.domain.lock().unwrap_or_else(PoisonError::into_inner);
                drop(domain.take());
            });
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.get(py) {
            Ok(domain) => format!("<tranship.Domain, id {}>", domain.id().0),
            Err(_) => "<tranship.Domain, not open here>".into(),
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let domain = self.domain.get_mut();
        let_go(
            self.fork_epoch,
            domain.unwrap_or_else(PoisonError::into_inner).take(),
        );
    }
}
