//! What a message does where it arrives. Whatever a peer may not say ends the channel.

use super::arrive::Arrival;
use super::{Channel, Guard, RawEvent, Shared, State};
use crate::message::{Message, VERSION, refused};
use crate::{Agreement, ChannelState, Direction, Error, Kind, Trust, negotiate};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_transport::{Bytes, Frame, RecvError};

/// Pools of one channel, at most: no end can be asked more at once than once for each.
pub(super) const MOST_POOLS: usize = 1024;
/// Answers that wait for room.
const MOST_ANSWERS: usize = 2 * MOST_POOLS;
/// Events that wait for the program, before it is looked at what they are.
const MOST_EVENTS: usize = 1 << 16;

/// Why a message cannot be taken.
pub(super) enum Fault {
    /// The peer broke a rule.
    Peer(Error),
    /// For want of something here: nothing has changed, and it can be taken later.
    Own(Error),
    /// The same buffer is on its way in over another channel.
    Later,
}

impl<E: Into<Error>> From<E> for Fault {
    fn from(why: E) -> Fault {
        let why = why.into();
        match why.kind() {
            Kind::PeerViolation => Fault::Peer(why),
            _ => Fault::Own(why),
        }
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
    pub(crate) fn turn(&self, channel: u64) -> Result<bool, Error> {
        let (state, took) = self.turn_with(self.lock(), channel)?;
        if !took {
            drop(self.tend(state));
        }
        Ok(took)
    }

    /// As [`Shared::turn`], with the lock taken; whoever waits for something hears of it when the lock is let go.
    pub(super) fn turn_with<'a>(
        &'a self,
        mut state: Guard<'a>,
        channel: u64,
    ) -> Result<(Guard<'a>, bool), Error> {
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
            state.peer_gone(channel, Kind::PeerViolation.into());
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
            Err(Fault::Peer(why)) => state.peer_gone(channel, why),
            Err(Fault::Own(lack)) => {
                state.hold_back(channel, frame);
                return Err(lack);
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

    fn next_frame(&mut self, channel: u64) -> Result<Next, Error> {
        let end = self
            .channels
            .get_mut(&channel)
            .ok_or(Kind::InvalidEndpoint)?;
        if end.transport.is_none()
            && let Some(listener) = end.listener.as_mut()
        {
            let Some((transport, bind)) = end.callers.look(&mut **listener)? else {
                return Ok(Next::Nothing);
            };
            end.transport = Some(transport);
            return Ok(Next::Frame(bind, 0));
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
            None if asks => Err(Kind::PeerViolation.into()),
            None if flooded => Ok(None),
            None => transport.recv(),
        };
        end.ends.finish(&end.taken, &mut self.due);
        end.taken.clear();
        match received {
            Ok(None) => Ok(Next::Nothing),
            Ok(Some(frame)) => Ok(Next::Frame(frame, transport.brings())),
            Err(RecvError::NotNow(lack)) => Err(lack),
            Err(RecvError::Over(why)) => Ok(match self.carrier_failed(channel, why) {
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
    pub(super) fn carrier_failed(&mut self, channel: u64, why: Error) -> bool {
        let Some(end) = self.channels.get_mut(&channel) else {
            return false;
        };
        end.why = end.transport.as_ref().and_then(|transport| transport.why());
        if !end.is_open() {
            end.transport = None;
            return false;
        }
        match end.state {
            // Whoever connected is gone before it was bound: somebody else may.
            ChannelState::Initialized => {
                end.refused();
                return false;
            }
            ChannelState::Binding => {
                let nobody = Kind::InvalidEndpoint;
                let why = Error::because(nobody, nobody.meaning(), why);
                self.bind_refused(channel, &why);
            }
            _ => self.peer_gone(channel, why),
        }
        self.wake(channel);
        true
    }

    fn bind_refused(&mut self, channel: u64, why: &Error) {
        if let Some(end) = self.channels.get_mut(&channel) {
            end.state = ChannelState::Uninitialized;
            end.transport = None;
            end.failure = Some(why.clone());
            end.tell(RawEvent::Bound(Err(why.clone())));
            let asked = end.bind.take();
            self.finished
                .extend(asked.map(|asked| (asked, Err(why.clone()))));
        }
    }

    fn take(
        &mut self,
        own: u64,
        channel: u64,
        message: Message,
        fds: &[Arc<OwnedFd>],
        verdict: Result<(), Error>,
    ) -> Result<(), Fault> {
        let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
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
                    return Err(Kind::PeerViolation.into());
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
                    Err(number) => self.bind_refused(channel, &refused(number)),
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
                    _ => return Err(Kind::PeerViolation.into()),
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
                    return Err(Kind::PeerViolation.into());
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
                    return Err(Kind::PeerViolation.into());
                }
                let fresh = self.may_arrive(channel, &what)?;
                self.is_free(channel, &what)?;
                self.arrive(channel, what, fresh.then_some(fds))
            }
            about_pool => match end.state {
                ChannelState::Connected => self.take_about_pool(channel, about_pool, fds, verdict),
                // It was sent before the other end knew.
                ChannelState::Teardown => Ok(()),
                _ => Err(Kind::PeerViolation.into()),
            },
        }
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
    ) -> Result<(), Error> {
        if self.state != ChannelState::Initialized {
            return Err(Kind::PeerViolation.into());
        }
        let agreed = match version == VERSION {
            true => negotiate::negotiate(self.wish, wish),
            false => Err(Error::new(
                Kind::ChannelBind,
                format!(
                    "the other end speaks version {version} of the protocol, this one {VERSION}"
                ),
            )),
        };
        self.answer(&Message::BindAnswer {
            domain: own,
            meta_bytes: self.meta_bytes,
            source: self.direction == Direction::Sink,
            answer: agreed.as_ref().map_err(|why| why.kind().number()).copied(),
        });
        match agreed {
            Ok(agreed) => {
                self.listener = None;
                self.callers.send_away();
                self.connected(domain, agreed);
            }
            Err(why) => {
                let process = self.transport.as_ref().map_or(0, |t| t.peer_process());
                tracing::info!("{} is refused: {why}", self.place_of(process));
                self.refused();
            }
        }
        Ok(())
    }

    /// The other end in words: its address, or that process.
    pub(crate) fn place_of(&self, process: u32) -> String {
        let place = self.transport.as_ref().and_then(|t| t.peer_place());
        place.unwrap_or_else(|| match process {
            0 => "this process, or one that nobody knows".to_owned(),
            process => format!("process {process}"),
        })
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
    pub(super) fn own_memory(&self) -> bool {
        self.trust() == Trust::None || self.backend.bytes() == Bytes::Carried
    }

    /// Is what is not sealed copied, by the source into staging memory and by the sink out of it?
    pub(super) fn snapshots(&self) -> bool {
        self.trust() == Trust::None && self.backend.bytes() == Bytes::Shared
    }

    /// Is this the end that does so into it?
    pub(super) fn stages(&self) -> bool {
        self.snapshots() && self.direction == Direction::Source
    }
}
