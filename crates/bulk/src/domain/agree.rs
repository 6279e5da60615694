//! What a message about a pool does where it arrives: assignment in two phases, removal.

use super::turn::{Fault, MOST_POOLS};
use super::{Assigned, Pool, RawEvent, State};
use crate::message::{Message, PoolInfo, number, refused};
use crate::{Error, Kind, Trust, memory::Memory, memory::Staging, spec::Assignment};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_transport::Bytes;

impl State {
    pub(super) fn take_about_pool(
        &mut self,
        channel: u64,
        message: Message,
        fds: &[Arc<OwnedFd>],
        verdict: Result<(), Error>,
    ) -> Result<(), Fault> {
        match message {
            Message::Assign(info, sealed) => {
                let accepted = self.accept(channel, (info, sealed), verdict);
                let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
                let (answer, staging) = match accepted {
                    Ok(staging) => (Ok(()), staging),
                    Err(why) => (Err(why), None),
                };
                let fds = staging.into_iter().collect();
                end.answer_with(&Message::AssignAnswer(info.id, number(&answer)), fds);
                Ok(())
            }
            Message::AssignAnswer(id, answer) => {
                self.expect(channel, id, Assignment::Asking)?;
                match answer {
                    Ok(()) => self.show(channel, id, fds),
                    Err(number) => {
                        self.asked(channel, id, Err(refused(number)));
                        self.unassign(channel, id);
                        self.unfix_trust(id);
                        Ok(())
                    }
                }
            }
            Message::Show(id, can) => {
                self.expect(channel, id, Assignment::Accepted)?;
                let shown = can.map_err(refused);
                let shown = shown.and_then(|()| self.open_shown(channel, id, fds));
                let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
                end.answer(&Message::Shown(id, number(&shown)));
                match shown {
                    Ok(()) => self.learn_way(channel, id),
                    Err(_) => self.unassign(channel, id),
                }
                Ok(())
            }
            Message::Shown(id, answer) => {
                self.expect(channel, id, Assignment::Showing)?;
                self.asked(channel, id, answer.map_err(refused));
                match answer {
                    Ok(()) => self.set_status(channel, id, Assignment::Assigned),
                    Err(_) => self.unassign(channel, id),
                }
                Ok(())
            }
            Message::Remove(id) => {
                let fine = self.status(channel, id) == Some(Assignment::Assigned)
                    && self.is_clean(channel, id);
                if fine {
                    self.set_status(channel, id, Assignment::Agreed);
                    self.forget_way(channel, id);
                }
                let answer = match fine {
                    true => Ok(()),
                    false => Err(Kind::PoolInUse.into()),
                };
                let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
                end.answer(&Message::RemoveAnswer(id, number(&answer)));
                Ok(())
            }
            Message::RemoveAnswer(id, answer) => {
                self.expect(channel, id, Assignment::Removing)?;
                let commit = answer.is_ok() && self.is_clean(channel, id);
                let result = match (answer, commit) {
                    (Err(number), _) => Err(refused(number)),
                    (Ok(()), true) => Ok(()),
                    (Ok(()), false) => Err(Kind::PoolInUse.into()),
                };
                self.asked(channel, id, result);
                if answer.is_ok() {
                    let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
                    end.answer(&Message::RemoveDecision(id, commit));
                }
                match commit {
                    true => self.unassign(channel, id),
                    false => self.set_status(channel, id, Assignment::Assigned),
                }
                Ok(())
            }
            Message::RemoveDecision(id, commit) => {
                self.expect(channel, id, Assignment::Agreed)?;
                if commit {
                    self.unassign(channel, id);
                    let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
                    end.tell(RawEvent::PoolRemoved(id));
                } else {
                    self.set_status(channel, id, Assignment::Assigned);
                    self.learn_way(channel, id);
                }
                Ok(())
            }
            _ => Err(Kind::PeerViolation.into()),
        }
    }

    fn expect(&self, channel: u64, id: u64, status: Assignment) -> Result<(), Error> {
        match self.status(channel, id) == Some(status) {
            true => Ok(()),
            false => Err(Kind::PeerViolation.into()),
        }
    }

    fn set_status(&mut self, channel: u64, id: u64, status: Assignment) {
        let end = self.channels.get_mut(&channel);
        if let Some(assigned) = end.and_then(|end| end.pools.get_mut(&id)) {
            assigned.status = status;
        }
    }

    /// What we asked about a pool has an answer.
    fn asked(&mut self, channel: u64, id: u64, result: Result<(), Error>) {
        let end = self.channels.get_mut(&channel);
        let assigned = end.and_then(|end| end.pools.get_mut(&id));
        let asked = assigned.and_then(|assigned| assigned.asked.take());
        self.finished.extend(asked.map(|asked| (asked, result)));
    }

    /// Decides about a pool that the other end assigns; makes our own memory for it, where each end has its own. Gives what the
    /// other end is to look at for what we send.
    fn accept(
        &mut self,
        channel: u64,
        (info, sealed): (PoolInfo, bool),
        verdict: Result<(), Error>,
    ) -> Result<Option<Arc<OwnedFd>>, Error> {
        let end = self.channels.get_mut(&channel).ok_or(Kind::ChannelState)?;
        if end.pools.contains_key(&info.id) {
            return Err(Kind::PoolAlreadyAssigned.into());
        }
        if end.pools.len() >= MOST_POOLS {
            return Err(Kind::Limit.into());
        }
        verdict.map_err(Error::of(Kind::PoolVeto))?;
        let known = self.pools.get(&info.id);
        let same = |known: &Pool| known.info == info && known.sealed == sealed;
        if known.is_some_and(|known| !same(known)) || sealed && end.trust() != Trust::None {
            return Err(Kind::PoolInvalid.into());
        }
        if known.is_some_and(|known| known.trust.is_some_and(|trust| trust != end.trust())) {
            return Err(Kind::ChannelTrust.into());
        }
        let constraints = end.agreed.ok_or(Kind::ChannelState)?.constraints;
        let (buffers, bytes) = (u64::from(info.buffers), info.buffer_bytes);
        let fits = |known: &Pool| constraints.allow(known.memory.base(), buffers, bytes);
        if known.is_some_and(|known| !fits(known)) {
            return Err(Kind::BadArgument.into());
        }
        // Its bytes could not be brought here: it is known as memory that another domain alone can write.
        let foreign = known.is_some_and(|known| !known.own_memory);
        if foreign && end.trust() == Trust::Producer && end.backend.bytes() == Bytes::Carried {
            return Err(Kind::PoolMap.into());
        }
        let mut assigned = Assigned::new(Assignment::Accepted, info, sealed);
        if known.is_none() && end.own_memory() {
            let within = constraints.within();
            assigned.made = Some(match sealed {
                true => Memory::reserve(&info, &self.account, within)?,
                false => Memory::make_own(&info, end.trust(), &self.account, within)?,
            });
        }
        if end.stages() && !sealed {
            assigned.staging = Some(Staging::make(&info, &self.account)?);
        }
        let fd = assigned.staging.as_ref().and_then(Staging::fd);
        end.pools.insert(info.id, assigned);
        Ok(fd)
    }

    /// The other end said yes: the pool's trust is fixed, and its memory shown, or what takes its place.
    fn show(&mut self, channel: u64, id: u64, fds: &[Arc<OwnedFd>]) -> Result<(), Fault> {
        let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
        let pool = self.pools.get_mut(&id).ok_or(Kind::PeerViolation)?;
        let snapshots = end.snapshots() && !pool.sealed;
        let mirror = match snapshots && !end.stages() {
            true => {
                let fd = fds.first().ok_or(Kind::PeerViolation)?;
                let mirror = Memory::open_mirror(&pool.info, fd);
                Some(mirror.map_err(|error| match error.kind() {
                    Kind::PoolMap => Fault::Peer(error),
                    _ => Fault::Own(error),
                })?)
            }
            false => None,
        };
        // Only our own memory can fail here; then the other end hears so.
        let fixed = match pool.creator && !pool.fixed {
            true => pool.fix(end.trust()),
            false => Ok(()),
        };
        let staging = match snapshots && end.stages() {
            true => fixed.and_then(|()| Staging::make(&pool.info, &self.account).map(Some)),
            false => fixed.map(|()| None),
        };
        let can = staging.as_ref().map(|_| ()).map_err(Error::clone);
        let staging = staging.ok().flatten();
        for index in 0..pool.info.buffers {
            let _ = pool.protect(index);
        }
        let assigned = end.pools.get_mut(&id).ok_or(Kind::PeerViolation)?;
        let shown = match (&staging, end.backend.bytes()) {
            (Some(staging), _) => staging.fd(),
            (None, Bytes::Shared) if can.is_ok() && !pool.sealed && !snapshots => pool.memory.fd(),
            _ => None,
        };
        (assigned.staging, assigned.mirror) = (staging, mirror);
        assigned.status = Assignment::Showing;
        let shown = shown.into_iter().collect();
        end.answer_with(&Message::Show(id, number(&can)), shown);
        Ok(())
    }

    /// Maps what was shown, or puts our own memory to use.
    fn open_shown(&mut self, channel: u64, id: u64, fds: &[Arc<OwnedFd>]) -> Result<(), Error> {
        let end = self.channels.get_mut(&channel).ok_or(Kind::ChannelState)?;
        let (own, trust) = (end.own_memory(), end.trust());
        let (snapshots, stages) = (end.snapshots(), end.stages());
        let agreed = end.agreed.ok_or(Kind::ChannelState)?;
        let assigned = end.pools.get_mut(&id).ok_or(Kind::PoolInvalid)?;
        let info = assigned.info;
        let shared = end.backend.bytes() == Bytes::Shared;
        let sealed = assigned.sealed;
        let shown = fds.first();
        if shared && shown.is_none() != (sealed || stages) {
            return Err(Kind::PoolMap.into());
        }
        if let (true, Some(fd)) = (snapshots, shown) {
            assigned.mirror = Some(Memory::open_mirror(&info, fd)?);
        }
        match (self.pools.get(&id), shown) {
            // The same pool by another way must be the same memory.
            (Some(known), Some(fd)) if !own && !known.memory.is_same(fd) => {
                return Err(Kind::PoolMap.into());
            }
            (Some(_), _) => {}
            (None, _) => {
                let memory = match (assigned.made.take(), shown) {
                    (Some(made), _) => made,
                    (None, Some(fd)) => {
                        let within = agreed.constraints.within();
                        Memory::open(&info, trust, Arc::clone(fd), within)?
                    }
                    (None, None) => return Err(Kind::PoolMap.into()),
                };
                let (buffers, bytes) = (u64::from(info.buffers), info.buffer_bytes);
                if !agreed.constraints.allow(memory.base(), buffers, bytes) {
                    return Err(Kind::BadArgument.into());
                }
                let pool = Pool::of_another(info, memory, trust, (own, sealed))?;
                self.pools.insert(id, pool);
            }
        }
        let end = self.channels.get_mut(&channel).ok_or(Kind::ChannelState)?;
        if let Some(assigned) = end.pools.get_mut(&id) {
            assigned.status = Assignment::Assigned;
        }
        end.tell(RawEvent::PoolAssigned(info));
        Ok(())
    }
}
