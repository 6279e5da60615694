//! Awaiting memory of a pool.

use super::reactor;
use crate::buffer::BufferMut;
use crate::domain::Key;
use crate::error::Error;
use crate::pool::Pool;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Pause between two looks: releases by other processes wake threads, not tasks.
const PAUSE: Duration = Duration::from_millis(1);

/// The caller's place in the queue for memory.
#[derive(Debug)]
struct Place {
    ticket: u64,
    key: Key,
    since: Instant,
}

struct Allocating {
    /// Keeps the pool alive while it is waited for.
    pool: Pool,
    len: usize,
    place: Option<Place>,
}

impl Pool {
    /// Allocates a buffer of `len` bytes, in any runtime. It waits in the same queue as [`alloc`](Pool::alloc), and
    /// looks once in a millisecond while it is the first there. A dropped future leaves the queue. A future that is
    /// neither awaited nor dropped keeps its place, and all others wait behind it.
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc), and [`ErrorKind::System`](crate::ErrorKind::System) where the thread that wakes tasks, or its descriptors, cannot be had.
    pub fn alloc_async(
        &self,
        len: usize,
    ) -> impl Future<Output = Result<BufferMut, Error>> + Send + Unpin + use<> {
        Allocating {
            pool: self.clone(),
            len,
            place: None,
        }
    }
}

impl Future for Allocating {
    type Output = Result<BufferMut, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (own, len) = (this.pool.own_ref(), this.len);
        own.domain().check_fork()?;
        let place = match &this.place {
            Some(place) => place,
            None => {
                if let Some(buf) = BufferMut::alloc_now(own, len) {
                    return Poll::Ready(Ok(buf));
                }
                if let Some(buf) = BufferMut::alloc_in_queue(own, len, None)? {
                    return Poll::Ready(Ok(buf));
                }
                this.place.insert(Place {
                    ticket: own.join_queue(),
                    key: own.domain().tasks.key(),
                    since: Instant::now(),
                })
            }
        };
        let put = reactor::put(own.domain(), place.key, context.waker());
        let found = put.and_then(|()| BufferMut::alloc_in_queue(own, len, Some(place.ticket)));
        if let Some(done) = found.transpose() {
            this.leave();
            return Poll::Ready(done);
        }
        own.domain()
            .tasks
            .wake_at(place.key, Instant::now() + PAUSE);
        Poll::Pending
    }
}

impl Allocating {
    fn leave(&mut self) {
        let own = self.pool.own_ref();
        if let Some(place) = self.place.take()
            && !own.domain().fork.is_child()
        {
            own.domain().tasks.forget(place.key);
            own.leave_queue(place.ticket, place.since);
        }
    }
}

impl Drop for Allocating {
    fn drop(&mut self) {
        self.leave();
    }
}
