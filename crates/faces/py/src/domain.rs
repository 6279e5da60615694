//! `tranship.Domain`: the process's membership with a manager.

use crate::errors::{OrRaise as _, closed, raised};
use crate::fork::{ForkEpoch, let_go};
use crate::listener::{Either, Listener};
use crate::number::{Number, perhaps};
use crate::pending::{Connecting, End, Pending};
use crate::pool::Pool;
use crate::receiver::{Receiver, Told};
use crate::sender::Sender;
use crate::wait::{By, awaited, by, limit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tranship::error::Awaited;
use tranship::{ChannelOptions, DomainBuilder, PoolId, PoolOptions, Trust, Wait};

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

/// An end of a channel, as Python names it: `tranship.Sender` or `tranship.Receiver`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sender,
    Receiver,
}

/// Which end this side gets.
fn kind(end: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let py = end.py();
    if end.is(py.get_type::<Sender>()) {
        return Ok(Kind::Sender);
    }
    if end.is(py.get_type::<Receiver>()) {
        return Ok(Kind::Receiver);
    }
    let text = format!("end {end:?}: it is tranship.Sender or tranship.Receiver");
    Err(PyTypeError::new_err(text))
}

fn trust(name: &str) -> PyResult<Trust> {
    let found = Trust::ALL.into_iter().find(|trust| trust.name() == name);
    found.ok_or_else(|| {
        PyValueError::new_err(format!(
            "trust {name:?}: it is \"none\", \"producer\", \"half\" or \"full\""
        ))
    })
}

fn options(
    lines: Number,
    wait: &str,
    message_type: Option<&str>,
) -> PyResult<(ChannelOptions, Wait)> {
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
    let options = ChannelOptions::new()
        .lines(lines.named("lines")?)
        .wait(wait);
    Ok(match message_type {
        Some(text) => (options.message_type(text), wait),
        None => (options, wait),
    })
}

impl Domain {
    fn new(domain: tranship::Domain) -> Domain {
        Domain {
            domain: Mutex::new(Some(Arc::new(domain))),
            told: Told::default(),
            fork_epoch: ForkEpoch::now(),
        }
    }

    fn opening(
        &self,
        py: Python<'_>,
        name: &str,
        end: &Bound<'_, PyAny>,
        (lines, wait, message_type, snapshots): (Number, &str, Option<&str>, Option<&Pool>),
    ) -> PyResult<(Connecting, By)> {
        let (domain, kind) = (self.get(py)?, kind(end)?);
        let (mut options, wait) = options(lines, wait, message_type)?;
        if let Some(pool) = snapshots {
            if kind == Kind::Sender {
                return Err(PyTypeError::new_err("snapshots are a receiver's"));
            }
            options = options.snapshots(pool.get(py)?.id());
        }
        let opened: Connecting = match kind {
            Kind::Sender => {
                let opened = domain.open_async(name, options);
                Box::pin(async move { opened.await.map(End::Sender) })
            }
            Kind::Receiver => {
                let opened = domain.open_async(name, self.told.options(options));
                Box::pin(async move { opened.await.map(End::Receiver) })
            }
        };
        Ok((opened, by(wait)))
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
            options = options.address_range(0..address);
        }
        if let Some(bytes) = perhaps(seal_from, "seal_from")? {
            options = options.seal_from(bytes);
        }
        let pool = py.detach(|| domain.create_pool(options)).or_raise(py)?;
        Ok(Pool::new(pool, name.to_owned()))
    }

    /// Exports a name, at which other processes open the other end. `wait` is how this end waits: it polls for some
    /// microseconds and then sleeps ("spin-then-sleep"), sleeps at once ("sleep"), or keeps a processor busy until
    /// there is a message ("spin"). `message_type` is the text that both ends must have alike (`tranship.message_type`).
    #[pyo3(signature = (name, end, *, lines=Number::of(256), wait="spin-then-sleep", message_type=None), text_signature = "($self, name, end, *, lines=256, wait='spin-then-sleep', message_type=None)")]
    fn listen(
        &self,
        py: Python<'_>,
        name: &str,
        end: &Bound<'_, PyAny>,
        lines: Number,
        wait: &str,
        message_type: Option<&str>,
    ) -> PyResult<Listener> {
        let (domain, kind) = (self.get(py)?, kind(end)?);
        let (options, wait) = options(lines, wait, message_type)?;
        let options = self.told.options(options);
        let made = py.detach(|| match kind {
            Kind::Sender => domain.listen_with(name, options).map(Either::Sender),
            Kind::Receiver => domain.listen_with(name, options).map(Either::Receiver),
        });
        Ok(Listener::new(
            made.or_raise(py)?,
            name.to_owned(),
            self.told.clone(),
            by(wait),
        ))
    }

    /// Connects to a name at which a process listens for the other end, and waits for it. `end` is `tranship.Sender` or
    /// `tranship.Receiver`: the end that this side gets. A receiver copies messages out of pools of level "none" into
    /// the pool `snapshots`.
    #[pyo3(signature = (name, end, *, timeout=None, lines=Number::of(256), wait="spin-then-sleep", snapshots=None, message_type=None), text_signature = "($self, name, end, *, timeout=None, lines=256, wait='spin-then-sleep', snapshots=None, message_type=None)")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn open<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        end: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        lines: Number,
        wait: &str,
        snapshots: Option<&Pool>,
        message_type: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (opened, by) = self.opening(py, name, end, (lines, wait, message_type, snapshots))?;
        let offer = Awaited::Offer(name.to_owned());
        let end = awaited(py, limit(timeout)?, &offer, opened)?;
        end.into_object(py, &self.told, by)
    }

    /// Connects like `open`, and awaits it.
    #[pyo3(signature = (name, end, *, lines=Number::of(256), wait="spin-then-sleep", snapshots=None, message_type=None), text_signature = "($self, name, end, *, lines=256, wait='spin-then-sleep', snapshots=None, message_type=None)")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn open_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        end: &Bound<'py, PyAny>,
        lines: Number,
        wait: &str,
        snapshots: Option<&Pool>,
        message_type: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (opened, by) = self.opening(py, name, end, (lines, wait, message_type, snapshots))?;
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

    /// Figures, leaks and quotas: an operator's questions to the manager and to this domain.
    fn admin(slf: Bound<'_, Self>) -> Admin {
        Admin(slf.unbind())
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

/// An operator's questions to the manager, and to the domain that it is of (`Domain.admin`).
#[pyclass(frozen, module = "tranship.admin")]
pub(crate) struct Admin(Py<Domain>);

impl Admin {
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
