//! A buffer that arrives: what may, where its bytes go, and what it is then.

use super::turn::Fault;
use super::{Pool, RawEvent, State};
use crate::message::{Message, Transfer};
use crate::{Access, BufferState, ChannelState, Direction, Error, Kind, Meta, Trust};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_transport::{Frame, Place, RecvError};

/// What a message says about a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub how: Transfer,
    pub buffer: (u64, u32),
    pub meta: Meta,
    /// One of an aggregate's.
    pub part: bool,
}

/// A buffer whose bytes have not all come.
#[derive(Debug)]
pub(crate) struct Arriving {
    what: Arrival,
    place: Place,
    /// All of them are here.
    filled: bool,
}

impl Arrival {
    /// Do its bytes matter?
    pub(super) fn brings_bytes(&self) -> bool {
        matches!(self.how, Transfer::Move | Transfer::Copy)
    }
}

impl State {
    /// A message that bytes follow: says where they go. True if something was learned.
    pub(super) fn begin(
        &mut self,
        channel: u64,
        (message, frame): (Message, Frame),
        brings: usize,
    ) -> Result<bool, Error> {
        match self.place_for(channel, message, brings) {
            Ok(arriving) => {
                if let Some(end) = self.channels.get_mut(&channel) {
                    end.arriving = Some(arriving);
                }
                self.go_on(channel)
            }
            Err(Fault::Peer(why)) => {
                self.peer_gone(channel, why);
                self.wake(channel);
                Ok(true)
            }
            Err(Fault::Own(lack)) => {
                self.hold_back(channel, frame);
                Err(lack)
            }
            Err(Fault::Later) => {
                self.hold_back(channel, frame);
                Ok(false)
            }
        }
    }

    /// Is nothing on its way into the buffer over another channel? Else that would go on writing what is here by then.
    pub(super) fn is_free(&self, channel: u64, what: &Arrival) -> Result<(), Fault> {
        let (id, index) = what.buffer;
        let slot = self.slot(id, index);
        let arriving = slot.map_err(Error::of(Kind::PeerViolation))?.1.arriving;
        match arriving.is_none_or(|by| by == channel) {
            true => Ok(()),
            false => Err(Fault::Later),
        }
    }

    fn place_for(
        &mut self,
        channel: u64,
        message: Message,
        brings: usize,
    ) -> Result<Arriving, Fault> {
        let Message::Transfer {
            how,
            pool: id,
            index,
            meta,
            part,
        } = message
        else {
            return Err(Kind::PeerViolation.into());
        };
        let what = Arrival {
            how,
            buffer: (id, index),
            meta,
            part,
        };
        let wanted = self.may_arrive(channel, &what)?;
        self.is_free(channel, &what)?;
        let pool = self.pools.get_mut(&id).ok_or(Kind::PeerViolation)?;
        let len = pool.memory.buffer_bytes();
        if !what.brings_bytes() || brings != len {
            return Err(Kind::PeerViolation.into());
        }
        let place = match wanted && pool.takes_bytes() {
            true => {
                pool.open(index).map_err(Fault::Own)?;
                pool.slots[index as usize].arriving = Some(channel);
                pool.memory.place(index)
            }
            false => Place::nowhere(len),
        };
        let filled = false;
        Ok(Arriving {
            what,
            place,
            filled,
        })
    }

    /// Takes more of the bytes that are arriving; says whether something was learned.
    pub(super) fn go_on(&mut self, channel: u64) -> Result<bool, Error> {
        let Some(end) = self.channels.get_mut(&channel) else {
            return Ok(false);
        };
        let (Some(arriving), Some(transport)) = (&mut end.arriving, &mut end.transport) else {
            return Ok(false);
        };
        if !arriving.filled {
            transport.done(&mut end.taken);
            let filled = transport.fill(&arriving.place);
            end.ends.finish(&end.taken, &mut self.due);
            end.taken.clear();
            match filled {
                Ok(false) => return Ok(false),
                Ok(true) => arriving.filled = true,
                Err(RecvError::NotNow(lack)) => return Err(lack),
                Err(RecvError::Over(why)) => {
                    self.half_arrived(channel);
                    return Ok(self.carrier_failed(channel, why));
                }
            }
        }
        if let Some(arriving) = end.arriving.take() {
            // Once more: another channel may have brought something meanwhile.
            let fine = self.may_arrive(channel, &arriving.what);
            let taken = match fine {
                Ok(_) => self.arrive(channel, arriving.what.clone(), None),
                Err(why) => Err(why.into()),
            };
            match taken {
                Ok(()) => {}
                Err(Fault::Peer(why)) => self.peer_gone(channel, why),
                Err(Fault::Own(lack)) => {
                    if let Some(end) = self.channels.get_mut(&channel) {
                        end.arriving = Some(arriving);
                    }
                    return Err(lack);
                }
                // Checked when it began.
                Err(Fault::Later) => {}
            }
            self.arrived(channel, &arriving.what);
        }
        self.finish_where_clean();
        self.give_back();
        self.wake(channel);
        Ok(true)
    }

    /// Nothing is on its way into the buffer over this channel any more.
    fn arrived(&mut self, channel: u64, what: &Arrival) {
        let (id, index) = what.buffer;
        if let Ok((pool, at)) = self.slot_mut(id, index)
            && pool.slots[at].arriving == Some(channel)
        {
            pool.slots[at].arriving = None;
        }
    }

    /// The rest will never come.
    pub(super) fn half_arrived(&mut self, channel: u64) {
        let end = self.channels.get_mut(&channel);
        let Some(arriving) = end.and_then(|end| end.arriving.take()) else {
            return;
        };
        let (id, index) = arriving.what.buffer;
        self.arrived(channel, &arriving.what);
        if let Ok((pool, _)) = self.slot_mut(id, index) {
            // If the kernel refuses, this domain may touch what it should not: its own mistakes go unnoticed.
            let _ = pool.protect(index);
        }
    }

    /// May this come now? Says whether it was nowhere here, so that its bytes are wanted.
    pub(super) fn may_arrive(&self, channel: u64, what: &Arrival) -> Result<bool, Error> {
        let end = self.channels.get(&channel).ok_or(Kind::PeerViolation)?;
        let open = matches!(end.state, ChannelState::Connected | ChannelState::Teardown);
        if !open || what.meta.len() > end.meta_bytes as usize {
            return Err(Kind::PeerViolation.into());
        }
        // Parts are moved or copied, and their metadata comes with the last message.
        if what.part && !(what.brings_bytes() && what.meta.is_empty()) {
            return Err(Kind::PeerViolation.into());
        }
        let needs = match what.how {
            Transfer::Move | Transfer::Copy => Direction::Sink,
            Transfer::Pass | Transfer::Release => Direction::Source,
        };
        let (id, index) = what.buffer;
        let assigned = end.pools.get(&id).ok_or(Kind::PeerViolation)?;
        if end.direction != needs || !assigned.status.has_memory() {
            return Err(Kind::PeerViolation.into());
        }
        let pool = self.pools.get(&id).ok_or(Kind::PeerViolation)?;
        let slot = pool.slots.get(index as usize).ok_or(Kind::PeerViolation)?;
        let (was, peer) = (slot.state(), end.peer);
        let possible = match what.how {
            // A buffer comes back from the one who has it; only what may be passed on comes from elsewhere.
            Transfer::Move | Transfer::Pass => {
                let way = !pool.creator || pool.info.forward || slot.lent == Some(peer);
                was == BufferState::Invalid && way
            }
            Transfer::Copy => was != BufferState::ReadWrite,
            Transfer::Release => slot.out.of(channel) > 0,
        };
        match possible {
            true => Ok(was == BufferState::Invalid && what.brings_bytes()),
            false => Err(Kind::PeerViolation.into()),
        }
    }

    /// It is here. With `shown`, its bytes are still to be brought: they are in what was shown with it, or in the other end's
    /// staging memory.
    pub(super) fn arrive(
        &mut self,
        channel: u64,
        what: Arrival,
        shown: Option<&[Arc<OwnedFd>]>,
    ) -> Result<(), Fault> {
        let ((id, index), meta) = (what.buffer, what.meta);
        let end = self.channels.get(&channel).ok_or(Kind::PeerViolation)?;
        let assigned = end.pools.get(&id).ok_or(Kind::PeerViolation)?;
        let pool = self.pools.get_mut(&id).ok_or(Kind::PeerViolation)?;
        if let Some(fds) = shown {
            pool.bring(index, assigned, fds, &mut self.statistics)?;
        }
        let slot = pool
            .slots
            .get_mut(index as usize)
            .ok_or(Kind::PeerViolation)?;
        let (lent, let_go, first) = (slot.lent, slot.let_go, slot.first);
        match what.how {
            Transfer::Move | Transfer::Pass => {
                slot.owned = true;
                slot.lent = None;
                slot.let_go = false;
            }
            Transfer::Copy => {
                slot.held.up(channel);
                slot.first.get_or_insert(channel);
            }
            Transfer::Release => slot.out.down(channel),
        }
        // The kernel refuses only for want of memory for its tables, or if there are too many mappings.
        if let Err(lack) = pool.protect(index) {
            let slot = &mut pool.slots[index as usize];
            match what.how {
                Transfer::Move | Transfer::Pass => slot.owned = false,
                Transfer::Copy => slot.held.down(channel),
                Transfer::Release => slot.out.up(channel),
            }
            (slot.lent, slot.let_go, slot.first) = (lent, let_go, first);
            return Err(Fault::Own(lack));
        }
        if what.how == Transfer::Pass {
            pool.loosen(index);
        }
        if what.part {
            return Ok(self.keep_part(channel, what.how, (id, index))?);
        }
        let event = match what.how {
            Transfer::Move => RawEvent::Moved(id, index, meta),
            Transfer::Pass => RawEvent::Passed(id, index, meta),
            Transfer::Copy => RawEvent::Copied(id, index, meta),
            Transfer::Release => RawEvent::Released(id, index, meta),
        };
        self.free_if_unused(id, index);
        if let Some(end) = self.channels.get_mut(&channel) {
            end.tell(event);
        }
        Ok(())
    }
}

impl Pool {
    /// Can this domain write the memory, so that bytes can be brought in?
    fn takes_bytes(&self) -> bool {
        self.own_memory || matches!(self.trust, Some(Trust::Full | Trust::Half))
    }

    /// Makes a buffer writable for bytes that arrive.
    pub(super) fn open(&mut self, index: u32) -> Result<(), Error> {
        self.before_write(index, true)?;
        let slot = &mut self.slots[index as usize];
        if slot.access != Access::ReadWrite {
            self.memory.protect(index, Access::ReadWrite)?;
            slot.access = Access::ReadWrite;
        }
        Ok(())
    }
}
