//! Stores: values by key and queues of values. What is a value in Python becomes buffers in `python/tranship/_objects.py`.

use crate::buffer::{Buffer, Held, Origin};
use crate::domain::Domain;
use crate::errors::{OrRaise as _, closed};
use crate::fork::{ForkEpoch, let_go};
use crate::number::Number;
use crate::sender::part_of;
use crate::wait::{By, awaited, limit, wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tranship::error::Awaited;
use tranship::store::{Got, StoreOptions, Stores as _, Value, Wait};
use tranship::{Error, ErrorKind};

/// Returns a read-only buffer over the bytes of an array, or None: it is in no pool. From here on the array is read-only.
#[pyfunction]
pub(crate) fn shared(array: &Bound<'_, PyAny>) -> PyResult<Option<Buffer>> {
    let part = part_of(array)?;
    Ok(part.map(|part| Buffer::new(Held::Shared(part), Origin::default())))
}

/// A handle of a store: of the process that keeps it, or of another one.
#[pyclass(frozen, weakref, module = "tranship._native")]
pub(crate) struct Store {
    store: Mutex<Option<tranship::store::Store>>,
    /// Pushes that the store has still to confirm, in their order.
    behind: Mutex<VecDeque<Wait>>,
    fork_epoch: ForkEpoch,
}

/// Most pushes that are not confirmed. Fewer than a client may have calls in flight.
const BEHIND: usize = 64;

/// Makes a store.
#[pyfunction]
#[pyo3(signature = (domain, name, quota_bytes, end_with_owner))]
pub(crate) fn create_store(
    py: Python<'_>,
    domain: &Domain,
    name: &str,
    quota_bytes: Number,
    end_with_owner: bool,
) -> PyResult<Store> {
    let domain = domain.get(py)?;
    let options = StoreOptions::new()
        .quota(quota_bytes.named("quota_bytes")?)
        .end_with_owner(end_with_owner);
    let made = py.detach(|| domain.create_store(name, options));
    made.or_raise(py).map(Store::new)
}

/// Joins a store, and waits for it at most `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (domain, name, timeout))]
pub(crate) fn open_store(
    py: Python<'_>,
    domain: &Domain,
    name: &str,
    timeout: Option<f64>,
) -> PyResult<Store> {
    let domain = domain.get(py)?;
    let (what, limit) = (Awaited::Offer(name.to_owned()), limit(timeout)?);
    let name = name.to_owned();
    let opened = Box::pin(async move { domain.store_async(&name).await });
    awaited(py, limit, &what, opened).map(Store::new)
}

impl Store {
    fn new(store: tranship::store::Store) -> Store {
        Store {
            store: Mutex::new(Some(store)),
            behind: Mutex::new(VecDeque::new()),
            fork_epoch: ForkEpoch::now(),
        }
    }

    fn get_store(&self, py: Python<'_>) -> PyResult<tranship::store::Store> {
        self.fork_epoch.check(py)?;
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.clone().ok_or_else(|| closed("store"))
    }

    /// Asks, and waits for the answer.
    fn ask(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&tranship::store::Store) -> Wait + Send,
    ) -> PyResult<Got> {
        let store = self.get_store(py)?;
        let asked = py.detach(|| ask(&store));
        finish(py, asked)
    }

    /// Pushes without waiting for the confirmation, which a later call looks at.
    fn push_behind(&self, py: Python<'_>, push: impl FnOnce() -> Wait + Send) -> PyResult<()> {
        let push = py.detach(push);
        self.behind().push_back(push);
        self.settle(py, BEHIND)
    }

    fn behind(&self) -> MutexGuard<'_, VecDeque<Wait>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes confirmations that are there, and waits until at most so many are missing.
    fn settle(&self, py: Python<'_>, most: usize) -> PyResult<()> {
        loop {
            let (Some(mut first), left) = ({
                let mut behind = self.behind();
                (behind.pop_front(), behind.len())
            }) else {
                return Ok(());
            };
            if left < most {
                match first.wait_until(Instant::now()).or_raise(py)? {
                    Some(_) => continue,
                    None => {
                        self.behind().push_front(first);
                        return Ok(());
                    }
                }
            }
            finish(py, first)?;
        }
    }

    fn done(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&tranship::store::Store) -> Wait + Send,
    ) -> PyResult<u64> {
        match self.ask(py, ask)? {
            Got::Done(number) => Ok(number),
            Got::Value(_) => Err(no_answer()).or_raise(py),
        }
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        ask: impl FnOnce(&tranship::store::Store) -> Wait + Send,
    ) -> PyResult<Bound<'py, PyTuple>> {
        match self.ask(py, ask)? {
            Got::Value(value) => buffers(py, value),
            Got::Done(_) => Err(no_answer()).or_raise(py),
        }
    }

    fn block_of(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&tranship::store::Store) -> Wait + Send,
    ) -> PyResult<Buffer> {
        let Got::Value(value) = self.ask(py, ask)? else {
            return Err(no_answer()).or_raise(py);
        };
        let first = value.into_pieces().into_iter().next();
        let block = first.ok_or_else(no_answer).or_raise(py)?;
        Ok(Buffer::in_common(block))
    }
}

/// Waits for an answer. An interrupt gives the question up.
fn finish(py: Python<'_>, mut asked: Wait) -> PyResult<Got> {
    let got = wait(py, None, By::Time, |turn| {
        // An error of the answer's ends the wait, whatever its kind.
        Ok(match asked.wait_until(Instant::now() + turn.slice) {
            Ok(None) => None,
            Ok(Some(got)) => Some(Ok(got)),
            Err(error) => Some(Err(error)),
        })
    });
    py.detach(|| drop(asked));
    got?.or_raise(py)
}

fn no_answer() -> Error {
    Error::new(
        ErrorKind::PeerViolation,
        "the store's answer is of another kind than the question",
    )
}

fn buffers(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyTuple>> {
    let one = |piece| Bound::new(py, Buffer::in_common(piece));
    let all: PyResult<Vec<_>> = value.into_pieces().into_iter().map(one).collect();
    PyTuple::new(py, all?)
}

/// The value that buffers are.
fn value_of(py: Python<'_>, pieces: &[PyRef<'_, Buffer>]) -> PyResult<Value> {
    let whole: PyResult<Vec<_>> = pieces.iter().map(|piece| piece.whole(py)).collect();
    Value::new(whole?).ok_or_else(|| PyValueError::new_err("a value of no buffers"))
}

#[pymethods]
impl Store {
    #[getter]
    /// Whether this process keeps the values.
    fn is_home(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get_store(py)?.is_home())
    }

    /// Keeps a value until it is deleted or evicted.
    fn put(&self, py: Python<'_>, key: &[u8], pieces: Vec<PyRef<'_, Buffer>>) -> PyResult<()> {
        let value = value_of(py, &pieces)?;
        self.done(py, |store| store.put(key, &value)).map(drop)
    }

    /// Keeps a value for one taker.
    fn park(&self, py: Python<'_>, key: &[u8], pieces: Vec<PyRef<'_, Buffer>>) -> PyResult<()> {
        let value = value_of(py, &pieces)?;
        self.done(py, |store| store.park(key, &value)).map(drop)
    }

    /// The value of a key; waits for it.
    #[pyo3(signature = (key, timeout))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let wait = limit(timeout)?;
        self.value(py, |store| store.get(key, wait))
    }

    /// The value of a key, which is forgotten.
    fn take<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
        self.value(py, |store| store.take(key, Some(Duration::ZERO)))
    }

    /// Forgets a value.
    fn delete(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.delete(key)).map(drop)
    }

    /// Keeps a value from being evicted, or ends that.
    fn pin(&self, py: Python<'_>, key: &[u8], pinned: bool) -> PyResult<()> {
        self.done(py, |store| store.pin(key, pinned)).map(drop)
    }

    /// The bytes that values under keys have.
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.done(py, tranship::store::Store::bytes)
    }

    /// Appends to a queue of at most `most` items, 0 for any number. Without a limit it does not wait for the
    /// store's confirmation, of which a later call hears.
    #[pyo3(signature = (queue, pieces, most, timeout))]
    fn push(
        &self,
        py: Python<'_>,
        queue: &[u8],
        pieces: Vec<PyRef<'_, Buffer>>,
        most: Number,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (value, most, wait) = (value_of(py, &pieces)?, most.named("most")?, limit(timeout)?);
        let store = self.get_store(py)?;
        if most == 0 && !store.is_home() {
            return self.push_behind(py, || store.push(queue, &value, most, None));
        }
        self.done(py, |store| store.push(queue, &value, most, wait))
            .map(drop)
    }

    /// Takes the first item of a queue.
    #[pyo3(signature = (queue, timeout))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        queue: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let wait = limit(timeout)?;
        self.value(py, |store| store.pop(queue, wait))
    }

    /// Says that an item is finished.
    fn finish(&self, py: Python<'_>, queue: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.finish(queue)).map(drop)
    }

    /// Waits until all items are finished.
    fn join(&self, py: Python<'_>, queue: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.join(queue)).map(drop)
    }

    /// The number of items.
    fn length(&self, py: Python<'_>, queue: &[u8]) -> PyResult<u64> {
        self.done(py, |store| store.length(queue))
    }

    /// Opens a queue.
    fn open(&self, py: Python<'_>, queue: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.open(queue)).map(drop)
    }

    /// Closes a queue.
    fn close_queue(&self, py: Python<'_>, queue: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.close(queue)).map(drop)
    }

    /// Makes a block of zeros that all may write, and opens it.
    fn block(&self, py: Python<'_>, key: &[u8], nbytes: Number) -> PyResult<Buffer> {
        let nbytes = nbytes.named("nbytes")?;
        self.block_of(py, |store| store.block(key, nbytes))
    }

    /// Opens a block.
    fn attach(&self, py: Python<'_>, key: &[u8]) -> PyResult<Buffer> {
        self.block_of(py, |store| store.attach(key))
    }

    /// Closes a block. The last domain that does so frees it.
    fn detach(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.detach(key)).map(drop)
    }

    /// Forgets a block's name.
    fn unlink(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.done(py, |store| store.unlink(key)).map(drop)
    }

    /// Waits until all pushes are confirmed.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.fork_epoch.check(py)?;
        self.settle(py, 0)
    }

    /// Leaves the store. If this process keeps it, it ends.
    fn close(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| {
                let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
                drop(store.take());
            });
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let store = self.store.get_mut();
        let store = store.unwrap_or_else(PoisonError::into_inner).take();
        let behind = std::mem::take(&mut *self.behind());
        match self.fork_epoch.is_inherited() {
            // A forked child has no part in it.
            true => std::mem::forget((store, behind)),
            false => let_go(self.fork_epoch, Some((behind, store))),
        }
    }
}
