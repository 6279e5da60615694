//! Every operation by number, without handles: what wrong programs can be made of.
//!
//! For tests that compare a domain with the model, and for bindings to languages without ownership. Programs in Rust
//! use the handles of the crate's root, which make most of the errors impossible.

use crate::account::Account;
use crate::domain::{RawEvent, Shared};
use crate::list::List;
use crate::{
    BufferState, ChannelState, Completion, Constraints, Direction, Error, Kind, Mapping, Piece,
    PoolInfo, Role, Statistics, Wish,
};
use std::sync::{Arc, PoisonError};
use tranship_transport::Backend;

pub use crate::domain::RawEvent as Event;

/// A buffer: its pool and its place in it.
pub type Buffer = (u64, u32);

/// Pieces of buffers, as [`crate::Aggregate`], which has nothing.
#[derive(Clone, Debug, Default)]
pub struct Aggregate(List<Buffer>);

impl Aggregate {
    /// Takes a piece out.
    pub fn remove(&mut self, at: usize) -> Result<(), Error> {
        self.0.remove(at).map(|_| ())
    }
}

/// A domain, everything in it named by numbers. Cloneable; the last one to go ends it, as a death does.
#[derive(Clone, Debug)]
pub struct Raw(pub(crate) Arc<Shared>);

impl Default for Raw {
    fn default() -> Raw {
        Raw::new()
    }
}

impl Raw {
    /// A domain with nothing in it.
    #[must_use]
    pub fn new() -> Raw {
        Raw(Arc::new(Shared::new(Account::process())))
    }

    /// As [`Domain::over`](crate::Domain::over).
    pub fn over(domain: &tranship_core::Domain) -> Result<Raw, Error> {
        Ok(Raw(Arc::new(Shared::new(Account::over(domain)?))))
    }

    /// Makes a further kind of address known: `scheme:name`.
    pub fn add_backend(&self, scheme: &str, backend: Arc<dyn Backend>) {
        let mut all = self
            .0
            .backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(scheme.to_owned(), backend);
    }

    /// Algorithm 3. `accept` decides about the other end's pools; with None all are welcome.
    pub fn create(
        &self,
        address: &str,
        direction: Direction,
        wish: Wish,
        meta_bytes: u32,
        accept: Option<Accept>,
    ) -> Result<u64, Error> {
        self.0.create(address, direction, wish, meta_bytes, accept)
    }

    /// Algorithm 4.
    pub fn bind(
        &self,
        address: &str,
        wish: Wish,
        accept: Option<Accept>,
    ) -> Result<(u64, Completion), Error> {
        self.0.bind(address, wish, accept)
    }

    /// Algorithm 5. All buffers are free.
    pub fn new_pool(&self, buffers: u32, buffer_bytes: u64, forward: bool) -> Result<u64, Error> {
        let anywhere = Constraints::default();
        self.0.new_pool(buffers, buffer_bytes, forward, &anywhere)
    }

    /// As [`crate::Domain::pool_within`].
    pub fn new_pool_within(
        &self,
        buffers: u32,
        buffer_bytes: u64,
        forward: bool,
        within: &Constraints,
    ) -> Result<u64, Error> {
        self.0.new_pool(buffers, buffer_bytes, forward, within)
    }

    pub fn destroy_pool(&self, pool: u64) -> Result<(), Error> {
        self.0.destroy_pool(pool)
    }

    /// Takes a free buffer.
    pub fn alloc(&self, pool: u64) -> Result<u32, Error> {
        Ok(self.0.alloc(pool)?.0)
    }

    /// As [`crate::Domain::seal_from`].
    pub fn seal_from(&self, bytes: u64) {
        self.0.seal_from(bytes);
    }

    /// As [`crate::Domain::statistics`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// Algorithm 6.
    pub fn assign(&self, channel: u64, pool: u64) -> Result<Completion, Error> {
        self.0.assign(channel, pool)
    }

    pub fn remove(&self, channel: u64, pool: u64) -> Result<Completion, Error> {
        self.0.remove(channel, pool)
    }

    /// Algorithm 7.
    pub fn move_(&self, channel: u64, buffer: Buffer, meta: &[u8]) -> Result<Completion, Error> {
        self.0.give_raw(channel, Direction::Source, buffer, meta)
    }

    /// Algorithm 8.
    pub fn pass(&self, channel: u64, buffer: Buffer, meta: &[u8]) -> Result<Completion, Error> {
        self.0.give_raw(channel, Direction::Sink, buffer, meta)
    }

    /// Algorithm 9.
    pub fn copy(&self, channel: u64, buffer: Buffer, meta: &[u8]) -> Result<Completion, Error> {
        self.0.copy_raw(channel, buffer, meta)
    }

    /// Algorithm 10.
    pub fn release(&self, channel: u64, buffer: Buffer) -> Result<Completion, Error> {
        self.0.release_raw(channel, buffer, &[])
    }

    /// And says something with it.
    pub fn release_with(
        &self,
        channel: u64,
        buffer: Buffer,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.0.release_raw(channel, buffer, meta)
    }

    /// The bytes of `from` into `to`, which is moved.
    pub fn full_copy(
        &self,
        channel: u64,
        from: Buffer,
        to: Buffer,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.0.full_copy_raw(channel, from, to, meta)
    }

    /// A piece of a buffer in front of the piece `at` of an aggregate. [`Kind::BadArgument`] for a piece that is not in the
    /// buffer, or a place that is not in the list.
    pub fn insert(
        &self,
        aggregate: &mut Aggregate,
        at: usize,
        buffer: Buffer,
        (offset, len): (u64, u64),
    ) -> Result<(), Error> {
        let list = &mut aggregate.0;
        let bytes = self.0.lock().bytes_of(buffer);
        match list.buffers.iter().position(|known| *known == buffer) {
            Some(known) => {
                let buffer = u32::try_from(known).unwrap_or(u32::MAX);
                let piece = Piece {
                    buffer,
                    offset,
                    len,
                };
                list.insert_again(at, piece, bytes)
            }
            None => {
                let inserted = list.insert(at, buffer, (offset, len), bytes);
                inserted
                    .map(drop)
                    .map_err(|_buffer| Kind::BadArgument.into())
            }
        }
    }

    /// Moves all buffers of an aggregate, as one operation.
    pub fn move_all(
        &self,
        channel: u64,
        aggregate: &Aggregate,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let List { buffers, pieces } = &aggregate.0;
        self.0.aggregate_raw(channel, false, buffers, pieces, meta)
    }

    /// Copies all of them.
    pub fn copy_all(
        &self,
        channel: u64,
        aggregate: &Aggregate,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let List { buffers, pieces } = &aggregate.0;
        self.0.aggregate_raw(channel, true, buffers, pieces, meta)
    }

    /// The bytes of an aggregate's pieces.
    pub fn read_all(&self, aggregate: &Aggregate) -> Result<Vec<u8>, Error> {
        let List { buffers, pieces } = &aggregate.0;
        self.0.read_pieces(buffers, pieces)
    }

    /// As [`Aggregate::map`](crate::Aggregate::map).
    pub fn map(&self, aggregate: &Aggregate) -> Result<Mapping, Error> {
        let List { buffers, pieces } = &aggregate.0;
        Mapping::new(&self.0, buffers, pieces)
    }

    /// Asks to close; done when both ends have given everything back.
    pub fn close(&self, channel: u64) -> Result<Completion, Error> {
        self.0.close(channel)
    }

    /// Ends this end at once, giving nothing back: the other end sees a death.
    pub fn abandon(&self, channel: u64) {
        self.0.abandon(channel);
    }

    /// Forgets an end that is over; its number is [`Kind::InvalidEndpoint`] from then on. [`Kind::ChannelState`] if it is not
    /// over; [`Kind::PoolInUse`] while copies that went over it are here, or out of a pool that stays, or buffers are
    /// owned whose memory would go with it.
    pub fn forget(&self, channel: u64) -> Result<(), Error> {
        self.0.forget(channel)
    }

    pub fn write(&self, buffer: Buffer, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.0.write_raw(buffer, offset, bytes)
    }

    pub fn read(&self, buffer: Buffer, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.0.read_raw(buffer, offset, to)
    }

    /// Takes at most one message of the channel; false: there was none.
    pub fn turn(&self, channel: u64) -> Result<bool, Error> {
        self.0.turn(channel)
    }

    /// What was learned and not taken yet, oldest first.
    pub fn poll_event(&self, channel: u64) -> Option<RawEvent> {
        let mut state = self.0.lock();
        state.channels.get_mut(&channel)?.events.pop_front()
    }

    #[must_use]
    pub fn channel_state(&self, channel: u64) -> Option<ChannelState> {
        let state = self.0.lock();
        state.channels.get(&channel).map(|channel| channel.state)
    }

    /// In words, why the other end is gone, where the carrier knows more than that.
    #[must_use]
    pub fn why(&self, channel: u64) -> Option<String> {
        self.0.why(channel)
    }

    #[must_use]
    pub fn direction_and_role(&self, channel: u64) -> Option<(Direction, Role)> {
        let state = self.0.lock();
        let channel = state.channels.get(&channel)?;
        Some((channel.direction, channel.role()))
    }

    /// None: the pool is not known here.
    #[must_use]
    pub fn buffer_state(&self, buffer: Buffer) -> Option<BufferState> {
        let state = self.0.lock();
        let (_, slot) = state.slot(buffer.0, buffer.1).ok()?;
        Some(slot.state())
    }

    /// Where a buffer lies in this domain's memory; None: its pool is not here.
    #[must_use]
    pub fn address(&self, buffer: Buffer) -> Option<usize> {
        let state = self.0.lock();
        let (pool, _) = state.slot(buffer.0, buffer.1).ok()?;
        let base = pool.memory.map.base().addr();
        Some(base + pool.memory.offset(buffer.1))
    }

    #[must_use]
    pub fn pool(&self, pool: u64) -> Option<PoolInfo> {
        self.0.lock().pools.get(&pool).map(|pool| pool.info)
    }

    /// How many buffers of the pool the program does not have.
    #[must_use]
    pub fn free(&self, pool: u64) -> usize {
        let state = self.0.lock();
        state.pools.get(&pool).map_or(0, |pool| pool.free.len())
    }
}

/// Decides about a pool that the other end assigns; an error is a veto.
pub type Accept = Box<dyn FnMut(&PoolInfo) -> Result<(), Error> + Send>;
