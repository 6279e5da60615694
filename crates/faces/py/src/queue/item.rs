//! `tranship.Item`: an item that a consumer has taken.

use crate::buffer::{Buffer, Carried, Origin};
use crate::errors::OrRaise as _;
use crate::slot::{Slot, stays};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tranship::{Message, queue};

/// An item that a consumer has taken. `ack` says that the item is done. Without `ack` it goes back to the queue when it
/// is dropped, and when this process dies.
///
/// The end of a `with` block acknowledges it; if an exception ends the block, the item goes back.
///
#[doc = include_str!("example.txt")]
#[pyclass(frozen, weakref, module = "tranship")]
pub(crate) struct Item {
    item: Slot<queue::Item>,
    carried: Option<Carried>,
    /// The word that the producer sent with the item.
    #[pyo3(get)]
    word: u64,
    /// Whether the item was taken before, by a consumer that gave it back or died.
    #[pyo3(get)]
    redelivered: bool,
    /// The producer's domain.
    #[pyo3(get)]
    producer: u32,
}

fn over() -> PyErr {
    PyValueError::new_err("the item was acknowledged, or given back")
}

impl Item {
    pub(super) fn new(item: queue::Item) -> Item {
        let (body, word) = (item.body.share(), item.word);
        Item {
            word,
            redelivered: item.redelivered(),
            producer: item.producer().0,
            carried: body.map(|body| Carried::new(Message { word, body })),
            item: Slot::new(item, "item"),
        }
    }

    fn take(&self, py: Python<'_>) -> PyResult<queue::Item> {
        self.item.take(py)?.ok_or_else(over)
    }
}

#[pymethods]
impl Item {
    /// The content: the producer's memory, read-only, without a copy. It stays valid when the item is done.
    #[getter]
    fn payload(&self, py: Python<'_>) -> PyResult<Py<Buffer>> {
        let carried = self.carried.as_ref().ok_or_else(over)?;
        carried.get(py, |body| Origin::published(body, None))
    }

    /// Acknowledges the item: it is done, and no other consumer gets it. PeerGone: its producer had ended before.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        let item = self.take(py)?;
        py.detach(|| item.ack().map(drop)).or_raise(py)
    }

    /// Gives the item back to its queue, where another consumer may take it.
    fn requeue(&self, py: Python<'_>) -> PyResult<()> {
        let item = self.take(py)?;
        py.detach(|| item.requeue());
        Ok(())
    }

    /// Rejects the item: its producer gets it from `take_lost`.
    fn reject(&self, py: Python<'_>) -> PyResult<()> {
        let item = self.take(py)?;
        py.detach(|| item.reject());
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*error))]
    fn __exit__(&self, py: Python<'_>, error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let raised = error.get_item(0).is_ok_and(|kind| !kind.is_none());
        let Some(item) = self.item.take(py)? else {
            return Ok(()); // it has ended already
        };
        match raised {
            true => py.detach(|| item.requeue()),
            false => py.detach(|| item.ack().map(drop)).or_raise(py)?,
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        let again = if self.redelivered {
            ", redelivered"
        } else {
            ""
        };
        format!("<tranship.Item, word {}{again}>", self.word)
    }
}

stays!(Item);
