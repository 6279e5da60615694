//! The Python package `tranship`: the classes of its extension module, `tranship._native`, over the facade.
//!
//! | file | what |
//! |---|---|
//! | `domain.rs`, `pool.rs`, `listener.rs`, `sender.rs`, `receiver.rs` | the classes, one a file |
//! | `component.rs` | the ends of a component of `tranship run`, by their names |
//! | `arrays.rs` | arrays in pools, of which numpy makes the object |
//! | `buffer/` | buffers: their states, the buffer protocol, DLPack |
//! | `wait.rs` | waiting without the GIL, in turns between which signals are looked at |
//! | `driven.rs` | an end of a channel with a future of it, and the descriptor that tells an event loop |
//! | `sending.rs` | what a sender is given, and how it goes |
//! | `pending.rs` | futures that a task awaits |
//! | `topic/` | the two ends of a topic |
//! | `queue/` | the two ends of a queue, and its items |
//! | `single.rs` | ends that one thread at a time uses |
//! | `slot.rs` | what an object holds until it is closed, and the end of a `with` |
//! | `service/` | a service, its requests, its clients and their calls |
//! | `store.rs` | values by key and queues of values, as Python's `tranship.Store` and `tranship.mp` use them |
//! | `number.rs` | whole numbers as arguments |
//! | `interpreter.rs` | which interpreter may load it |
//!
//! The code for asyncio, pickle and numpy, and the exceptions, are Python, beside `python/tranship/__init__.py`.
//!
//! NOT here: anything that the facade does not offer to every program.

mod arrays;
mod buffer;
mod component;
mod domain;
mod driven;
mod errors;
mod foreign;
mod fork;
mod interpreter;
mod listener;
mod number;
mod pending;
mod pool;
mod queue;
mod receiver;
mod sender;
mod sending;
mod service;
mod single;
mod slot;
mod stat;
mod store;
mod topic;
mod wait;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::{PyResult, errors, fork};

    #[pymodule_export]
    use super::arrays::make_readonly;
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::component::Component;
    #[pymodule_export]
    use super::domain::{Admin, Domain, connect, embedded};
    #[pymodule_export]
    use super::driven::Kept;
    #[pymodule_export]
    use super::foreign::{copied, in_pool, lies_in};
    #[pymodule_export]
    use super::listener::Listener;
    #[pymodule_export]
    use super::pending::Pending;
    #[pymodule_export]
    use super::pool::Pool;
    #[pymodule_export]
    use super::queue::{Consumer, Item, Producer};
    #[pymodule_export]
    use super::receiver::Receiver;
    #[pymodule_export]
    use super::sender::Sender;
    #[pymodule_export]
    use super::service::{Call, Client, Request, Service};
    #[pymodule_export]
    use super::store::{Store, create_store, open_store, shared};
    #[pymodule_export]
    use super::topic::{Publisher, Subscriber};

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> PyResult<()> {
        use super::PyModuleMethods as _;
        super::interpreter::check(module.py())?;
        fork::watch()?;
        module.add("KINDS", errors::kinds())?;
        module.add("INLINE_BYTES", tranship::INLINE_BYTES)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
