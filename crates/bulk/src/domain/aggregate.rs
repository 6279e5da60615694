//! Several buffers as one operation: all checks come first, then everything changes at once.
//!
//! On the way an aggregate is one transfer for each buffer, marked as a part, and a message that says which pieces of
//! them it is made of. The sender puts all of them in line together; the receiver tells nothing before the last.

use super::{RawEvent, Shared, State};
use crate::message::{Message, Transfer};
use crate::{Access, BufferState, Completion, Direction, Error, Kind, MAX_PIECES, Meta, Piece};
use std::collections::BTreeSet;

impl State {
    /// Moves the buffers, or copies them, with the pieces that are made of them.
    fn send_aggregate(
        &mut self,
        channel: u64,
        how: Transfer,
        buffers: &[(u64, u32)],
        pieces: &[Piece],
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let fits = (1..=MAX_PIECES).contains(&pieces.len()) && buffers.len() <= pieces.len();
        let each: BTreeSet<_> = buffers.iter().collect();
        let mut used = vec![false; buffers.len()];
        let gives_back = how == Transfer::Move;
        for piece in pieces {
            let at = piece.buffer as usize;
            let (id, index) = *buffers.get(at).ok_or(Kind::BadArgument)?;
            self.check_channel(channel, id, Direction::Source, gives_back)?;
            let (pool, slot) = self.slot(id, index)?;
            if how == Transfer::Move && !slot.owned {
                return Err(Kind::BufferNotOwned.into());
            }
            if slot.by_state() == Access::None {
                return Err(Kind::BufferInvalid.into());
            }
            if how == Transfer::Move && slot.state() != BufferState::ReadWrite || slot.mapped > 0 {
                return Err(Kind::BufferState.into());
            }
            if !piece.is_inside(pool.memory.buffer_bytes()) {
                return Err(Kind::BadArgument.into());
            }
            used[at] = true;
        }
        let whole = fits && each.len() == buffers.len() && used.iter().all(|used| *used);
        let end = self.channels.get(&channel).ok_or(Kind::InvalidEndpoint)?;
        let (peer, meta_bytes, carried) = end.terms();
        if !whole || meta.len() > meta_bytes {
            return Err(Kind::BadArgument.into());
        }
        let end = self.channels.get_mut(&channel).ok_or(Kind::ChannelState)?;
        if !end.flush() {
            return Err(Kind::Full.into());
        }
        let mut frames = Vec::with_capacity(buffers.len() + 1);
        let frames = self
            .load_all(buffers, carried, how, &mut frames)
            .and_then(|()| {
                let last = Message::Aggregate {
                    copies: how == Transfer::Copy,
                    pieces: pieces.to_vec(),
                    meta: meta.to_vec(),
                };
                frames.push(last.frame(Vec::new())?);
                Ok(frames)
            });
        let mut done = 0;
        let changed = frames.and_then(|frames| {
            for (id, index) in buffers {
                self.stage(channel, (*id, *index))?;
                let (pool, at) = self.slot_mut(*id, *index)?;
                match how {
                    Transfer::Copy => pool.slots[at].out.up(channel),
                    _ => pool.slots[at].owned = false,
                }
                done += 1;
                pool.protect(*index)?;
            }
            Ok(frames)
        });
        let frames = match changed {
            Ok(frames) => frames,
            Err(code) => {
                for (number, (id, index)) in buffers.iter().enumerate() {
                    let (pool, at) = self.slot_mut(*id, *index)?;
                    match how {
                        _ if number >= done => {}
                        Transfer::Copy => pool.slots[at].out.down(channel),
                        _ => pool.slots[at].owned = true,
                    }
                    let protected = pool.protect(*index);
                    if number < done {
                        self.unstage(channel, (*id, *index));
                    }
                    protected?;
                }
                return Err(code);
            }
        };
        if how == Transfer::Move {
            for (id, index) in buffers {
                let (pool, at) = self.slot_mut(*id, *index)?;
                if pool.creator {
                    pool.slots[at].lent = Some(peer);
                }
            }
        }
        let end = self.channels.get_mut(&channel).ok_or(Kind::ChannelState)?;
        end.outbox.extend(frames);
        let number = end.sent + end.outbox.len() as u64 - 1;
        end.flush();
        let completion = end.ends.completion(number);
        self.finish_where_clean();
        Ok(completion)
    }

    fn load_all(
        &mut self,
        buffers: &[(u64, u32)],
        carried: bool,
        how: Transfer,
        frames: &mut Vec<tranship_transport::Frame>,
    ) -> Result<(), Error> {
        for (id, index) in buffers {
            let (fds, payload) = self.load((*id, *index), carried)?;
            let part = Message::part(how, *id, *index);
            let mut frame = part.frame(fds)?;
            frame.payload = payload;
            frames.push(frame);
        }
        Ok(())
    }

    /// A part has arrived: it is told with the others.
    pub(super) fn keep_part(
        &mut self,
        channel: u64,
        how: Transfer,
        buffer: (u64, u32),
    ) -> Result<(), Error> {
        let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
        if end.parts.len() >= MAX_PIECES {
            return Err(Kind::PeerViolation.into());
        }
        end.parts.push((how, buffer));
        Ok(())
    }

    /// All parts are here, and this is what they make.
    pub(super) fn take_aggregate(
        &mut self,
        channel: u64,
        copies: bool,
        pieces: Vec<Piece>,
        meta: Meta,
    ) -> Result<(), Error> {
        let end = self.channels.get(&channel).ok_or(Kind::PeerViolation)?;
        let how = if copies {
            Transfer::Copy
        } else {
            Transfer::Move
        };
        let fits = (1..=MAX_PIECES).contains(&pieces.len());
        let alike = end.parts.iter().all(|(is, _)| *is == how);
        if !fits || !alike || meta.len() > end.meta_bytes as usize {
            return Err(Kind::PeerViolation.into());
        }
        let mut used = vec![false; end.parts.len()];
        for piece in &pieces {
            let at = piece.buffer as usize;
            let (_, (id, index)) = end.parts.get(at).ok_or(Kind::PeerViolation)?;
            let (pool, _) = self
                .slot(*id, *index)
                .map_err(Error::of(Kind::PeerViolation))?;
            if !piece.is_inside(pool.memory.buffer_bytes()) {
                return Err(Kind::PeerViolation.into());
            }
            used[at] = true;
        }
        if !used.into_iter().all(|used| used) {
            return Err(Kind::PeerViolation.into());
        }
        let end = self.channels.get_mut(&channel).ok_or(Kind::PeerViolation)?;
        let buffers = std::mem::take(&mut end.parts);
        let buffers = buffers.into_iter().map(|(_, buffer)| buffer).collect();
        end.tell(RawEvent::Aggregate {
            copies,
            buffers,
            pieces,
            meta,
        });
        Ok(())
    }

    /// The rest of an aggregate will never come: its parts are let go.
    pub(super) fn drop_parts(&mut self, channel: u64) {
        let end = self.channels.get_mut(&channel);
        let parts = end.map(|end| std::mem::take(&mut end.parts));
        for (how, (id, index)) in parts.unwrap_or_default() {
            match how {
                Transfer::Copy => self.let_copy_go(channel, id, index),
                _ => self.let_go(id, index),
            }
        }
    }
}

impl Shared {
    pub(crate) fn aggregate_raw(
        &self,
        channel: u64,
        copies: bool,
        buffers: &[(u64, u32)],
        pieces: &[Piece],
        meta: &[u8],
    ) -> Result<Completion, Error> {
        let how = if copies {
            Transfer::Copy
        } else {
            Transfer::Move
        };
        let mut state = self.lock();
        state.send_aggregate(channel, how, buffers, pieces, meta)
    }

    /// The bytes of pieces of buffers that are here, one after the other.
    pub(crate) fn read_pieces(
        &self,
        buffers: &[(u64, u32)],
        pieces: &[Piece],
    ) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        for piece in pieces {
            let at = buffers.get(piece.buffer as usize);
            let at = at.ok_or(Kind::BadArgument)?;
            let as_usize = |n: u64| usize::try_from(n).map_err(Error::of(Kind::BadArgument));
            let (offset, len) = (as_usize(piece.offset)?, as_usize(piece.len)?);
            if !piece.is_inside(self.lock().bytes_of(*at)) {
                return Err(Kind::BadArgument.into());
            }
            let begun = out.len();
            out.resize(begun + len, 0);
            self.read_raw(*at, offset, &mut out[begun..])?;
        }
        Ok(out)
    }
}

impl State {
    /// A buffer's length; 0: it is not known here.
    pub(crate) fn bytes_of(&self, (id, index): (u64, u32)) -> usize {
        let slot = self.slot(id, index);
        slot.map_or(0, |(pool, _)| pool.memory.buffer_bytes())
    }

    /// Buffers are shown in a mapping elsewhere, or no longer: what was let go meanwhile goes then.
    pub(crate) fn mapped(&mut self, buffers: &[(u64, u32)], on: bool) {
        for (id, index) in buffers {
            let Ok((pool, at)) = self.slot_mut(*id, *index) else {
                continue;
            };
            let mapped = &mut pool.slots[at].mapped;
            match on {
                true => *mapped = mapped.saturating_add(1),
                false => {
                    *mapped = mapped.saturating_sub(1);
                    self.free_if_unused(*id, *index);
                }
            }
        }
        if !on {
            self.give_back();
        }
    }
}
