//! Move, pass, copy, release, full copy: the sender's half.
//!
//! The order of the checks is fixed: state, direction, assigned, then the buffer, then the metadata. The state
//! changes before the frame is sent and changes back if it cannot be.

use super::carry::Load;
use super::{Channel, Peer, Shared, State};
use crate::message::{Message, Transfer};
use crate::{Access, BufferState, ChannelState, Completion, Direction, Error, Kind, Meta};
use std::sync::Arc;
use tranship_region::View;
use tranship_transport::Bytes;

impl State {
    pub(super) fn check_channel(
        &self,
        channel: u64,
        pool: u64,
        needs: Direction,
        gives_back: bool,
    ) -> Result<&Channel, Error> {
        let end = self.channels.get(&channel).ok_or(Kind::InvalidEndpoint)?;
        let way = self.pools.get(&pool).and_then(|pool| pool.came_by);
        let open = match end.state {
            ChannelState::Connected => true,
            ChannelState::Teardown => gives_back && !end.finished && way == Some(channel),
            _ => false,
        };
        if !open {
            return Err(Kind::ChannelState.into());
        }
        if end.direction != needs {
            return Err(Kind::ChannelDirection.into());
        }
        if !end.is_assigned(pool) {
            return Err(Kind::PoolNotAssigned.into());
        }
        Ok(end)
    }

    /// A move (from the source) or a pass (from the sink).
    pub(super) fn transfer_away(
        &mut self,
        channel: u64,
        (id, index): (u64, u32),
        from: Direction,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let end = self.check_channel(channel, id, from, true)?;
        let (peer, meta_bytes, carried) = end.terms();
        let (_, slot) = self.slot(id, index)?;
        if !slot.owned {
            return Err(Kind::BufferNotOwned.into());
        }
        if slot.state() != BufferState::ReadWrite || slot.mapped > 0 {
            return Err(Kind::BufferState.into());
        }
        if meta.len() > meta_bytes {
            return Err(Kind::BadArgument.into());
        }
        let (how, (fds, payload)) = match from {
            Direction::Source => (Transfer::Move, self.load((id, index), carried)?),
            Direction::Sink => (Transfer::Pass, Load::default()),
        };
        let mut frame = Message::transfer(how, id, index, meta).frame(fds)?;
        frame.payload = payload;
        if from == Direction::Source {
            self.stage(channel, (id, index))?;
        }
        let (pool, at) = self.slot_mut(id, index)?;
        let lent = pool.slots[at].lent;
        pool.slots[at].owned = false;
        if pool.creator {
            pool.slots[at].lent = Some(peer);
        }
        let protected = pool.protect(index);
        let sent = protected.and_then(|()| self.send_counted(channel, &frame));
        if sent.is_err()
            && let Ok((pool, at)) = self.slot_mut(id, index)
        {
            (pool.slots[at].owned, pool.slots[at].lent) = (true, lent);
            let protected = pool.protect(index);
            self.unstage(channel, (id, index));
            protected?;
        }
        let completion = sent?;
        if from == Direction::Sink && !carried {
            self.clear((id, index));
        }
        self.finish_where_clean();
        Ok(completion)
    }

    pub(super) fn copy(
        &mut self,
        channel: u64,
        (id, index): (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let end = self.check_channel(channel, id, Direction::Source, false)?;
        let (_, meta_bytes, carried) = end.terms();
        let (_, slot) = self.slot(id, index)?;
        if slot.by_state() == Access::None {
            return Err(Kind::BufferInvalid.into());
        }
        if slot.mapped > 0 {
            return Err(Kind::BufferState.into());
        }
        if meta.len() > meta_bytes {
            return Err(Kind::BadArgument.into());
        }
        let (fds, payload) = self.load((id, index), carried)?;
        let mut frame = Message::transfer(Transfer::Copy, id, index, meta).frame(fds)?;
        frame.payload = payload;
        self.stage(channel, (id, index))?;
        let (pool, at) = self.slot_mut(id, index)?;
        pool.slots[at].out.up(channel);
        let protected = pool.protect(index);
        let sent = protected.and_then(|()| self.send_counted(channel, &frame));
        if sent.is_err()
            && let Ok((pool, at)) = self.slot_mut(id, index)
        {
            pool.slots[at].out.down(channel);
            let protected = pool.protect(index);
            self.unstage(channel, (id, index));
            protected?;
        }
        sent
    }

    pub(super) fn release(
        &mut self,
        channel: u64,
        (id, index): (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let end = self.channels.get(&channel).ok_or(Kind::InvalidEndpoint)?;
        let (_, meta_bytes, _) = end.terms();
        let over = end.state == ChannelState::Closed;
        if !over && !matches!(end.state, ChannelState::Connected | ChannelState::Teardown) {
            return Err(Kind::ChannelState.into());
        }
        if end.direction != Direction::Sink {
            return Err(Kind::ChannelDirection.into());
        }
        let assigned = end.pools.get(&id);
        if !assigned.is_some_and(|assigned| assigned.status.has_memory()) {
            return Err(Kind::PoolNotAssigned.into());
        }
        let (_, slot) = self.slot(id, index)?;
        let held = slot.held.of(channel);
        if held == 0 {
            return Err(Kind::BufferNotACopy.into());
        }
        if !slot.owned && held == 1 && slot.first == Some(channel) && slot.out() > 0 {
            return Err(Kind::BufferRefcount.into());
        }
        if slot.mapped > 0 {
            return Err(Kind::BufferState.into());
        }
        if meta.len() > meta_bytes {
            return Err(Kind::BadArgument.into());
        }
        let first = slot.first;
        let message = Message::transfer(Transfer::Release, id, index, meta);
        let frame = message.frame(Vec::new())?;
        let (pool, at) = self.slot_mut(id, index)?;
        let slot = &mut pool.slots[at];
        slot.held.down(channel);
        if held == 1 && slot.first == Some(channel) {
            slot.first = slot.held.first();
        }
        let protected = pool.protect(index);
        let sent = protected.and_then(|()| match over {
            false => self.send_counted(channel, &frame),
            true => {
                let completion = Completion::default();
                self.finished.push((completion.clone(), Ok(())));
                Ok(completion)
            }
        });
        if sent.is_err()
            && let Ok((pool, at)) = self.slot_mut(id, index)
        {
            pool.slots[at].held.up(channel);
            pool.slots[at].first = first;
            pool.protect(index)?;
        }
        let completion = sent?;
        self.clear((id, index));
        self.free_if_unused(id, index);
        self.finish_where_clean();
        Ok(completion)
    }

    pub(super) fn full_copy(
        &mut self,
        channel: u64,
        from: (u64, u32),
        to: (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let end = self.check_channel(channel, to.0, Direction::Source, false)?;
        let (_, meta_bytes, _) = end.terms();
        let (source, slot) = self
            .slot(from.0, from.1)
            .map_err(Error::of(Kind::BufferInvalid))?;
        if slot.by_state() == Access::None || from == to {
            return Err(Kind::BufferInvalid.into());
        }
        let (target, slot) = self.slot(to.0, to.1)?;
        target.is_writable(slot)?;
        if slot.mapped > 0 {
            return Err(Kind::BufferState.into());
        }
        if source.info.buffer_bytes != target.info.buffer_bytes {
            return Err(Kind::AllocSize.into());
        }
        if meta.len() > meta_bytes {
            return Err(Kind::BadArgument.into());
        }
        let (source, target) = (Arc::clone(&source.memory), Arc::clone(&target.memory));
        self.settle(from);
        self.settle(to);
        // Whether it can be sent is known only after it was written.
        let mut before = Vec::new();
        let room = before.try_reserve_exact(target.buffer_bytes());
        room.map_err(Error::of(Kind::OutOfMemory))?;
        before.resize(target.buffer_bytes(), 0);
        let saved = target.view(to.1)?.copy_to_slice(0, &mut before);
        saved.map_err(Error::of(Kind::BufferMap))?;
        self.slot_mut(to.0, to.1)?.0.before_write(to.1, true)?;
        let fill = |bytes| {
            let written = target.map.write(target.offset(to.1), bytes);
            written.map_err(Error::of(Kind::BufferMap))
        };
        fill(source.view(from.1)?)?;
        let sent = self.transfer_away(channel, to, Direction::Source, meta);
        if sent.is_err() {
            self.slot_mut(to.0, to.1)?.0.before_write(to.1, true)?;
            fill(View::from_slice(&before))?;
        }
        sent
    }

    fn send_counted(
        &mut self,
        channel: u64,
        frame: &tranship_transport::Frame,
    ) -> Result<Completion, Error> {
        let end = self
            .channels
            .get_mut(&channel)
            .ok_or(Kind::InvalidEndpoint)?;
        let number = end.send(frame)?;
        Ok(end.ends.completion(number))
    }

    /// A buffer that came back by itself while copies of it were held is free when the last of them is gone.
    pub(super) fn free_if_unused(&mut self, id: u64, index: u32) {
        if let Ok((pool, at)) = self.slot_mut(id, index)
            && pool.creator
            && pool.slots[at].let_go
            && pool.slots[at].state() == BufferState::ReadWrite
            && pool.slots[at].mapped == 0
        {
            pool.slots[at].let_go = false;
            pool.free.push(index);
        }
    }
}

impl Message {
    fn transfer(how: Transfer, pool: u64, index: u32, meta: &[u8]) -> Message {
        Message::Transfer {
            how,
            pool,
            index,
            meta: meta.into(),
            part: false,
        }
    }

    /// One of an aggregate's.
    pub(super) fn part(how: Transfer, pool: u64, index: u32) -> Message {
        Message::Transfer {
            how,
            pool,
            index,
            meta: Meta::default(),
            part: true,
        }
    }
}

impl Channel {
    /// Who is there, how long metadata may be, and whether frames carry bytes.
    pub(super) fn terms(&self) -> (Peer, usize, bool) {
        let carried = self.backend.bytes() == Bytes::Carried;
        (self.peer, self.meta_bytes as usize, carried)
    }
}

impl Shared {
    /// Moves, from the source, or passes, from the sink.
    pub(crate) fn give_raw(
        &self,
        channel: u64,
        from: Direction,
        buffer: (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.lock().transfer_away(channel, buffer, from, meta)
    }

    pub(crate) fn copy_raw(
        &self,
        channel: u64,
        buffer: (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.lock().copy(channel, buffer, meta)
    }

    pub(crate) fn release_raw(
        &self,
        channel: u64,
        buffer: (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.lock().release(channel, buffer, meta)
    }

    pub(crate) fn full_copy_raw(
        &self,
        channel: u64,
        from: (u64, u32),
        to: (u64, u32),
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.lock().full_copy(channel, from, to, meta)
    }

    /// Writes into a buffer that is ours alone.
    pub(crate) fn write_raw(
        &self,
        (id, index): (u64, u32),
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut state = self.lock();
        let found = state.slot_mut(id, index);
        let (pool, at) = found.map_err(Error::of(Kind::BufferNotOwned))?;
        pool.is_writable(&pool.slots[at])?;
        let inside = offset.checked_add(bytes.len());
        if inside.is_none_or(|end| end > pool.memory.buffer_bytes()) {
            return Err(Kind::BadArgument.into());
        }
        pool.before_write(index, bytes.len() == pool.memory.buffer_bytes())?;
        let at = pool.memory.offset(index) + offset;
        let written = pool.memory.map.write(at, View::from_slice(bytes));
        written.map_err(Error::of(Kind::BadArgument))
    }

    /// Reads from a buffer that is here.
    pub(crate) fn read_raw(
        &self,
        (id, index): (u64, u32),
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), Error> {
        let mut state = self.lock();
        let (pool, at) = state.slot_mut(id, index)?;
        if pool.slots[at].by_state() == Access::None {
            return Err(Kind::BufferInvalid.into());
        }
        pool.settle(index);
        let view = pool.memory.view(index)?;
        let copied = view.copy_to_slice(offset, to);
        copied.map_err(Error::of(Kind::BadArgument))
    }
}
