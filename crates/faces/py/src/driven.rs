//! An end of a channel together with a future of it that is under way, and the descriptor that tells when to look at it
//! again.

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Descriptor for an event loop to wait on: readable from when the task is woken until it looks.
#[derive(Debug)]
pub(crate) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(crate) fn new() -> std::io::Result<Arc<Doorbell>> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Doorbell(fd)))
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); // full: it rings already
    }

    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]); // nothing in it: it is silent
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// A doorbell of an end's, for Python: its descriptor stays open as long as this, also when the end is closed.
#[pyclass(frozen, name = "_Doorbell", module = "tranship._native")]
pub(crate) struct Kept(pub(crate) Arc<Doorbell>);

#[pymethods]
impl Kept {
    fn fileno(&self) -> i32 {
        self.0.fd()
    }
}

pub(crate) type Under<R> = Pin<Box<dyn Future<Output = R> + Send>>;

/// An end, and perhaps a future that borrows it.
pub(crate) struct Driven<E, R> {
    // Invariant: dropped before `end` is used or dropped.
    future: Option<Under<R>>,
    /// A leaked box.
    end: NonNull<E>,
}

// SAFETY: it owns an end and a future, which both may go to another thread.
unsafe impl<E: Send, R> Send for Driven<E, R> {}

impl<E: Send + 'static, R> Driven<E, R> {
    pub(crate) fn new(end: E) -> Driven<E, R> {
        let end = NonNull::from(Box::leak(Box::new(end)));
        Driven { future: None, end }
    }

    /// Returns the end itself. A future that is under way is dropped.
    pub(crate) fn end(&mut self) -> &mut E {
        self.future = None;
        // SAFETY: the box is ours, and nothing borrows it: the future is gone.
        unsafe { self.end.as_mut() }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.future.is_some()
    }

    /// Begins a future, in place of one that is under way.
    pub(crate) fn begin(&mut self, make: impl FnOnce(&'static mut E) -> Under<R>) {
        self.future = None;
        // SAFETY: the box lives until `self` is dropped, which drops the future first; until then nothing else uses the
        // end, as all that does drops the future before.
        let end = unsafe { self.end.as_mut() };
        self.future = Some(make(end));
    }

    /// Polls the future; if it is not done, the doorbell rings when it is to be polled again.
    pub(crate) fn poll(&mut self, doorbell: &Arc<Doorbell>) -> Option<R> {
        let future = self.future.as_mut()?;
        let waker = Waker::from(Arc::clone(doorbell));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(done) => {
                self.future = None;
                Some(done)
            }
        }
    }
}

impl<E, R> Driven<E, R> {
    /// Returns the end, for good.
    pub(crate) fn into_end(mut self) -> E {
        self.future = None;
        // SAFETY: the box was leaked by `new`, nothing borrows it any more, and `self` is forgotten.
        let end = unsafe { Box::from_raw(self.end.as_ptr()) };
        std::mem::forget(self);
        *end
    }
}

impl<E, R> Drop for Driven<E, R> {
    fn drop(&mut self) {
        self.future = None;
        // SAFETY: the box was leaked by `new`, and nothing borrows it any more.
        drop(unsafe { Box::from_raw(self.end.as_ptr()) });
    }
}

impl<E: fmt::Debug, R> fmt::Debug for Driven<E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}
