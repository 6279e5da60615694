//! `tranship.Component`: the ends of a component of `tranship run`, by their names.

use crate::domain::Domain;
use crate::errors::{OrRaise as _, raised};
use crate::listener::{Either, Listener};
use crate::pending::End;
use crate::pool::Pool;
use crate::queue::{Consumer, Producer};
use crate::receiver::Told;
use crate::service::{Client, Service};
use crate::single::made;
use crate::topic::{Publisher, Subscriber};
use crate::wait::{By, awaited, limit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tranship::component::{self, Returns, WhenDown};
use tranship::error::Awaited;
use tranship::{Error, ErrorKind};

/// The process of a component, as the manager and the file of the program know it.
#[pyclass(frozen, subclass, module = "tranship.component")]
pub(crate) struct Component {
    joined: component::Component,
    told: Told,
}

impl Component {
    /// Returns what the file says about an end.
    fn end(&self, py: Python<'_>, name: &str) -> PyResult<&component::End> {
        let brief = self.joined.brief();
        brief.ends.get(name).ok_or_else(|| {
            let known: Vec<_> = brief.ends.keys().map(String::as_str).collect();
            let text = format!(
                "component `{}` has no end `{name}` in the program's file; it has: {}",
                brief.name,
                known.join(", ")
            );
            raised(py, &Error::new(ErrorKind::BadArgument, text))
        })
    }
}

#[pymethods]
impl Component {
    /// Joins the program's manager, with what the environment says about this component.
    #[new]
    fn connect(py: Python<'_>) -> PyResult<Component> {
        let joined = made(py, component::Component::connect)?;
        Ok(Component {
            joined,
            told: Told::default(),
        })
    }

    /// The name of the component.
    #[getter]
    fn name(&self) -> &str {
        &self.joined.brief().name
    }

    /// The number of this process among the component's replicas, from 0.
    #[getter]
    fn replica(&self) -> u32 {
        self.joined.brief().replica
    }

    /// The component's membership, for all that the file does not say.
    #[getter]
    fn domain(&self) -> Domain {
        Domain::told(self.joined.domain().clone(), self.told.clone())
    }

    /// Returns what the file says about a channel's other end: `when_down`, and whether it is started again.
    fn _about<'py>(&self, py: Python<'py>, end: &str) -> PyResult<Bound<'py, PyDict>> {
        let end = self.end(py, end)?;
        let about = PyDict::new(py);
        about.set_item("channel", &end.name)?;
        let when_down = match end.when_down {
            WhenDown::Wait => "wait",
            WhenDown::Drop => "drop",
            WhenDown::Fail => "fail",
        };
        about.set_item("when_down", when_down)?;
        let returns = match end.peer {
            Returns::Never => "never",
            Returns::OnFailure => "on-failure",
            Returns::Always => "always",
        };
        about.set_item("returns", returns)?;
        Ok(about)
    }

    /// Offers a channel of which this component is the sender.
    fn _listener(&self, py: Python<'_>, end: &str) -> PyResult<Listener> {
        let listener = made(py, || self.joined.listener(end))?;
        let name = self.end(py, end)?.name.clone();
        let listener = Either::Sender(listener);
        Ok(Listener::new(
            listener,
            name,
            self.told.clone(),
            By::Descriptor,
        ))
    }

    /// Makes the pool that the file describes for a channel.
    fn _pool(&self, py: Python<'_>, end: &str) -> PyResult<Pool> {
        let pool = made(py, || self.joined.create_pool(end))?;
        Ok(Pool::new(pool, self.end(py, end)?.name.clone()))
    }

    /// Opens a channel of which this component is the receiver.
    #[pyo3(signature = (end, timeout=None))]
    fn _open<'py>(
        &self,
        py: Python<'py>,
        end: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let opening = self.joined.opening(end).or_raise(py)?;
        let opened = Box::pin(async move { opening.await.map(End::Receiver) });
        let offer = Awaited::Offer(self.end(py, end)?.name.clone());
        let end = awaited(py, limit(timeout)?, &offer, opened)?;
        end.into_object(py, &self.told, By::Descriptor)
    }

    /// Publishes a topic.
    fn publisher(&self, py: Python<'_>, end: &str) -> PyResult<Publisher> {
        let publisher = made(py, || self.joined.publisher(end))?;
        Ok(Publisher::of(publisher, end))
    }

    /// Subscribes to a topic.
    fn subscriber(&self, py: Python<'_>, end: &str) -> PyResult<Subscriber> {
        let subscriber = made(py, || self.joined.subscriber(end))?;
        Ok(Subscriber::of(subscriber, end))
    }

    /// Produces items of a queue.
    fn producer(&self, py: Python<'_>, end: &str) -> PyResult<Producer> {
        let producer = made(py, || self.joined.producer(end))?;
        Ok(Producer::of(producer, end))
    }

    /// Consumes items of a queue.
    fn consumer(&self, py: Python<'_>, end: &str) -> PyResult<Consumer> {
        let consumer = made(py, || self.joined.consumer(end))?;
        Ok(Consumer::of(consumer, end))
    }

    /// Serves a service. Replicas serve it together.
    fn service(&self, py: Python<'_>, end: &str) -> PyResult<Service> {
        let service = made(py, || self.joined.service(end))?;
        Ok(Service::new(service, end))
    }

    /// Opens a client of a service, and waits until it is there, at most `timeout` seconds.
    #[pyo3(signature = (end, *, timeout=None))]
    fn client(&self, py: Python<'_>, end: &str, timeout: Option<f64>) -> PyResult<Client> {
        let (joined, name) = (self.joined.clone(), end.to_owned());
        let client = Box::pin(async move { joined.client_async(&name).await });
        let offer = Awaited::Offer(end.to_owned());
        Ok(Client::new(
            awaited(py, limit(timeout)?, &offer, client)?,
            end,
        ))
    }

    /// Says that this component is ready. If the file says `lock`, the process is locked down first: call it when everything
    /// is open and imported, before other threads start.
    fn ready(&self, py: Python<'_>) -> PyResult<()> {
        // The thread that calls is the one that is locked down.
        self.joined.ready().or_raise(py)
    }

    fn __repr__(&self) -> String {
        format!("<tranship.Component {:?}>", self.joined.brief().name)
    }
}

crate::slot::stays!(Component);
