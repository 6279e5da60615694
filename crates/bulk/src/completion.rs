//! How an operation's end is learned: by callback, by looking, or by awaiting.

use crate::Code;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

type Callback = Box<dyn FnOnce(Result<(), Code>) + Send>;

#[derive(Default)]
struct Inner {
    result: Option<Result<(), Code>>,
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
}

/// The end of one operation: it has been taken (or answered) by the other end, or never will be.
///
/// Something has to turn the channel meanwhile ([`crate::Channel::turn`]): the program's loop, another thread, or
/// [`crate::Channel::block_on`]. Cloneable; dropping it forgets nothing but the news.
#[derive(Clone, Default)]
pub struct Completion(Arc<Mutex<Inner>>);

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Completion({:?})", self.result())
    }
}

impl Completion {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn result(&self) -> Option<Result<(), Code>> {
        self.lock().result
    }

    /// Calls back when it has ended; at once if it has. On the thread that turns the channel, with no lock held.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), Code>) + Send + 'static) {
        let mut inner = self.lock();
        match inner.result {
            None => inner.callbacks.push(Box::new(callback)),
            Some(result) => {
                drop(inner);
                callback(result);
            }
        }
    }

    pub(crate) fn finish(&self, result: Result<(), Code>) {
        let mut inner = self.lock();
        if inner.result.is_some() {
            return;
        }
        inner.result = Some(result);
        let callbacks = std::mem::take(&mut inner.callbacks);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        callbacks.into_iter().for_each(|callback| callback(result));
    }
}

impl IntoFuture for Completion {
    type Output = Result<(), Code>;
    type IntoFuture = Ended;

    fn into_future(self) -> Ended {
        Ended(self)
    }
}

/// A [`Completion`] that is awaited.
#[derive(Clone, Debug)]
pub struct Ended(Completion);

impl Future for Ended {
    type Output = Result<(), Code>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut inner = self.0.lock();
        match inner.result {
            Some(result) => Poll::Ready(result),
            None => {
                if !inner.wakers.iter().any(|w| w.will_wake(context.waker())) {
                    inner.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
