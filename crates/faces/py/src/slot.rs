//! Objects that Python closes: what they hold, the end of a `with`, and what classes have in common.

use crate::errors::closed;
use crate::fork::{ForkEpoch, let_go};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Content of an object until it is closed. A forked child of the process that made it may use nothing of it.
///
/// The content ends without the GIL.
pub(crate) struct Slot<T: Send> {
    inner: Mutex<Option<T>>,
    pub(crate) fork_epoch: ForkEpoch,
    /// The object's name in errors.
    pub(crate) what: &'static str,
}

impl<T: Send> Slot<T> {
    pub(crate) fn new(inner: T, what: &'static str) -> Slot<T> {
        Slot {
            inner: Mutex::new(Some(inner)),
            fork_epoch: ForkEpoch::now(),
            what,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it if no other thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Option<T>>> {
        self.inner.try_lock().ok()
    }

    /// Returns a handle of the content.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<T>
    where
        T: Clone,
    {
        self.fork_epoch.check(py)?;
        self.lock().clone().ok_or_else(|| closed(self.what))
    }

    /// Takes the content out, if it is there.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.fork_epoch.check(py)?;
        Ok(self.lock().take())
    }

    /// Ends the content, without the GIL.
    pub(crate) fn close(&self, py: Python<'_>) {
        if !self.fork_epoch.is_inherited() {
            py.detach(|| {
                let inner = self.lock().take();
                drop(inner);
            });
        }
    }

    /// Awaits a future as long as the object is open. `None`: another thread has closed it. The future is polled at the next turn of its wait.
    pub(crate) async fn while_open<R>(
        &self,
        mut future: Pin<Box<dyn Future<Output = R> + Send>>,
    ) -> Option<R> {
        let poll = |context: &mut Context<'_>| match self.lock().is_some() {
            false => Poll::Ready(None),
            true => future.as_mut().poll(context).map(Some),
        };
        std::future::poll_fn(poll).await
    }
}

impl<T: Send> Drop for Slot<T> {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let inner = inner.unwrap_or_else(PoisonError::into_inner).take();
        let_go(self.fork_epoch, inner);
    }
}

/// Calls a function of the package's code for asyncio.
pub(crate) fn aio<'py>(
    py: Python<'py>,
    function: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("tranship._aio")?;
    module.call_method1(function, arguments)
}

/// Adds `__reduce__` to classes whose objects cannot be pickled: it says the reason.
macro_rules! stays {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            fn __reduce__(&self) -> pyo3::PyResult<()> {
                Err(crate::errors::not_pickled(stringify!($class)))
            }
        }
    };
}

/// Adds `_repr_html_`, which notebooks ask for: a function of `tranship._notebook` makes it.
macro_rules! shown {
    ($class:ident, $function:literal) => {
        #[pyo3::pymethods]
        impl $class {
            fn _repr_html_(
                slf: pyo3::Bound<'_, Self>,
            ) -> pyo3::PyResult<pyo3::Bound<'_, pyo3::PyAny>> {
                let page = slf.py().import("tranship._notebook")?;
                page.call_method1($function, (slf,))
            }
        }
    };
}

/// Adds `__enter__` and `__exit__` to classes with `close`, which the end of a `with` calls. Their objects cannot be pickled.
macro_rules! closes {
    ($($class:ident),*) => {$(
        crate::slot::stays!($class);
        #[pyo3::pymethods]
        impl $class {
            fn __enter__(slf: pyo3::Bound<'_, Self>) -> pyo3::Bound<'_, Self> {
                slf
            }

            #[pyo3(signature = (*_error))]
            fn __exit__(&self, py: pyo3::Python<'_>, _error: &pyo3::Bound<'_, pyo3::types::PyTuple>) {
                self.close(py);
            }
        }
    )*};
}

/// Adds `__iter__` and `__aiter__` to a class with `__next__` and `__anext__`.
macro_rules! iterates {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            fn __iter__(slf: pyo3::Bound<'_, Self>) -> pyo3::Bound<'_, Self> {
                slf
            }

            fn __aiter__(slf: pyo3::Bound<'_, Self>) -> pyo3::Bound<'_, Self> {
                slf
            }
        }
    };
}

/// Adds `close`, `with` and the representation to a class whose content is in its field `held`, and whose name is in `name`.
macro_rules! holds {
    ($class:ident, $of:literal, $closes:literal) => {
        #[pyo3::pymethods]
        impl $class {
            #[doc = $closes]
            fn close(&self, py: pyo3::Python<'_>) {
                self.held.close(py);
            }

            fn __repr__(&self) -> String {
                format!(
                    concat!("<tranship.", stringify!($class), " of ", $of, " {:?}>"),
                    self.name
                )
            }
        }
        crate::slot::closes!($class);
    };
}

pub(crate) use {closes, holds, iterates, shown, stays};
