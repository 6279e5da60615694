//! What a message does where it arrives. Whatever a peer may not say ends the channel.

use super::arrive::Arrival;
use super::{Assigned, Channel, Guard, Pool, RawEvent, Shared, State};
use crate::backend::{Bytes, Frame, RecvError};
use crate::message::{Message, PoolInfo, VERSION, code, number};
use crate::{
    Agreement, ChannelState, Code, Direction, Trust, memory::Memory, negotiate, spec::Assignment,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Pools of one channel, at most: no end can be asked more at once than once for each.
pub(super) const MOST_POOLS: usize = 1024;
/// Answers that wait for room.
const MOST_ANSWERS: usize = 2 * MOST_POOLS;
/// Events that wait for the program, before it is looked at what they are.
const MOST_EVENTS: usize = 1 << 16;

/// The peer broke a rule.
pub(super) struct Violation;

/// Why a message cannot be taken.
pub(super) enum Fault {
    Peer,
    /// For want of something here: nothing has changed, and it can be taken later.
    Own(Code),
    /// The same buffer is on its way in over another channel.
    Later,
}

impl From<Violation> for Fault {
    fn from(_: Violation) -> Fault {
        Fault::Peer
    }
}

/// What a look at the carrier finds.
enum Next {
    Nothing,
    /// Something without a message.
    Learned,
    /// A message, and how many bytes follow it.
    Frame(Frame, usize),
    /// More of a buffer's bytes, perhaps.
    Bytes,
}

impl Shared {
    /// Takes at most one message of the channel; says whether it took one, or learned of the other end's end. An error is this
    /// domain's own: nothing was taken, and the message waits.
    pub(crate) fn turn(&self, channel: u64) -> Result<bool, Code> {
        Ok(self.turn_with(self.lock(), channel)?.1)
    }

    /// As [`Shared::turn`], with the lock taken; whoever waits for something hears of it when the lock is let go.
    pub(super) fn turn_with<'a>(
        &'a self,
        mut state: Guard<'a>,
        channel: u64,
    ) -> Result<(Guard<'a>, bool), Code> {
        let (frame, brings) = match state.next_frame(channel)? {
            Next::Nothing => return Ok((state, false)),
            Next::Learned => return Ok((state, true)),
            Next::Bytes => {
                let learned = state.go_on(channel)?;
                return Ok((state, learned));
            }
            Next::Frame(frame, brings) => (frame, brings),
        };
        let Some(message) = Message::decode(&frame.bytes) else {
            state.peer_gone(channel, Code::PeerViolation);
            return Ok((state, true));
        };
        if brings > 0 {
            let learned = state.begin(channel, (message, frame), brings)?;
            return Ok((state, learned));
        }
        // The program decides about pools with no lock held.
        let mut verdict = Ok(());
        if let Message::Assign(info, _) = &message {
            let end = state.channels.get_mut(&channel);
            let acceptor = end.and_then(|end| end.acceptor.take());
            if let Some(mut acceptor) = acceptor {
                drop(state);
                verdict = acceptor(info);
                state = self.lock();
                if let Some(end) = state.channels.get_mut(&channel) {
                    end.acceptor.get_or_insert(acceptor);
                }
            }
        }
        match state.take(self.id, channel, message, &frame.fds, verdict) {
            Ok(()) => {}
            Err(Fault::Peer) => state.peer_gone(channel, Code::PeerViolation),
            Err(Fault::Own(code)) => {
                state.hold_back(channel, frame);
                return Err(code);
            }
            Err(Fault::Later) => {
                state.hold_back(channel, frame);
                return Ok((state, false));
            }
        }
        state.finish_where_clean();
        state.give_back();
        state.wake(channel);
        Ok((state, true))
    }
}

impl State {
    pub(super) fn wake(&mut self, channel: u64) {
        if let Some(end) = self.channels.get_mut(&channel) {
            self.woken.append(&mut end.wakers);
        }
    }

    fn next_frame(&mut self, channel: u64) -> Result<Next, Code> {
        let end = self
            .channels
            .get_mut(&channel)
            .ok_or(Code::InvalidEndpoint)?;
        if end.transport.is_none()
            && let Some(listener) = end.listener.as_mut()
        {
            end.transport = listener.accept()?;
        }
        end.flush();
        let (asks, flooded) = (end.outbox.len() > MOST_ANSWERS, end.is_flooded());
        let Some(transport) = end.transport.as_mut() else {
            return Ok(Next::Nothing);
        };
        if end.arriving.is_some() {
            return Ok(Next::Bytes);
        }
        transport.done(&mut end.taken);
        let received = match end.held_back.take() {
            Some(frame) => Ok(Some(frame)),
            // It asks, and does not take the answers.
            None if asks => Err(RecvError::Violation),
            None if flooded => Ok(None),
            None => transport.recv(),
        };
        end.ends.finish(&end.taken, &mut self.due);
        end.taken.clear();
        match received {
            Ok(None) => Ok(Next::Nothing),
            Ok(Some(frame)) => Ok(Next::Frame(frame, transport.brings())),
            Err(RecvError::NotNow(code)) => Err(code),
            Err(why) => Ok(match self.carrier_failed(channel, why) {
                true => Next::Learned,
                false => Next::Nothing,
            }),
        }
    }

    /// A message for which something is missing here: it is looked at again next.
    pub(super) fn hold_back(&mut self, channel: u64, frame: Frame) {
        if let Some(end) = self.channels.get_mut(&channel) {
            end.held_back = Some(frame);
        }
    }

    /// Nothing more comes from the carrier; says whether something was learned by that.
    pub(super) fn carrier_failed(&mut self, channel: u64, why: RecvError) -> bool {
        let Some(end) = self.channels.get_mut(&channel) else {
            return false;
        };
        end.why = end.transport.as_ref().and_then(|transport| transport.why());
        match why {
            why if end.is_open() => {
                let why = match why {
                    RecvError::Gone => Code::PeerGone,
                    RecvError::NotNow(code) | RecvError::Lost(code) => code,
                    RecvError::Violation => Code::PeerViolation,
                };
                match end.state {
                    // Whoever connected is gone before it was bound: somebody else may.
                    ChannelState::Initialized => {
                        end.refused();
                        return false;
                    }
                    ChannelState::Binding => self.bind_refused(channel, Code::InvalidEndpoint),
                    _ => self.peer_gone(channel, why),
                }
                self.wake(channel);
                true
            }
            _ => {
                end.transport = None;
                false
            }
        }
    }

    fn bind_refused(&mut self, channel: u64, why: Code) {
        if let Some(end) = self.channels.get_mut(&channel) {
            end.state = ChannelState::Uninitialized;
            end.transport = None;
            end.failure = Some(why);
            end.tell(RawEvent::Bound(Err(why)));
            let asked = end.bind.take();
            self.finished.extend(asked.map(|asked| (asked, Err(why))));
        }
    }

    fn take(
        &mut self,
        own: u64,
        channel: u64,
        message: Message,
        fds: &[Arc<OwnedFd>],
        verdict: Result<(), Code>,
    ) -> Result<(), Fault> {
        let end = self.channels.get_mut(&channel).ok_or(Violation)?;
        match message {
            Message::Bind {
                version,
                domain,
                wish,
            } => Ok(end.take_bind(own, version, domain, wish)?),
            Message::BindAnswer {
                domain,
                meta_bytes,
                source,
                answer,
            } => {
                let wrong = answer.is_ok_and(|agreed| !negotiate::is_answer(end.wish, agreed));
                if end.state != ChannelState::Binding || wrong {
                    return Err(Fault::Peer);
                }
                match answer {
                    Ok(agreed) => {
                        end.connected(domain, agreed);
                        end.meta_bytes = meta_bytes.min(crate::message::MAX_META_BYTES);
                        end.direction = match source {
                            true => Direction::Source,
                            false => Direction::Sink,
                        };
                        let asked = end.bind.take();
                        self.finished.extend(asked.map(|asked| (asked, Ok(()))));
                    }
                    Err(number) => self.bind_refused(channel, code(number)),
                }
                Ok(())
            }
            Message::Teardown => {
                match end.state {
                    ChannelState::Connected => {
                        end.tell(RawEvent::TeardownBegun);
                        end.answer(&Message::Teardown);
                        end.peer_began = true;
                        self.begin_teardown(channel);
                    }
                    ChannelState::Teardown if !end.peer_began => end.peer_began = true,
                    _ => return Err(Fault::Peer),
                }
                Ok(())
            }
            Message::Aggregate {
                copies,
                pieces,
                meta,
            } => Ok(self.take_aggregate(channel, copies, pieces, meta.into())?),
            Message::Finished => {
                if end.state != ChannelState::Teardown || !end.peer_began || end.peer_finished {
                    return Err(Fault::Peer);
                }
                end.peer_finished = true;
                Ok(())
            }
            Message::Transfer {
                how,
                pool,
                index,
                meta,
                part,
            } => {
                let what = Arrival {
                    how,
                    buffer: (pool, index),
                    meta,
                    part,
                };
                if what.brings_bytes() && end.backend.bytes() == Bytes::Carried {
                    return Err(Fault::Peer);
                }
                let fresh = self.may_arrive(channel, &what)?;
                self.is_free(channel, &what)?;
                self.arrive(channel, what, fresh.then_some(fds))
            }
            about_pool => match end.state {
                ChannelState::Connected => self.take_about_pool(channel, about_pool, fds, verdict),
                // It was sent before the other end knew.
                ChannelState::Teardown => Ok(()),
                _ => Err(Fault::Peer),
            },
        }
    }

    fn take_about_pool(
        &mut self,
        channel: u64,
        message: Message,
        fds: &[Arc<OwnedFd>],
        verdict: Result<(), Code>,
    ) -> Result<(), Fault> {
        match message {
            Message::Assign(info, sealed) => {
                let accepted = self.accept(channel, (info, sealed), verdict);
                let end = self.channels.get_mut(&channel).ok_or(Violation)?;
                let (answer, own) = match accepted {
                    Ok(own) => (Ok(()), own),
                    Err(code) => (Err(code), None),
                };
                let fds = own.into_iter().collect();
                end.answer_with(&Message::AssignAnswer(info.id, number(answer)), fds);
                Ok(())
            }
            Message::AssignAnswer(id, answer) => {
                self.expect(channel, id, Assignment::Asking)?;
                match answer {
                    Ok(()) => self.show(channel, id, fds),
                    Err(number) => {
                        self.asked(channel, id, Err(code(number)));
                        self.unassign(channel, id);
                        self.unfix_trust(id);
                        Ok(())
                    }
                }
            }
            Message::Show(id, can) => {
                self.expect(channel, id, Assignment::Accepted)?;
                let shown = can.map_err(code);
                let shown = shown.and_then(|()| self.open_shown(channel, id, fds));
                let end = self.channels.get_mut(&channel).ok_or(Violation)?;
                end.answer(&Message::Shown(id, number(shown)));
                match shown {
                    Ok(()) => self.learn_way(channel, id),
                    Err(_) => self.unassign(channel, id),
                }
                Ok(())
            }
            Message::Shown(id, answer) => {
                self.expect(channel, id, Assignment::Showing)?;
                let result = answer.map_err(code);
                self.asked(channel, id, result);
                match result {
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
                    false => Err(Code::PoolInUse),
                };
                let end = self.channels.get_mut(&channel).ok_or(Violation)?;
                end.answer(&Message::RemoveAnswer(id, number(answer)));
                Ok(())
            }
            Message::RemoveAnswer(id, answer) => {
                self.expect(channel, id, Assignment::Removing)?;
                let commit = answer.is_ok() && self.is_clean(channel, id);
                let result = match (answer, commit) {
                    (Err(number), _) => Err(code(number)),
                    (Ok(()), true) => Ok(()),
                    (Ok(()), false) => Err(Code::PoolInUse),
                };
                self.asked(channel, id, result);
                if answer.is_ok() {
                    let end = self.channels.get_mut(&channel).ok_or(Violation)?;
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
                    let end = self.channels.get_mut(&channel).ok_or(Violation)?;
                    end.tell(RawEvent::PoolRemoved(id));
                } else {
                    self.set_status(channel, id, Assignment::Assigned);
                    self.learn_way(channel, id);
                }
                Ok(())
            }
            _ => Err(Fault::Peer),
        }
    }

    fn expect(&self, channel: u64, id: u64, status: Assignment) -> Result<(), Violation> {
        match self.status(channel, id) == Some(status) {
            true => Ok(()),
            false => Err(Violation),
        }
    }

    fn set_status(&mut self, channel: u64, id: u64, status: Assignment) {
        let end = self.channels.get_mut(&channel);
        if let Some(assigned) = end.and_then(|end| end.pools.get_mut(&id)) {
            assigned.status = status;
        }
    }

    /// What we asked about a pool has an answer.
    fn asked(&mut self, channel: u64, id: u64, result: Result<(), Code>) {
        let end = self.channels.get_mut(&channel);
        let assigned = end.and_then(|end| end.pools.get_mut(&id));
        let asked = assigned.and_then(|assigned| assigned.asked.take());
        self.finished.extend(asked.map(|asked| (asked, result)));
    }

    /// Decides about a pool that the other end assigns; gives our own memory, where each end has its own.
    fn accept(
        &mut self,
        channel: u64,
        (info, sealed): (PoolInfo, bool),
        verdict: Result<(), Code>,
    ) -> Result<Option<Arc<OwnedFd>>, Code> {
        let end = self.channels.get_mut(&channel).ok_or(Code::ChannelState)?;
        if end.pools.contains_key(&info.id) {
            return Err(Code::PoolAlreadyAssigned);
        }
        if end.pools.len() >= MOST_POOLS {
            return Err(Code::Limit);
        }
        verdict.map_err(|_| Code::PoolVeto)?;
        let known = self.pools.get(&info.id);
        let same = |known: &Pool| known.info == info && known.sealed == sealed;
        if known.is_some_and(|known| !same(known)) || sealed && end.trust() != Trust::None {
            return Err(Code::PoolInvalid);
        }
        if known.is_some_and(|known| known.trust.is_some_and(|trust| trust != end.trust())) {
            return Err(Code::ChannelTrust);
        }
        // Its bytes could not be brought here: it is known as memory that another domain alone can write.
        let foreign = known.is_some_and(|known| !known.own_memory);
        if foreign && end.trust() == Trust::Producer && end.backend.bytes() == Bytes::Carried {
            return Err(Code::PoolMap);
        }
        let mut assigned = Assigned::new(Assignment::Accepted, info, sealed);
        let (own, trust) = (end.own_memory(), end.trust());
        let fd = match known {
            Some(known) => known.memory.fd(),
            None if own => {
                let made = match sealed {
                    true => Memory::reserve(&info, &self.account)?,
                    false => Memory::make_own(&info, trust, &self.account)?,
                };
                let fd = made.fd();
                assigned.made = Some(made);
                fd
            }
            None => None,
        };
        end.pools.insert(info.id, assigned);
        Ok(fd.filter(|_| own && !sealed && end.backend.bytes() == Bytes::Shared))
    }

    /// The other end said yes: the pool's trust is fixed, and its memory shown.
    fn show(&mut self, channel: u64, id: u64, fds: &[Arc<OwnedFd>]) -> Result<(), Fault> {
        let end = self.channels.get_mut(&channel).ok_or(Violation)?;
        let pool = self.pools.get_mut(&id).ok_or(Violation)?;
        let mirror = match end.snapshots() && !pool.sealed {
            true => {
                let fd = fds.first().ok_or(Violation)?;
                let mirror = Memory::open_mirror(&pool.info, fd);
                Some(mirror.map_err(|code| match code {
                    Code::PoolMap => Fault::Peer,
                    own => Fault::Own(own),
                })?)
            }
            false => None,
        };
        // Only our own memory can fail here; then the other end hears so.
        let can = match pool.creator && !pool.fixed {
            true => pool.fix(end.trust()),
            false => Ok(()),
        };
        for index in 0..pool.info.buffers {
            let _ = pool.protect(index);
        }
        let assigned = end.pools.get_mut(&id).ok_or(Violation)?;
        assigned.mirror = mirror;
        assigned.status = Assignment::Showing;
        let shown = match end.backend.bytes() {
            Bytes::Shared if can.is_ok() && !pool.sealed => pool.memory.fd().into_iter().collect(),
            _ => Vec::new(),
        };
        end.answer_with(&Message::Show(id, number(can)), shown);
        Ok(())
    }

    /// Maps what was shown, or puts our own memory to use.
    fn open_shown(&mut self, channel: u64, id: u64, fds: &[Arc<OwnedFd>]) -> Result<(), Code> {
        let end = self.channels.get_mut(&channel).ok_or(Code::ChannelState)?;
        let (own, snapshots, trust) = (end.own_memory(), end.snapshots(), end.trust());
        let agreed = end.agreed.ok_or(Code::ChannelState)?;
        let assigned = end.pools.get_mut(&id).ok_or(Code::PoolInvalid)?;
        let info = assigned.info;
        let shared = end.backend.bytes() == Bytes::Shared;
        let sealed = assigned.sealed;
        let shown = fds.first();
        if shared && shown.is_none() != sealed {
            return Err(Code::PoolMap);
        }
        if let (true, Some(fd)) = (snapshots, shown) {
            assigned.mirror = Some(Memory::open_mirror(&info, fd)?);
        }
        match (self.pools.get(&id), shown) {
            // The same pool by another way must be the same memory.
            (Some(known), Some(fd)) if !own && !known.memory.is_same(fd) => {
                return Err(Code::PoolMap);
            }
            (Some(_), _) => {}
            (None, _) => {
                let memory = match (assigned.made.take(), shown) {
                    (Some(made), _) => made,
                    (None, Some(fd)) => Memory::open(&info, trust, Arc::clone(fd))?,
                    (None, None) => return Err(Code::PoolMap),
                };
                let (buffers, bytes) = (u64::from(info.buffers), info.buffer_bytes);
                if !agreed.constraints.allow(memory.base(), buffers, bytes) {
                    return Err(Code::InvalidArgument);
                }
                let pool = Pool::of_another(info, memory, trust, (own, sealed))?;
                self.pools.insert(id, pool);
            }
        }
        let end = self.channels.get_mut(&channel).ok_or(Code::ChannelState)?;
        if let Some(assigned) = end.pools.get_mut(&id) {
            assigned.status = Assignment::Assigned;
        }
        end.tell(RawEvent::PoolAssigned(info));
        Ok(())
    }
}

impl Channel {
    /// Is there more to be told than the other end may leave here unasked for? What there can be one of for each buffer does
    /// not count, nor what answers our own operations.
    fn is_flooded(&self) -> bool {
        let all = self.events.len();
        if all < MOST_EVENTS || !all.is_multiple_of(1024) {
            return false;
        }
        let unasked = |event: &&RawEvent| match event {
            RawEvent::Copied(..) | RawEvent::PoolAssigned(_) | RawEvent::PoolRemoved(_) => true,
            RawEvent::Aggregate { copies, .. } => *copies,
            _ => false,
        };
        self.events.iter().filter(unasked).count() >= MOST_EVENTS / 2
    }

    fn take_bind(
        &mut self,
        own: u64,
        version: u16,
        domain: u64,
        wish: crate::Wish,
    ) -> Result<(), Violation> {
        if self.state != ChannelState::Initialized {
            return Err(Violation);
        }
        let agreed = match version == VERSION {
            true => negotiate::negotiate(self.wish, wish),
            false => Err(Code::ChannelBind),
        };
        self.answer(&Message::BindAnswer {
            domain: own,
            meta_bytes: self.meta_bytes,
            source: self.direction == Direction::Sink,
            answer: agreed.map_err(|code| code as u16),
        });
        match agreed {
            Ok(agreed) => {
                self.listener = None;
                self.connected(domain, agreed);
            }
            Err(_) => self.refused(),
        }
        Ok(())
    }

    /// Somebody else may bind.
    fn refused(&mut self) {
        self.transport = None;
        self.outbox.clear();
        (self.sent, self.ends) = (0, Default::default());
    }

    fn connected(&mut self, peer: u64, agreed: Agreement) {
        let process = self.transport.as_ref().map_or(0, |t| t.peer_process());
        self.peer = (peer, process);
        self.agreed = Some(agreed);
        self.state = ChannelState::Connected;
        self.tell(RawEvent::Bound(Ok(agreed)));
    }

    /// Does each end have memory of its own?
    fn own_memory(&self) -> bool {
        self.trust() == Trust::None || self.backend.bytes() == Bytes::Carried
    }

    /// Are bytes copied out of the other end's own memory?
    fn snapshots(&self) -> bool {
        self.trust() == Trust::None && self.backend.bytes() == Bytes::Shared
    }
}
