//! Components of `tranship run`: `include/tranship/component.h`.

use crate::domain::Domain;
use crate::given::{patience, text, there};
use crate::open::closed;
use crate::queue::{Consumer, Producer};
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::service::{Client, Service};
use crate::status::{Error, Status, border, making, quietly};
use crate::topic::{Publisher, Subscriber};
use facade::component;
use std::collections::HashMap;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

/// A process of a program that `tranship run` started. Any thread may use it, all at the same time.
#[derive(Debug)]
pub struct Component {
    joined: component::Component,
    /// The channels of which this component is the sender, by its own names.
    offered: Mutex<HashMap<String, Arc<facade::Listener<facade::Sender>>>>,
}

impl Component {
    fn offered(&self, end: &str) -> Result<Arc<facade::Listener<facade::Sender>>, facade::Error> {
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = offered.get(end) {
            return Ok(Arc::clone(listener));
        }
        let listener = Arc::new(self.joined.listener(end)?);
        offered.insert(end.to_owned(), Arc::clone(&listener));
        Ok(listener)
    }
}

/// Joins the program's manager, with what the environment says about this component. Waits at most 10 s for a manager that is being started again.
/// TRANSHIP_ERR_BAD_ARGUMENT in a process that `tranship run` did not start.
///
/// Close it with tranship_component_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_connect(
    out: Option<&mut MaybeUninit<Option<Box<Component>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        Ok(Component {
            joined: component::Component::connect()?,
            offered: Mutex::default(),
        })
    })
}

/// Leaves, as soon as its ends are closed, too. Channels of which this component is the sender are no longer offered. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_close(component: Option<Box<Component>>) {
    quietly((), || {
        drop(closed(component, "tranship_component_close"));
    });
}

/// The component's membership, for all that the file does not say: pools, polling. Close it with tranship_domain_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_domain(
    component: Option<&Component>,
    out: Option<&mut MaybeUninit<Option<Box<Domain>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = there(component, "component")?;
        Ok(Domain(component.joined.domain().clone()))
    })
}

/// The sending end of a channel, by the component's name of it. Waits for the receiver's component for `timeout_ns`, as tranship_alloc does. The first
/// call offers the channel. tranship_sender_alloc allocates from the pool that the file describes.
///
/// The end ends with its receiver: TRANSHIP_ERR_PEER_DIED, TRANSHIP_ERR_PEER_GONE. If the file starts that component again, another call gives
/// the end to the next one. Close it with tranship_sender_close. TRANSHIP_ERR_BAD_ARGUMENT for a name that the file does not give to this component.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_sender(
    component: Option<&Component>,
    end: *const c_char,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Sender>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let offered = there(component, "component")?.offered(text(end, "end")?)?;
        Ok(Sender(offered.accept_timeout(patience(timeout_ns))?))
    })
}

/// The receiving end of a channel, by the component's name of it. Waits for the sender's component for `timeout_ns`, as tranship_alloc does.
///
/// The end ends with its sender; another call gives the end of the next one. Close it with tranship_receiver_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_receiver(
    component: Option<&Component>,
    end: *const c_char,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Receiver>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        let end = text(end, "end")?;
        Ok(Receiver(component.open(end, patience(timeout_ns))?))
    })
}

/// Publishes a topic, by the component's name of it. Close it with tranship_publisher_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_publisher(
    component: Option<&Component>,
    end: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<Publisher>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        Ok(Publisher(component.publisher(text(end, "end")?)?))
    })
}

/// Subscribes to a topic, by the component's name of it, and returns at once: it joins while it receives. Close it with tranship_subscriber_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_subscriber(
    component: Option<&Component>,
    end: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<Subscriber>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        Ok(Subscriber(component.subscriber(text(end, "end")?)?))
    })
}

/// Joins a queue as a producer, by the component's name of it. Close it with tranship_producer_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_producer(
    component: Option<&Component>,
    end: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<Producer>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        Ok(Producer(component.producer(text(end, "end")?)?))
    })
}

/// Joins a queue as a consumer, by the component's name of it, and returns at once: it joins while it receives. Close it with tranship_consumer_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_consumer(
    component: Option<&Component>,
    end: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<Consumer>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        Ok(Consumer(component.consumer(text(end, "end")?)?))
    })
}

/// Serves a service, by the component's name of it. Replicas serve it together. Close it with tranship_service_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_service(
    component: Option<&Component>,
    end: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<Service>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        Ok(Service(component.service(text(end, "end")?)?))
    })
}

/// Opens a client of a service, by the component's name of it. Waits until the service is there. Close it with tranship_client_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_client(
    component: Option<&Component>,
    end: *const c_char,
    out: Option<&mut MaybeUninit<Option<Box<Client>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let component = &there(component, "component")?.joined;
        let end = text(end, "end")?;
        Ok(Client {
            client: component.client(end)?,
            name: end.to_owned(),
        })
    })
}

/// Says that this component is ready, so that components that depend on it are started. If the file says `lock`, the process is locked down first:
/// call it when everything is open, before other threads start. It does not block.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_component_ready(
    component: Option<&Component>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || there(component, "component")?.joined.ready())
}
