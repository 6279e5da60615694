//! How a buffer's bytes get from one end to the other, and what is behind it in between.

use super::{Assigned, Pool, Shared, Slot, State};
use crate::memory::{self, Memory, Pieces, Sent, Staging};
use crate::message::PoolInfo;
use crate::{Access, Error, Kind, Statistics, Trust};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_region::Guarded;
use tranship_sys::map;
use tranship_transport::Payload;

/// What goes with a transfer: the memory that is shown, and bytes where frames carry them.
pub(super) type Load = (Vec<Arc<OwnedFd>>, Option<Payload>);

impl Pool {
    /// Decides about a pool whose trust is being fixed: does each buffer get a memfd of its own? Not where bytes are carried
    /// first, nor where the process has no room for as many.
    pub(super) fn choose(
        &mut self,
        trust: Trust,
        from: Option<u64>,
        shared: bool,
    ) -> Result<(), Error> {
        if self.trust.is_some() || self.fixed {
            return Ok(());
        }
        if self.memory.is_split() && trust != Trust::None {
            return Err(Kind::ChannelTrust.into());
        }
        let (buffers, bytes) = (self.info.buffers, self.info.buffer_bytes);
        self.sealed = trust == Trust::None
            && (self.memory.is_split() || shared && memory::seals(bytes, from))
            && self.memory.take_budget(buffers, true).is_ok();
        self.take_budget(trust)
    }

    /// Room for as many mappings as the level can need.
    pub(super) fn take_budget(&self, trust: Trust) -> Result<(), Error> {
        match trust {
            Trust::None | Trust::Half => self.memory.take_budget(self.info.buffers, self.sealed),
            Trust::Producer | Trust::Full => Ok(()),
        }
    }

    /// Fixes the level of a pool that this domain created: from now on its memory can be shown.
    pub(super) fn fix(&mut self, trust: Trust) -> Result<(), Error> {
        match self.sealed {
            true => {
                let free = self
                    .free
                    .iter()
                    .copied()
                    .collect::<std::collections::HashSet<_>>();
                let keeps = |index: u32| !free.contains(&index);
                self.pieces = Some(Pieces::split(&self.memory, self.info.buffers, keeps)?);
            }
            false => self.memory.seal(trust)?,
        }
        self.fixed = true;
        Ok(())
    }

    /// A pool of another domain, with memory as it was shown or made; nothing of it is accessible that the level does
    /// not give away.
    pub(super) fn of_another(
        info: PoolInfo,
        memory: Memory,
        trust: Trust,
        (own_memory, sealed): (bool, bool),
    ) -> Result<Pool, Error> {
        // Before anything is made for each of them: a pool that is only addresses can say that it has any number.
        if matches!(trust, Trust::None | Trust::Half) {
            memory.take_budget(info.buffers, sealed)?;
        }
        let mut pool = Pool::new(info, memory, false, own_memory);
        pool.trust = Some(trust);
        pool.fixed = true;
        pool.sealed = sealed;
        pool.pieces = sealed.then(|| Pieces::new(info.buffers, false));
        // How the memory begins (see `Memory`).
        let closed = own_memory || trust == Trust::Half;
        for slot in &mut pool.slots {
            *slot = Slot::new(false);
            slot.access = match (closed, trust) {
                (true, _) => Access::None,
                (false, Trust::Full) => Access::ReadWrite,
                (false, _) => Access::Read,
            };
        }
        for index in 0..info.buffers {
            pool.protect(index)?;
        }
        Ok(pool)
    }

    /// What has to go with a move or a copy. The buffer stays as it is, but may be read-only until it is protected anew.
    fn load(
        &mut self,
        index: u32,
        carried: bool,
        statistics: &mut Statistics,
    ) -> Result<Load, Error> {
        let Some(pieces) = &mut self.pieces else {
            let payload = carried.then(|| self.memory.payload(index));
            return Ok((Vec::new(), payload.flatten()));
        };
        let (fd, sent) = pieces.hand_over(&self.memory, index)?;
        if sent != Sent::AsItWas {
            self.slots[index as usize].access = Access::Read;
        }
        let counter = match sent {
            Sent::Sealed => &mut statistics.sealed,
            Sent::AsItWas => &mut statistics.sent_as_they_came,
            Sent::Touched => &mut statistics.sealed_copies,
            Sent::Refused => &mut statistics.seals_refused,
        };
        *counter += 1;
        Ok(match carried {
            true => {
                let whole = Arc::new(Memory::of_piece(fd, self.memory.buffer_bytes())?);
                (Vec::new(), whole.payload(0))
            }
            false => (vec![fd], None),
        })
    }

    /// Brings the bytes of a buffer that arrives: shown with it, or lying in the other end's staging memory.
    /// [`Kind::PeerViolation`] is the other end's fault, any other error our own.
    pub(super) fn bring(
        &mut self,
        index: u32,
        assigned: &Assigned,
        fds: &[Arc<OwnedFd>],
        statistics: &mut Statistics,
    ) -> Result<(), Error> {
        if let Some(pieces) = &mut self.pieces {
            pieces.take(&self.memory, index, fds.first().ok_or(Kind::PeerViolation)?)?;
            self.slots[index as usize].access = Access::Read;
        } else if let Some(mirror) = &assigned.mirror {
            let at = self.memory.offset(index);
            let bytes = mirror.view().sub(at..at + self.memory.buffer_bytes());
            let bytes = bytes.map_err(Error::of(Kind::PeerViolation))?;
            self.open(index)?;
            let written = self.memory.map.write(at, bytes);
            written.map_err(Error::of(Kind::BufferMap))?;
            statistics.snapshots += 1;
        }
        Ok(())
    }

    /// Makes ready to be written what this domain owns, `whole` or in part.
    pub(crate) fn before_write(&mut self, index: u32, whole: bool) -> Result<(), Error> {
        if let Some(pieces) = &mut self.pieces
            && pieces.before_write(&self.memory, index, whole)?
        {
            self.slots[index as usize].access = Access::ReadWrite;
        }
        Ok(())
    }

    /// Shows a part of a buffer that is here at a place of another range, for reading: what is written to the buffer while
    /// it stays here is seen there.
    pub(crate) fn show_in(
        &mut self,
        index: u32,
        (window, at): (&Guarded, usize),
        (begin, len): (u64, usize),
    ) -> Result<(), Error> {
        let slot = &self.slots[index as usize];
        if let Some(pieces) = &mut self.pieces {
            if slot.owned {
                pieces.unseal(&self.memory, index, slot.access)?;
            }
            return pieces.show_in(index, (window, at), (begin, len));
        }
        let fd = self.memory.fd().ok_or(Kind::BufferMap)?;
        let begin = self.memory.offset(index) as u64 + begin;
        let placed = window.place_shared(at, &*fd, map::Access::Read, len, begin);
        placed.map_err(Error::of(Kind::BufferMap))
    }

    /// What is in the buffer is not specified.
    pub(super) fn loosen(&mut self, index: u32) {
        if let Some(pieces) = &mut self.pieces {
            pieces.loosen(index);
        }
    }

    /// Somebody looks at what is in the buffer.
    pub(crate) fn settle(&mut self, index: u32) {
        if let Some(pieces) = &mut self.pieces {
            pieces.settle(index);
        }
    }

    /// The buffer is not here any more, and will not come back with nothing: its memory goes.
    pub(super) fn clear(&mut self, index: u32) {
        if self.slots[index as usize].access == Access::None
            && let Some(pieces) = &mut self.pieces
        {
            pieces.clear(&self.memory, index);
        }
    }
}

impl Shared {
    pub(crate) fn seal_from(&self, bytes: u64) {
        self.lock().seal_from = Some(bytes);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.lock().statistics
    }
}

impl State {
    pub(super) fn load(&mut self, at: (u64, u32), carried: bool) -> Result<Load, Error> {
        let pool = self.pools.get_mut(&at.0).ok_or(Kind::PoolInvalid)?;
        pool.load(at.1, carried, &mut self.statistics)
    }

    /// Puts the bytes of a buffer that is about to be sent where the other end looks for them, if it looks at memory of ours.
    pub(super) fn stage(&mut self, channel: u64, (id, index): (u64, u32)) -> Result<(), Error> {
        let Some(staging) = self.staging(channel, (id, index)) else {
            return Ok(());
        };
        staging.put(&self.slot(id, index)?.0.memory, index)
    }

    /// It was not sent.
    pub(super) fn unstage(&self, channel: u64, buffer: (u64, u32)) {
        if let Some(staging) = self.staging(channel, buffer) {
            staging.wipe(buffer.1);
        }
    }

    /// None also where the bytes are there already: a copy of the buffer is out over the channel, so it cannot have changed.
    fn staging(&self, channel: u64, (id, index): (u64, u32)) -> Option<&Staging> {
        let staging = self
            .channels
            .get(&channel)?
            .pools
            .get(&id)?
            .staging
            .as_ref()?;
        let (_, slot) = self.slot(id, index).ok()?;
        (slot.out.of(channel) == 0).then_some(staging)
    }

    pub(super) fn clear(&mut self, (pool, index): (u64, u32)) {
        if let Ok((pool, _)) = self.slot_mut(pool, index) {
            pool.clear(index);
        }
    }

    /// As [`Pool::settle`].
    pub(crate) fn settle(&mut self, (pool, index): (u64, u32)) {
        if let Ok((pool, _)) = self.slot_mut(pool, index) {
            pool.settle(index);
        }
    }
}
