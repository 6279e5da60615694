//! Messages that an object carries, of which the first look makes the buffer.

use super::{Buffer, Origin};
use crate::slot::Slot;
use pyo3::prelude::*;
use std::sync::OnceLock;
use tranship::{Body, Message, Trust};

/// Payload of an item or a request.
pub(crate) struct Carried {
    message: Slot<Message>,
    made: OnceLock<Py<Buffer>>,
}

impl Carried {
    pub(crate) fn new(message: Message) -> Carried {
        Carried {
            message: Slot::new(message, "payload"),
            made: OnceLock::new(),
        }
    }

    /// Returns the buffer.
    pub(crate) fn get(
        &self,
        py: Python<'_>,
        origin: impl FnOnce(&Body) -> Origin,
    ) -> PyResult<Py<Buffer>> {
        if let Some(message) = self.message.take(py)? {
            let origin = origin(&message.body);
            let _ = self
                .made
                .set(Py::new(py, Buffer::received(message, origin))?);
        }
        let made = self.made.get().map(|made| made.clone_ref(py));
        made.ok_or_else(|| crate::errors::closed("payload"))
    }
}

impl Origin {
    /// Returns that of a topic's message, or a queue's item: its pool is of level `producer`.
    pub(crate) fn published(body: &Body, sender_pid: Option<u32>) -> Origin {
        let trust = match body {
            Body::Inline(_) => None,
            _ => Some(Trust::Producer),
        };
        Origin { trust, sender_pid }
    }
}
