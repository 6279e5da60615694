//! Effect of a message where it arrives.

use crate::types::{BufferId, ChannelId, Domain, EndState, Hold, Message, Piece, Way};
use crate::{ErrorKind, Event, Model, Outcome, copies_of};

impl Model {
    pub(crate) fn deliver(
        &mut self,
        domain: Domain,
        channel: ChannelId,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.channels.get(&channel);
        let found = found.filter(|c| c.sink == domain && c.ends[1] == EndState::Open);
        let found = found.ok_or(ErrorKind::InvalidEndpoint)?;
        let Some(message) = found.queue.front().cloned() else {
            return match found.ends[0] {
                EndState::Open => Ok(Outcome::Nothing),
                EndState::Closed => Err(ErrorKind::PeerGone),
                EndState::Died => Err(ErrorKind::PeerDied),
            };
        };
        let copied = |piece: &&Piece| match **piece {
            Piece::Bytes(_) => true,
            Piece::Buffer(id) => self.is_copied(id.pool, domain, message.carries),
        };
        let copies = copies_of(domain);
        let more = self.in_use(copies) + message.pieces.iter().filter(copied).count();
        if more > usize::from(self.pools[&copies].slots) {
            return Err(ErrorKind::OutOfMemory);
        }
        let event = self.arrive(domain, &message)?;
        if let Some(found) = self.channels.get_mut(&channel) {
            found.queue.pop_front();
        }
        Ok(Outcome::Took(event))
    }

    fn arrive(&mut self, domain: Domain, message: &Message) -> Result<Event, ErrorKind> {
        let sole = message.carries.moves();
        let mut buffers = Vec::new();
        for piece in &message.pieces {
            let id = match *piece {
                Piece::Bytes(data) => self.copy_in(domain, data, sole)?,
                Piece::Buffer(id) if self.is_copied(id.pool, domain, message.carries) => {
                    self.copy_in(domain, self.buffers[&id].data, sole)?
                }
                Piece::Buffer(id) => {
                    match sole {
                        true => self.hand_over(domain, id),
                        false => self.share_with(domain, id),
                    }
                    id
                }
            };
            buffers.push(id);
        }
        Ok(Event {
            carries: message.carries,
            buffers,
            word: message.word,
        })
    }

    /// Makes a new buffer of the receiver's own.
    fn copy_in(&mut self, domain: Domain, data: u8, sole: bool) -> Result<BufferId, ErrorKind> {
        let id = self.place_in(copies_of(domain))?;
        let hold = match sole {
            true => Hold::Sole { moved: false },
            false => Hold::Shared(1),
        };
        self.put(id, data, domain, hold);
        Ok(id)
    }

    /// Makes a buffer this domain's alone; inside a process it stays as writable as it was.
    fn hand_over(&mut self, domain: Domain, id: BufferId) {
        let moved = self.way == Way::Shared;
        self.set_hold(domain, id, Some(Hold::Sole { moved }));
    }

    pub(crate) fn take_back(
        &mut self,
        domain: Domain,
        channel: ChannelId,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.channels.get_mut(&channel);
        let found = found.filter(|c| c.source == domain && c.ends[0] == EndState::Open);
        let found = found.ok_or(ErrorKind::InvalidEndpoint)?;
        let Some(message) = found.back.pop_front() else {
            return Ok(Outcome::Nothing);
        };
        let mut buffers = Vec::new();
        for piece in &message.pieces {
            if let Piece::Buffer(id) = *piece {
                self.hand_over(domain, id);
                buffers.push(id);
            }
        }
        Ok(Outcome::Took(Event {
            carries: message.carries,
            buffers,
            word: message.word,
        }))
    }
}
