//! Memory of which Python has views, so that an array can be led back to the buffer that it lies in.

use crate::fork::ForkEpoch;
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers that begin further up and are checked. Buffers that overlap are parts of one another.
const LOOKS: usize = 64;

struct Exported {
    /// Process of this list: a forked child has no part in its parent's memory, in place of which other may lie.
    fork_epoch: ForkEpoch,
    /// Length of the memory, by its address and that of the Python object.
    lengths: BTreeMap<(usize, usize), usize>,
}

// Taken and given back with the GIL, which a thread that forks holds: no child finds it locked.
static EXPORTED: Mutex<Exported> = Mutex::new(Exported {
    fork_epoch: ForkEpoch::of_the_program(),
    lengths: BTreeMap::new(),
});

fn exported() -> MutexGuard<'static, Exported> {
    let mut exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if exported.fork_epoch.is_inherited() {
        exported.fork_epoch = ForkEpoch::now();
        exported.lengths.clear();
    }
    exported
}

/// Adds a buffer at its first view. From here to [`remove`] the views keep the object alive.
pub(super) fn insert(at: usize, len: usize, object: *mut ffi::PyObject) {
    exported()
        .lengths
        .insert((at, object.expose_provenance()), len);
}

/// Removes a buffer after its last view.
pub(super) fn remove(at: usize, object: *mut ffi::PyObject) {
    exported().lengths.remove(&(at, object.expose_provenance()));
}

/// Returns the object that has all of this memory, and the place of the memory in it. The caller has a view of the
/// memory.
pub(crate) fn find<'py>(
    py: Python<'py>,
    at: usize,
    len: usize,
) -> Option<(Bound<'py, PyAny>, usize)> {
    let end = at.checked_add(len)?;
    let exported = exported();
    let found = exported
        .lengths
        .range(..=(at, usize::MAX))
        .rev()
        .take(LOOKS)
        .find(|((start, _), held)| end <= *start + **held)
        .map(|((start, object), _)| (*start, *object))?;
    let (start, object) = found;
    let object = std::ptr::with_exposed_provenance_mut::<ffi::PyObject>(object);
    // SAFETY: an object in the list has a view, which holds a reference. It is taken off the list before the last
    // reference goes. That needs the GIL, which we have, or the list's lock, which we hold.
    let object = unsafe { Bound::from_borrowed_ptr(py, object) };
    drop(exported);
    Some((object, at - start))
}
