//! Rules for a forked child: it may use nothing of its parent's, whose shared memory it does not have.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship::{Error, ErrorKind};

/// Forks between the program's start and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Process in which an object was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkEpoch(u32);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed); // the child has one thread
}

/// Counts forks from now on.
pub(crate) fn watch() -> PyResult<()> {
    // SAFETY: the function is one of this library's, which no interpreter unloads, and only adds to a counter.
    match unsafe { libc::pthread_atfork(None, None, Some(forked)) } {
        0 => Ok(()),
        errno => Err(PyOSError::new_err((errno, "pthread_atfork"))),
    }
}

/// Ends the content of an object without the GIL, which the dropping thread holds: this may take system calls, and
/// waits.
pub(crate) fn end_with<T: Send>(
    fork_epoch: ForkEpoch,
    what: Option<T>,
    end: impl FnOnce(T) + Send,
) {
    let Some(what) = what else { return };
    let mut last = Some(|| end(what));
    if !fork_epoch.is_inherited() {
        // None if the interpreter is going down.
        let _ = Python::try_attach(|py| py.detach(|| last.take().map(|last| last())));
    }
    if let Some(last) = last {
        last();
    }
}

/// Drops it by [`end_with`].
pub(crate) fn let_go<T: Send>(fork_epoch: ForkEpoch, what: Option<T>) {
    end_with(fork_epoch, what, drop);
}

impl ForkEpoch {
    pub(crate) const fn of_the_program() -> ForkEpoch {
        ForkEpoch(0)
    }

    pub(crate) fn now() -> ForkEpoch {
        ForkEpoch(FORKS.load(Ordering::Relaxed))
    }

    pub(crate) fn is_inherited(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }

    /// Checks the epoch before any lock is taken: another thread may have held it when the process was copied.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        match self.is_inherited() {
            false => Ok(()),
            true => Err(crate::errors::raised(py, &Error::from(ErrorKind::Forked))),
        }
    }
}
