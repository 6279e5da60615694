//! Allocation from the channel's own pool, which no domain but the receiver's can read.

use super::Sender;
use crate::buffer::BufferMut;
use crate::error::{Error, ErrorKind};
use crate::options::PoolOptions;
use crate::pool::Pool;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// Most bytes of a channel's own pool, if its options say nothing else. They are addresses: memory comes as it is needed.
const POOL_BYTES: u64 = 1 << 30;
/// Most buffers of a channel's own pool, if its options say nothing else.
const POOL_SLOTS: u32 = 1024;

impl Sender {
    /// Allocates a buffer of `len` bytes from the channel's own pool. It waits for memory, and never for the receiver.
    ///
    /// The first call makes the pool: at most 1 GiB of addresses and 1024 buffers, memory as it is needed, paid by this domain.
    /// [`ChannelOptions::pool`](crate::ChannelOptions::pool) changes that. The receiver is offered the pool at once, and the first send takes its answer.
    ///
    /// No domain but the receiver's can read the pool. Its buffers go over this channel only: for several channels make a pool
    /// ([`Domain::create_pool`](crate::Domain::create_pool)). The pool outlives the channel until its last buffer is dropped.
    ///
    /// # Errors
    /// As [`Pool::alloc`]; the first call also as [`Domain::create_pool`](crate::Domain::create_pool).
    #[inline(always)]
    pub fn alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.pool()?.alloc(len)
    }

    /// Allocates a buffer of `len` bytes from the channel's own pool, without waiting for memory.
    ///
    /// # Errors
    /// As [`alloc`](Sender::alloc), and `OutOfMemory`.
    #[inline(always)]
    pub fn try_alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.pool()?.try_alloc(len)
    }

    /// Allocates a buffer of `len` bytes from the channel's own pool, or fails with `OutOfMemory` after `timeout`.
    ///
    /// # Errors
    /// As [`alloc`](Sender::alloc), and `OutOfMemory` when the time is over.
    pub fn alloc_timeout(&mut self, len: usize, timeout: Duration) -> Result<BufferMut, Error> {
        self.pool()?.alloc_timeout(len, timeout)
    }

    /// Allocates a buffer of `len` bytes from the channel's own pool without blocking the thread. The first call alone asks the manager for the pool.
    ///
    /// # Errors
    /// As [`alloc`](Sender::alloc), and `System` as for [`send_async`](Sender::send_async).
    pub fn alloc_async(
        &mut self,
        len: usize,
    ) -> impl Future<Output = Result<BufferMut, Error>> + Send + Unpin + use<> {
        let mut allocating = self.pool().map(|pool| pool.alloc_async(len));
        poll_fn(move |context| match &mut allocating {
            Ok(allocating) => Pin::new(allocating).poll(context),
            Err(error) => Poll::Ready(Err(error.clone())),
        })
    }

    /// Returns the channel's own pool, which the first call makes.
    #[inline(always)]
    pub(crate) fn pool(&mut self) -> Result<&Pool, Error> {
        if self.pool.is_none() {
            self.make_pool()?;
        }
        self.pool.as_ref().ok_or(ErrorKind::OutOfMemory.into())
    }

    #[cold]
    fn make_pool(&mut self) -> Result<(), Error> {
        let channel = self.link.channel;
        let mut options = match &self.pool_options {
            Some(options) => PoolOptions::clone(options),
            None => PoolOptions::new(POOL_BYTES)
                .slots(POOL_SLOTS)
                .name(&format!("channel {channel}")),
        };
        options.only_over = Some(channel);
        let pool = Pool::create(&self.link.domain, options)?;
        // The first send takes the answer.
        let _ = self.try_assign(&pool);
        self.pool = Some(pool);
        Ok(())
    }
}
