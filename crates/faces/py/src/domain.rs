//! `tranship.Domain`: the process's membership with a manager.

use crate::errors::{OrRaise as _, raised};
use crate::listener::{Either, Listener};
use crate::number::{Number, perhaps};
use crate::pending::{Connecting, End, Made, Pending};
use crate::pool::Pool;
use crate::queue::{Consumer, Producer};
use crate::receiver::{Receiver, Told};
use crate::sender::Sender;
use crate::service::{Client, Service};
use crate::slot::{Slot, closes, shown, stays};
use crate::topic::{Behind, Publisher, Subscriber};
use crate::wait::{By, awaited, by, limit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tranship::error::Awaited;
use tranship::queue::{ConsumerOptions, QueueOptions, WhenLost};
use tranship::service::{ServiceOptions, Services as _};
use tranship::topic::{SubscriberOptions, TopicOptions, WhenBehind};
use tranship::{ChannelOptions, DomainBuilder, Error, PoolId, PoolOptions, Trust, Wait};

/// This process's membership with a manager. A forked child connects again.
///
/// >>> import tranship
/// >>> with tranship.embedded("example") as domain:
/// ...     pool = domain.pool("images", 16 << 20)  # at most 16 MiB
/// ...     pool.zeros((1080, 1920, 3), "u1").nbytes
/// 6220800
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Domain {
    held: Slot<Arc<tranship::Domain>>,
    /// Trust levels of pools, kept apart from the domain: all receivers report them.
    told: Told,
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

fn joined(
    choices: &Bound<'_, PyDict>,
    join: fn(DomainBuilder) -> Result<tranship::Domain, Error>,
) -> PyResult<Domain> {
    let py = choices.py();
    let builder = choices.extract::<Choices>()?.builder()?;
    let domain = py.detach(|| join(builder)).or_raise(py)?;
    tranship::net::add_to(&domain).or_raise(py)?;
    Ok(Domain::told(domain, Told::default()))
}

/// Joins a manager; `tranship.connect` describes the choices.
#[pyfunction]
pub(crate) fn connect(choices: &Bound<'_, PyDict>) -> PyResult<Domain> {
    joined(choices, DomainBuilder::connect)
}

/// Runs a manager in this process.
#[pyfunction]
pub(crate) fn embedded(choices: &Bound<'_, PyDict>) -> PyResult<Domain> {
    joined(choices, DomainBuilder::embedded)
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

/// How an end waits, as Python names it.
fn waiting(wait: &str) -> PyResult<Wait> {
    match wait {
        "spin-then-sleep" => Ok(Wait::default()),
        "spin" => Ok(Wait::Spin),
        "sleep" => Ok(Wait::Sleep),
        other => Err(PyValueError::new_err(format!(
            "wait {other:?}: it is \"spin-then-sleep\", \"spin\" or \"sleep\""
        ))),
    }
}

fn options(
    lines: Number,
    wait: &str,
    message_type: Option<&str>,
) -> PyResult<(ChannelOptions, Wait)> {
    let wait = waiting(wait)?;
    let options = ChannelOptions::new()
        .lines(lines.named("lines")?)
        .wait(wait);
    Ok(match message_type {
        Some(text) => (options.message_type(text), wait),
        None => (options, wait),
    })
}

/// The shape of the own pool of a topic, or of a producer.
fn own_pool(name: &str, max_bytes: Number, slots: Number) -> PyResult<PoolOptions> {
    let pool = PoolOptions::new(max_bytes.named("max_bytes")?);
    Ok(pool.slots(slots.named("slots")?).name(name))
}

fn service_options(
    lines: Number,
    wait: Wait,
    types: &Option<(String, String)>,
) -> PyResult<ServiceOptions> {
    let options = ServiceOptions::new()
        .lines(lines.named("lines")?)
        .wait(wait);
    Ok(match types {
        Some((request, answer)) => options.types(request, answer),
        None => options,
    })
}

impl Domain {
    /// Returns the object of a domain whose receivers are known elsewhere.
    pub(crate) fn told(domain: tranship::Domain, told: Told) -> Domain {
        Domain {
            held: Slot::new(Arc::new(domain), "domain"),
            told,
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

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Arc<tranship::Domain>> {
        self.held.get(py)
    }
}

#[pymethods]
impl Domain {
    /// Makes a pool of at most `max_bytes` bytes. `trust` says which other processes can write it: by default none. At
    /// "half" and "full" every process that has the pool can punch holes into its memory: a reader that touches a hole
    /// pays for the page. Buffers begin at multiples of `align`; `below` is the address below which the whole pool is
    /// mapped in this process. At level "none" buffers of at least `seal_from` bytes are not copied by their receivers:
    /// no process can write them once they are sent. With `allow_forward` all receivers of the pool's buffers may send
    /// them on.
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

    /// Exports a name, at which other processes open the other end. `wait` says how this end waits: it polls for some
    /// microseconds and then sleeps ("spin-then-sleep"), sleeps at once ("sleep"), or keeps a processor busy until
    /// there is a message ("spin"). `message_type` is a text that must be the same at both ends
    /// (`tranship.message_type`).
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

    /// Connects to a name at which a process listens for the other end, and waits for it. `end` is the end that this
    /// side gets: `tranship.Sender` or `tranship.Receiver`. A receiver copies messages out of pools of level "none"
    /// into the pool `snapshots`.
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
        Pending::connection(py, opened, None, &self.told, by)
    }

    /// Publishes a topic: each message goes to all subscribers, and costs the same for one and for two hundred.
    ///
    /// `depth` messages are in the ring, a power of two, 2 to 65,536; a late subscriber gets the last `history` of
    /// them. A subscriber may keep `keep` buffers and 12 more. `when_behind` says what `send` does when a reliable
    /// subscriber is behind: "overwrite" the oldest message (then no subscriber is reliable), "drop-new", or a number
    /// of seconds to wait. The topic's own pool has at most `max_bytes` of addresses and `slots` buffers. With `shared`
    /// publishers of other domains may use the name too, if all of them set `shared`. A message may have `pieces`
    /// pieces, 8 by default, up to 32. `message_type` is a text that must be the same on both sides
    /// (`tranship.message_type`).
    #[pyo3(
        signature = (name, *, depth=Number::of(16), history=Number::of(0), keep=Number::of(64), when_behind=None, max_bytes=Number::of(1 << 30), slots=Number::of(1024), shared=false, pieces=None, message_type=None),
        text_signature = "($self, name, *, depth=16, history=0, keep=64, when_behind='overwrite', max_bytes=1073741824, slots=1024, shared=False, pieces=None, message_type=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "by name, in Python")]
    fn publish(
        &self,
        py: Python<'_>,
        name: &str,
        depth: Number,
        history: Number,
        keep: Number,
        when_behind: Option<Behind>,
        max_bytes: Number,
        slots: Number,
        shared: bool,
        pieces: Option<Number>,
        message_type: Option<&str>,
    ) -> PyResult<Publisher> {
        let pool = own_pool(name, max_bytes, slots)?;
        let behind = when_behind.map(|behind| behind.parse()).transpose()?;
        let mut options = TopicOptions::new()
            .depth(depth.named("depth")?)
            .history(history.named("history")?)
            .keep(keep.named("keep")?)
            .when_behind(behind.unwrap_or(WhenBehind::Overwrite))
            .pool(pool);
        if shared {
            options = options.shared();
        }
        if let Some(most) = perhaps(pieces, "pieces")? {
            options = options.pieces(most);
        }
        if let Some(text) = message_type {
            options = options.message_type(text);
        }
        Publisher::new(py, &*self.get(py)?, name, options)
    }

    /// Subscribes to a topic, and returns at once: it joins in `recv` or `try_recv`, which wait for a publisher.
    ///
    /// With `reliable` the publisher does not overwrite messages that this subscriber has not yet taken, as far as its
    /// `when_behind` says. With `latest` only the newest message is received. At most `history` messages from before it
    /// joins are received, or as many as the topic gives. `wait` and `message_type` are as for `listen`.
    #[pyo3(signature = (name, *, reliable=false, latest=false, history=None, wait="spin-then-sleep", message_type=None), text_signature = "($self, name, *, reliable=False, latest=False, history=None, wait='spin-then-sleep', message_type=None)")]
    #[expect(clippy::too_many_arguments, reason = "by name, in Python")]
    fn subscribe(
        &self,
        py: Python<'_>,
        name: &str,
        reliable: bool,
        latest: bool,
        history: Option<Number>,
        wait: &str,
        message_type: Option<&str>,
    ) -> PyResult<Subscriber> {
        let mut options = SubscriberOptions::new().wait(waiting(wait)?);
        if let Some(text) = message_type {
            options = options.message_type(text);
        }
        if reliable {
            options = options.reliable();
        }
        if latest {
            options = options.latest();
        }
        if let Some(most) = perhaps(history, "history")? {
            options = options.history(most);
        }
        Subscriber::new(py, &*self.get(py)?, name, options)
    }

    /// Offers a service: clients call it by its name, and each request goes to one worker. `lines` is as for its clients, of
    /// which one user has at most `clients_per_user` at a time. `types` are the texts of requests and answers
    /// (`tranship.message_type`), which both sides must have alike. `wait` is as for `listen`. With `shared` services of other
    /// domains may have the name too, if all of them say so: a client is connected to all of them.
    #[pyo3(signature = (name, *, lines=Number::of(256), clients_per_user=Number::of(64), wait="spin-then-sleep", types=None, shared=false), text_signature = "($self, name, *, lines=256, clients_per_user=64, wait='spin-then-sleep', types=None, shared=False)")]
    #[expect(clippy::too_many_arguments, reason = "by name, in Python")]
    fn serve(
        &self,
        py: Python<'_>,
        name: &str,
        lines: Number,
        clients_per_user: Number,
        wait: &str,
        types: Option<(String, String)>,
        shared: bool,
    ) -> PyResult<Service> {
        let (domain, wait) = (self.get(py)?, waiting(wait)?);
        let mut options = service_options(lines, wait, &types)?;
        if shared {
            options = options.shared();
        }
        let options = options.clients_per_user(clients_per_user.named("clients_per_user")?);
        let service = py
            .detach(|| domain.serve_with(name, options))
            .or_raise(py)?;
        Ok(Service::new(service, name))
    }

    /// Connects to a service, and waits until it is there and takes this client, at most `timeout` seconds.
    #[pyo3(signature = (name, *, timeout=None, lines=Number::of(256), wait="spin-then-sleep", types=None), text_signature = "($self, name, *, timeout=None, lines=256, wait='spin-then-sleep', types=None)")]
    fn client(
        &self,
        py: Python<'_>,
        name: &str,
        timeout: Option<f64>,
        lines: Number,
        wait: &str,
        types: Option<(String, String)>,
    ) -> PyResult<Client> {
        let domain = self.get(py)?;
        let options = service_options(lines, waiting(wait)?, &types)?;
        let (what, limit) = (Awaited::Offer(name.to_owned()), limit(timeout)?);
        let client = {
            let name = name.to_owned();
            Box::pin(async move { domain.client_async(&name, options).await })
        };
        Ok(Client::new(awaited(py, limit, &what, client)?, name))
    }

    /// Connects like `client`, and awaits it.
    #[pyo3(signature = (name, *, lines=Number::of(256), wait="spin-then-sleep", types=None), text_signature = "($self, name, *, lines=256, wait='spin-then-sleep', types=None)")]
    fn client_async<'py>(
        &self,
        py: Python<'py>,
        name: String,
        lines: Number,
        wait: &str,
        types: Option<(String, String)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let domain = self.get(py)?;
        let options = service_options(lines, waiting(wait)?, &types)?;
        let connected = async move {
            let client = Client::new(domain.client_async(&name, options).await?, &name);
            let made: Made = Box::new(|py| Ok(Bound::new(py, client)?.into_any()));
            Ok(made)
        };
        Pending::awaited(py, Box::pin(connected), None)
    }

    /// Joins a queue as a producer: each of its items goes to one consumer.
    ///
    /// `depth` of its items may wait, a power of two, 2 to 65,536. A consumer may keep `keep` buffers and 12 more. An
    /// item whose consumer ended without acknowledging it goes back to the queue, or with `report_lost` to `take_lost`.
    /// With `exclusive` no other producer may use the name. The producer's own pool has at most `max_bytes` of
    /// addresses and `slots` buffers. An item may have `pieces` pieces, 8 by default, up to 32. `message_type` is a
    /// text that must be the same on both sides (`tranship.message_type`).
    #[pyo3(
        signature = (name, *, depth=Number::of(64), keep=Number::of(64), report_lost=false, exclusive=false, max_bytes=Number::of(1 << 30), slots=Number::of(1024), pieces=None, message_type=None),
        text_signature = "($self, name, *, depth=64, keep=64, report_lost=False, exclusive=False, max_bytes=1073741824, slots=1024, pieces=None, message_type=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "by name, in Python")]
    fn produce(
        &self,
        py: Python<'_>,
        name: &str,
        depth: Number,
        keep: Number,
        report_lost: bool,
        exclusive: bool,
        max_bytes: Number,
        slots: Number,
        pieces: Option<Number>,
        message_type: Option<&str>,
    ) -> PyResult<Producer> {
        let mut options = QueueOptions::new()
            .depth(depth.named("depth")?)
            .keep(keep.named("keep")?)
            .pool(own_pool(name, max_bytes, slots)?);
        if report_lost {
            options = options.when_lost(WhenLost::Report);
        }
        if exclusive {
            options = options.exclusive();
        }
        if let Some(most) = perhaps(pieces, "pieces")? {
            options = options.pieces(most);
        }
        if let Some(text) = message_type {
            options = options.message_type(text);
        }
        Producer::new(py, &*self.get(py)?, name, options)
    }

    /// Joins a queue as a consumer, and returns at once: it joins while it receives.
    ///
    /// With `auto_ack` items are done when they are received. Otherwise `unacknowledged` items of one producer may be
    /// taken and not acknowledged, 1 to 64. `wait` and `message_type` are as for `listen`.
    #[pyo3(signature = (name, *, auto_ack=false, unacknowledged=None, wait="spin-then-sleep", message_type=None), text_signature = "($self, name, *, auto_ack=False, unacknowledged=None, wait='spin-then-sleep', message_type=None)")]
    fn consume(
        &self,
        py: Python<'_>,
        name: &str,
        auto_ack: bool,
        unacknowledged: Option<Number>,
        wait: &str,
        message_type: Option<&str>,
    ) -> PyResult<Consumer> {
        let mut options = ConsumerOptions::new().wait(waiting(wait)?);
        if let Some(text) = message_type {
            options = options.message_type(text);
        }
        if auto_ack {
            options = options.auto_ack();
        }
        if let Some(most) = perhaps(unacknowledged, "unacknowledged")? {
            options = options.unacknowledged(most);
        }
        Consumer::new(py, &*self.get(py)?, name, options)
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

    /// Handles the manager's news. Programs that rarely call anything else here, and have not set `helper_thread`, call
    /// it.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        let domain = self.get(py)?;
        py.detach(|| domain.turn()).or_raise(py)
    }

    /// A descriptor that is readable when `turn` has work to do.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.get(py)?.as_fd().as_raw_fd())
    }

    /// Closes it. The end of a `with` does.
    fn close(&self, py: Python<'_>) {
        self.held.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.get(py) {
            Ok(domain) => format!("<tranship.Domain, id {}>", domain.id().0),
            Err(_) => "<tranship.Domain, not open here>".into(),
        }
    }
}

closes!(Domain);
shown!(Domain, "domain");

/// An operator's questions to the manager, and to the domain from which this object was made (`Domain.admin`).
///
/// >>> import tranship
/// >>> with tranship.embedded("example") as domain:
/// ...     domain.admin().is_managed
/// True
#[pyclass(frozen, module = "tranship.admin")]
pub(crate) struct Admin(Py<Domain>);

impl Admin {
    fn domain(&self, py: Python<'_>) -> PyResult<Arc<tranship::Domain>> {
        self.0.get().get(py)
    }
}

#[pymethods]
impl Admin {
    /// Whether the manager is there.
    #[getter]
    fn is_managed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.domain(py)?.admin().is_managed())
    }

    /// The manager's figures: about itself, domains, pools, channels, and the holders of buffers.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domain = self.domain(py)?;
        let records = py.detach(|| domain.admin().stat()).or_raise(py)?;
        crate::stat::dict(py, records)
    }

    /// The buffers that this domain holds, with their age and channel: buffers of others, and with TRANSHIP_LEAKS=1
    /// also its own.
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

stays!(Admin);
