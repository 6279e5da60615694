//! A channel's handle: what a program sends, and what it learns.

use crate::aggregate::Aggregate;
use crate::buffer::{Buffer, ReadBuffer, Readable};
use crate::domain::{RawEvent, Shared};
use crate::memory::Memory;
use crate::{
    Agreement, ChannelState, Completion, Direction, Error, Kind, Meta, PoolInfo, Role, SendError,
};
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// One end of a channel. Cloneable; methods may be called from any thread, and do not block unless they say so.
///
/// Dropping the last handle closes it, as [`Channel::close`]: what was sent still arrives, what comes is let go, and the
/// domain forgets the end when it is over and what came over it has been let go. The domain sees to that while the program
/// uses it: turns another channel, drops a buffer, wants one of a pool that has none left.
#[derive(Clone, Debug)]
pub struct Channel {
    pub(crate) domain: Arc<Shared>,
    pub(crate) id: u64,
    _watched: Arc<Watched>,
}

/// What the handles of an end share.
#[derive(Debug)]
struct Watched {
    domain: Arc<Shared>,
    id: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.domain.unwatch(self.id);
    }
}

/// What the program learns. Dropping one that carries a buffer lets the buffer go.
#[derive(Debug)]
pub enum Event {
    /// The two ends have agreed, or cannot.
    Bound(Result<Agreement, Error>),
    /// The other end's pool is here.
    PoolAssigned(PoolInfo),
    /// The pool is off the channel.
    PoolRemoved(u64),
    /// A buffer and its ownership, with its metadata.
    Moved(Buffer, Meta),
    /// As `Moved`, from the sink; the bytes are not specified.
    Passed(Buffer, Meta),
    /// A copy, with its metadata.
    Copied(ReadBuffer, Meta),
    /// Buffers and their ownership, sent as one ([`Channel::move_aggregate`]), with the metadata.
    MovedAll(Aggregate, Meta),
    /// Copies that were sent as one.
    CopiedAll(Aggregate<ReadBuffer>, Meta),
    /// A copy that we had sent is back: its buffer, and the metadata.
    Released(u64, u32, Meta),
    /// The other end wants to close: let go what came over the channel.
    TeardownBegun,
    /// Closed, with everything given back.
    Closed,
    /// The other end is dead. So many of our buffers came back and are free.
    Gone(usize),
}

/// Who of the two provides buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The source assigns pools, moves, and gets buffers passed back.
    TransmitMaster,
    /// The sink assigns pools and passes buffers, which come back moved.
    ReceiveMaster,
}

impl Channel {
    pub(crate) fn new(domain: &Arc<Shared>, id: u64) -> Channel {
        let domain = Arc::clone(domain);
        let watched = Watched {
            domain: Arc::clone(&domain),
            id,
        };
        Channel {
            domain,
            id,
            _watched: Arc::new(watched),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        let state = self.domain.lock();
        let found = state.channels.get(&self.id);
        found.map_or(ChannelState::Closed, |channel| channel.state)
    }

    /// Which end this is, and its role; those of the binding end once it is bound.
    #[must_use]
    pub fn direction_and_role(&self) -> Option<(Direction, Role)> {
        let state = self.domain.lock();
        let found = state.channels.get(&self.id)?;
        Some((found.direction, found.role()))
    }

    /// Who provides the buffers, once it is connected.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        match self.direction_and_role()? {
            (Direction::Source, Role::Master) | (Direction::Sink, Role::Slave) => {
                Some(Mode::TransmitMaster)
            }
            (Direction::Sink, Role::Master) | (Direction::Source, Role::Slave) => {
                Some(Mode::ReceiveMaster)
            }
            (_, Role::Generic) => None,
        }
    }

    /// Asks to let the pool's buffers travel here. The other end may veto.
    pub fn assign(&self, pool: u64) -> Result<Completion, Error> {
        self.domain.assign(self.id, pool)
    }

    /// Asks to take it off again.
    pub fn remove(&self, pool: u64) -> Result<Completion, Error> {
        self.domain.remove(self.id, pool)
    }

    /// Gives the buffer to the sink. The metadata is copied.
    pub fn move_(&self, buffer: Buffer, meta: &[u8]) -> Result<Completion, SendError<Buffer>> {
        self.give(Direction::Source, buffer, meta)
    }

    /// Gives the buffer to the source. Its bytes need not arrive.
    pub fn pass(&self, buffer: Buffer, meta: &[u8]) -> Result<Completion, SendError<Buffer>> {
        self.give(Direction::Sink, buffer, meta)
    }

    fn give(
        &self,
        from: Direction,
        mut buffer: Buffer,
        meta: &[u8],
    ) -> Result<Completion, SendError<Buffer>> {
        let sent = self.same(&buffer.domain);
        let sent = sent.and_then(|()| self.domain.give_raw(self.id, from, buffer.at, meta));
        match sent {
            Ok(done) => {
                buffer.live = false;
                Ok(done)
            }
            Err(error) => Err(SendError::new(error, buffer)),
        }
    }

    /// Lets the sink read it. Until all copies are released nobody writes it.
    pub fn copy(&self, buffer: &impl Readable, meta: &[u8]) -> Result<Completion, Error> {
        let (domain, at) = buffer.place();
        self.same(domain)?;
        self.domain.copy_raw(self.id, at, meta)
    }

    /// Gives a copy back that came over this channel.
    pub fn release(&self, copy: ReadBuffer) -> Result<Completion, SendError<ReadBuffer>> {
        self.release_with(copy, &[])
    }

    /// As [`Channel::release`], with metadata.
    pub fn release_with(
        &self,
        mut copy: ReadBuffer,
        meta: &[u8],
    ) -> Result<Completion, SendError<ReadBuffer>> {
        let sent = self
            .same(&copy.domain)
            .and_then(|()| match copy.channel == self.id {
                true => self.domain.release_raw(self.id, copy.at, meta),
                false => Err(Kind::BufferNotACopy.into()),
            });
        match sent {
            Ok(done) => {
                copy.live = false;
                Ok(done)
            }
            Err(error) => Err(SendError::new(error, copy)),
        }
    }

    /// The bytes of `from` into `to`, which is moved: afterwards both ends can write theirs.
    pub fn full_copy(
        &self,
        from: &impl Readable,
        mut to: Buffer,
        meta: &[u8],
    ) -> Result<Completion, SendError<Buffer>> {
        let (domain, at) = from.place();
        let sent = self.same(domain).and_then(|()| self.same(&to.domain));
        let sent = sent.and_then(|()| self.domain.full_copy_raw(self.id, at, to.at, meta));
        match sent {
            Ok(done) => {
                to.live = false;
                Ok(done)
            }
            Err(error) => Err(SendError::new(error, to)),
        }
    }

    /// Asks to close. Done when both ends have given back what came over the channel.
    pub fn close(&self) -> Result<Completion, Error> {
        self.domain.close(self.id)
    }

    /// Ends this end at once, giving nothing back: the other end sees a death. What is out is ours again, whatever the other end
    /// is doing with it: for ends that break rules or answer no more. Others deserve [`Channel::close`], or just dropping it.
    pub fn abandon(&self) {
        self.domain.abandon(self.id);
    }

    /// Who is at the other end, once it is bound, in words for a log: a process, or an address. Empty when the end is forgotten.
    #[must_use]
    pub fn peer(&self) -> String {
        let state = self.domain.lock();
        let channel = state.channels.get(&self.id);
        channel.map_or_else(String::new, |channel| channel.place_of(channel.peer.1))
    }

    /// Whose process is at the other end, or which host, in words: what of one owner is to be counted together. Empty where nobody
    /// knows.
    #[must_use]
    pub fn peer_owner(&self) -> String {
        let state = self.domain.lock();
        let channel = state.channels.get(&self.id);
        let transport = channel.and_then(|channel| channel.transport.as_ref());
        transport.map_or_else(String::new, |transport| transport.peer_owner())
    }

    /// In words, why the other end is gone, where the carrier knows more than that.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.domain.why(self.id)
    }

    /// Takes at most one message; false: none was there.
    pub fn turn(&self) -> Result<bool, Error> {
        self.domain.turn(self.id)
    }

    /// The oldest event, after turning until there is one or nothing is left to take.
    pub fn poll_event(&self) -> Result<Option<Event>, Error> {
        let event = self.domain.next_event(self.id)?;
        Ok(event.map(|(event, memory)| self.with_handles(event, memory)))
    }

    /// The next event, waiting at most `limit` for it.
    pub fn wait_event(&self, limit: Duration) -> Result<Option<Event>, Error> {
        let until = std::time::Instant::now() + limit;
        loop {
            if let Some(event) = self.poll_event()? {
                return Ok(Some(event));
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            let Some(waiter) = self.domain.waiter(self.id).filter(|_| !left.is_zero()) else {
                return Ok(None);
            };
            waiter.wait(left.min(ROUND));
        }
    }

    /// The next event, for awaiting. Something has to turn the channel: see [`Channel::block_on`].
    pub fn event(&self) -> impl Future<Output = Result<Event, Error>> {
        NextEvent(self.clone())
    }

    /// Runs a future on this thread, turning the channel meanwhile. Blocks until it is ready.
    pub fn block_on<F: IntoFuture>(&self, future: F) -> F::Output {
        let mut future = pin!(future.into_future());
        let waker = Waker::from(Arc::new(Nothing));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            match (self.turn(), self.domain.waiter(self.id)) {
                (Ok(true), _) => {}
                (_, Some(waiter)) => {
                    // An end that the turn has seen without a message.
                    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                        return output;
                    }
                    waiter.wait(ROUND);
                }
                (_, None) => std::thread::yield_now(),
            }
        }
    }

    pub(crate) fn same(&self, domain: &Arc<Shared>) -> Result<(), Error> {
        match Arc::ptr_eq(&self.domain, domain) {
            true => Ok(()),
            false => Err(Kind::BufferNotOwned.into()),
        }
    }

    fn with_handles(&self, event: RawEvent, memory: Option<Arc<Memory>>) -> Event {
        let buffer = |pool, index| Buffer::new(&self.domain, (pool, index), memory.clone());
        match event {
            RawEvent::Bound(result) => Event::Bound(result),
            RawEvent::PoolAssigned(info) => Event::PoolAssigned(info),
            RawEvent::PoolRemoved(pool) => Event::PoolRemoved(pool),
            RawEvent::Moved(pool, index, meta) => Event::Moved(buffer(pool, index), meta),
            RawEvent::Passed(pool, index, meta) => Event::Passed(buffer(pool, index), meta),
            RawEvent::Copied(pool, index, meta) => {
                let copy = ReadBuffer::new(&self.domain, (pool, index), self.id, memory);
                Event::Copied(copy, meta)
            }
            RawEvent::Aggregate {
                copies,
                buffers,
                pieces,
                meta,
            } => self.aggregate(copies, buffers, pieces, meta),
            RawEvent::Released(pool, index, meta) => Event::Released(pool, index, meta),
            RawEvent::TeardownBegun => Event::TeardownBegun,
            RawEvent::Closed => Event::Closed,
            RawEvent::Gone(back) => Event::Gone(back.len()),
        }
    }
}

/// The longest single wait: then things are looked at again, whatever woke nobody.
const ROUND: Duration = Duration::from_millis(100);

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

struct NextEvent(Channel);

impl Future for NextEvent {
    type Output = Result<Event, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The waker first: what comes after the look wakes it.
        let mut state = self.0.domain.lock();
        if let Some(channel) = state.channels.get_mut(&self.0.id)
            && !channel.wakers.iter().any(|w| w.will_wake(context.waker()))
        {
            channel.wakers.push(context.waker().clone());
        }
        drop(state);
        match self.0.poll_event() {
            Ok(Some(event)) => Poll::Ready(Ok(event)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
