//! Effect of a message where it arrives.

use crate::types::{BufferId, Carries, ChannelId, Domain, EndState, Hold, Message, Piece, Way};
use crate::{ErrorKind, Event, Model, Outcome, copies_of};

impl Model {
    pub(crate) fn deliver(
        &mut self,
        domain: Domain,
        channel: ChannelId,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.sink(domain, channel)?;
        let Some(message) = found.queue.front().cloned() else {
            return match found.ends[0] {
                EndState::Open => Ok(Outcome::Nothing),
                EndState::Closed => Err(ErrorKind::PeerGone),
                EndState::Died => Err(ErrorKind::PeerDied),
            };
        };
        let copied = |piece: &&Piece| match **piece {
            Piece::Bytes(_) => true,
            Piece::Buffer(id) => self.is_copied(id.pool, domain),
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
        let moves = message.carries.moves();
        let sole = moves
            && message
                .pieces
                .iter()
                .all(|piece| self.is_written(*piece, domain));
        let mut buffers = Vec::new();
        for piece in &message.pieces {
            let id = match *piece {
                Piece::Bytes(data) => self.copy_in(domain, data, sole)?,
                Piece::Buffer(id) if self.is_copied(id.pool, domain) => {
                    self.copy_in(domain, self.buffers[&id].data, sole)?
                }
                Piece::Buffer(id) => {
                    let (given, handles) = (!self.is_own(id.pool, domain), 1);
                    match (sole, moves && !self.is_written(*piece, domain)) {
                        (true, _) => self.set_hold(domain, id, Some(Hold::Sole)),
                        (false, true) => {
                            self.set_hold(domain, id, Some(Hold::Shared { handles, given }));
                        }
                        (false, false) => self.share_with(domain, id),
                    }
                    id
                }
            };
            buffers.push(id);
        }
        Ok(Event {
            carries: match sole {
                true => message.carries,
                false => message.carries.shared(),
            },
            buffers,
            word: message.word,
        })
    }

    /// Returns whether the receiver can write what arrives, if it was given away.
    fn is_written(&self, piece: Piece, domain: Domain) -> bool {
        match piece {
            Piece::Bytes(_) => true,
            Piece::Buffer(id) => {
                self.way == Way::Inside
                    || self.is_copied(id.pool, domain)
                    || self.may_all_write(id.pool, domain)
            }
        }
    }

    /// Makes a new buffer of the receiver's own.
    fn copy_in(&mut self, domain: Domain, data: u8, sole: bool) -> Result<BufferId, ErrorKind> {
        let id = self.place_in(copies_of(domain))?;
        let hold = match sole {
            true => Hold::Sole,
            false => Hold::Shared {
                handles: 1,
                given: false,
            },
        };
        self.put(id, data, domain, hold);
        Ok(id)
    }

    pub(crate) fn take_back(
        &mut self,
        domain: Domain,
        channel: ChannelId,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.channels.get_mut(&channel);
        let found = found.filter(|c| c.source == domain && c.ends[0] == EndState::Open);
        let found = found.ok_or(ErrorKind::InvalidEndpoint)?;
        let removal = |message: &mut Message| matches!(message.carries, Carries::Removed { .. });
        let mut learned = false;
        while found.back.pop_front_if(removal).is_some() {
            learned = true;
        }
        let Some(message) = found.back.pop_front() else {
            return Ok(match learned {
                true => Outcome::Done,
                false => Outcome::Nothing,
            });
        };
        // Where the handle itself comes back it is the only one.
        let sole = self.way == Way::Inside && message.carries.moves();
        let mut buffers = Vec::new();
        for piece in &message.pieces {
            if let Piece::Buffer(id) = *piece {
                match sole {
                    true => self.set_hold(domain, id, Some(Hold::Sole)),
                    false => self.share_with(domain, id),
                }
                buffers.push(id);
            }
        }
        Ok(Outcome::Took(Event {
            carries: match sole {
                true => message.carries,
                false => message.carries.shared(),
            },
            buffers,
            word: message.word,
        }))
    }
}
