//! Messages that show when their memory was given to somebody else.

use std::collections::VecDeque;
use std::fmt::Debug;

use tranship_core::{Body, ErrorKind, Message, Receiver, Released};
use tranship_testkit::{Random, payload};

use crate::seat::{Broken, send_over};

/// Ids of one message's pieces lie side by side.
pub const PIECES: u64 = 4;

pub fn fill(buf: &mut [u8], id: u64) {
    payload::fill(buf, id, payload::mix(id));
}

/// The piece is as the writer filled it.
fn verify_piece(piece: &impl Debug, bytes: &[u8], id: u64, when: &str) -> Result<(), Broken> {
    // A batch has no words of its own beside the buffers: there the id is that of the buffer.
    let id = match (id, bytes.first_chunk()) {
        (0, Some(says)) => u64::from_le_bytes(*says),
        _ => id,
    };
    payload::verify_seed(bytes, id, payload::mix(id))
        .map_err(|torn| format!("{when}: {piece:?} of message {id:#x}: {torn}"))
}

/// All of a message is as the writer filled it.
pub fn verify(message: &Message, when: &str) -> Result<(), Broken> {
    let id = message.word;
    match &message.body {
        Body::Inline(bytes) if **bytes == id.to_le_bytes() => Ok(()),
        Body::Inline(bytes) => Err(format!("{when}: inline message {id:#x} says {bytes:?}")),
        Body::Buffer(buf) => verify_piece(buf, &buf.to_vec(), id, when),
        Body::BufferMut(buf) => verify_piece(buf, &buf.to_vec(), id, when),
        Body::Aggregate(list) => (id..)
            .zip(list.pieces())
            .try_for_each(|(id, piece)| verify_piece(piece, &piece.to_vec(), id, when)),
        Body::AggregateMut(list) => (id..)
            .zip(list.pieces())
            .try_for_each(|(id, piece)| verify_piece(piece, &piece.to_vec(), id, when)),
        Body::Released(_) => Ok(()),
    }
}

/// Received messages that are kept for a while, verified again before they go.
#[derive(Debug, Default)]
pub struct Kept(VecDeque<Message>);

impl Kept {
    /// Verifies and keeps a message; older ones go until a random few are left.
    pub fn push(&mut self, message: Message, random: &mut Random) -> Result<(), Broken> {
        verify(&message, "at receipt")?;
        self.0.push_back(message);
        let most = random.below(6);
        while self.0.len() as u64 > most {
            self.0
                .pop_front()
                .map_or(Ok(()), |old| verify(&old, "before release"))?;
        }
        Ok(())
    }

    /// The oldest, verified.
    pub fn pop(&mut self) -> Result<Option<Message>, Broken> {
        let Some(old) = self.0.pop_front() else {
            return Ok(None);
        };
        verify(&old, "before passing on")?;
        Ok(Some(old))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Verifies a message, and passes it back over the link if it was moved, or releases it and says so; else keeps it.
    pub fn keep_or_pass(&mut self, message: Message, link: &mut Receiver) -> Result<(), Broken> {
        verify(&message, "before it is passed back")?;
        let Message { word, body } = message;
        match body {
            Body::BufferMut(buf) => match link.send_back((buf, word)) {
                Ok(()) => Ok(()),
                // The buffer is dropped then, and so the writer's again.
                Err(failed) => send_over(&failed.error).map(|_| ()),
            },
            Body::AggregateMut(all) => {
                for (id, piece) in (word..).zip(all.into_pieces()) {
                    if let Err(failed) = link.send_back((piece, id)) {
                        send_over(&failed.error)?;
                    }
                }
                Ok(())
            }
            // Given at level `producer`, it can be handed back; shared, it cannot.
            Body::Buffer(buf) if word / PIECES % 3 == 2 => match link.send_back((buf, word)) {
                Ok(()) => Ok(()),
                Err(failed) if failed.kind() == ErrorKind::BufferNotOwned => {
                    let body = Body::Buffer(failed.unsent.0);
                    self.keep(Message { word, body })
                }
                Err(failed) => send_over(&failed.error).map(|_| ()),
            },
            Body::Buffer(buf) if word / PIECES % 2 == 1 => {
                match link.send_back((Released(buf), word)) {
                    Ok(()) => Ok(()),
                    Err(failed) => send_over(&failed.error).map(|_| ()),
                }
            }
            body => self.keep(Message { word, body }),
        }
    }

    /// Verifies and keeps a message.
    pub fn keep(&mut self, message: Message) -> Result<(), Broken> {
        verify(&message, "at receipt")?;
        self.0.push_back(message);
        Ok(())
    }

    /// All go.
    pub fn clear(&mut self) -> Result<(), Broken> {
        self.0
            .drain(..)
            .try_for_each(|old| verify(&old, "before release"))
    }
}
