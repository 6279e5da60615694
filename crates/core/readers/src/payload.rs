//! Payloads: the values that can be sent.

use crate::{Kept, line, pieces};
use std::time::Instant;
use tranship_core::topics::{self, AwaitedReaders, Named};
use tranship_core::{
    Aggregate, Body, Buffer, BufferMut, Domain, Error, ErrorKind, INLINE_BYTES, Pool, SendError,
};
use tranship_ring::broadcast::Message;

/// A value that a publisher or a producer can send: a [`Buffer`] or a [`BufferMut`] of its own pool, an [`Aggregate`]
/// of such buffers, or a few bytes inside the line. A pair `(buffer, word)` also sends a word of the program. A
/// [`Body`] is any of these values; [`Body::Released`] is `BadArgument`.
///
/// All buffers are shared: only the writer can write its pool.
pub trait Payload: Sealed {
    /// The payload that an error gives back.
    type Unsent;

    #[doc(hidden)]
    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<Self::Unsent>>;

    #[doc(hidden)]
    fn give_back(self) -> Self::Unsent;

    /// Returns how many pieces a line names by a list, which has a buffer of its own. 0: there is no list.
    #[doc(hidden)]
    fn pieces(&self) -> usize {
        0
    }
}

#[doc(hidden)]
pub trait Sealed {}

/// How long a payload may wait.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Waits {
    Not,
    /// `None`: without limit.
    Until(Option<Instant>),
}

impl Waits {
    /// Returns the time at which a wait ends. `None`: it has no end.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Waits::Not => Some(Instant::now()),
            Waits::Until(deadline) => deadline,
        }
    }
}

/// The places to which a payload goes.
#[doc(hidden)]
pub struct To<'a, W> {
    /// The writer.
    pub writer: &'a mut W,
    /// The program's word.
    pub word: u64,
    /// How long the payload may wait for room and for memory of its own.
    pub waits: Waits,
    /// The memory of its own, if it has waited for it.
    pub list: Option<BufferMut>,
}

impl<W> std::fmt::Debug for To<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("To").finish_non_exhaustive()
    }
}

/// The result of a look for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room<S> {
    /// There is room for one message.
    There,
    /// There is no room: the caller looks again.
    Later,
    /// The message is not to be sent. The value is the answer to the caller.
    Never(S),
}

/// A writer of lines.
#[doc(hidden)]
#[allow(
    clippy::missing_errors_doc,
    reason = "what the common code asks of a writer"
)]
pub trait Writes: Sized {
    /// The result of a sent message.
    type Sent;
    /// A wait for memory, from one look to the next.
    type Shortage: Default + Send + Unpin;

    fn domain(&self) -> &Domain;

    fn pool(&self) -> &Pool;

    /// Returns what it writes (a topic, a queue) and its name.
    fn of(&self) -> (&str, &str);

    /// Returns how many pieces a message may have.
    fn most_pieces(&self) -> u32;

    fn kept(&mut self) -> &mut Kept;

    /// Waits until there is room for one message. `Some`: the message is not to be sent, and this is the answer.
    fn await_room(&mut self, waits: Waits) -> Result<Option<Self::Sent>, Error>;

    /// Waits for memory, until then at most.
    fn await_memory(&mut self, len: usize, until: Option<Instant>) -> Result<BufferMut, Error>;

    /// Writes a line that names these slots, whose buffers are kept.
    fn write(&mut self, message: Message, slots: &[u32]) -> Self::Sent;

    /// Looks for room once.
    fn look_for_room(&mut self) -> Result<Room<Self::Sent>, Error>;

    /// Allocates out of memory that readers have let go of. The caller asks the manager for memory if there is none.
    fn reuse(&mut self, _len: usize) -> Option<BufferMut> {
        None
    }

    /// Looks at readers that come and go, and does a whole round.
    fn look_for_memory(&mut self);

    /// Frees memory that was not free for this reason. Returns false if there is none before readers let go of some.
    fn free_more(&mut self, error: &Error, shortage: &mut Self::Shortage) -> bool;

    #[inline(always)]
    fn send_buffer(
        &mut self,
        buffer: Buffer,
        word: u64,
        waits: Waits,
    ) -> Result<Self::Sent, SendError<Buffer>> {
        let named = match pieces::named(self.pool(), &buffer, self.of()) {
            Ok(named) => named,
            Err(error) => return Err(SendError::new(error, buffer)),
        };
        match self.await_room(waits) {
            Ok(None) => {}
            Ok(Some(answer)) => return Ok(answer),
            Err(error) => return Err(SendError::new(error, buffer)),
        }
        let slot = named.id.slot();
        self.kept().keep(slot, buffer);
        Ok(self.write(line::buffer(named, word), &[slot]))
    }

    #[inline]
    fn send_bytes(&mut self, bytes: &[u8], word: u64, waits: Waits) -> Result<Self::Sent, Error> {
        match self.await_room(waits)? {
            None => Ok(self.write(line::inline(bytes, word), &[])),
            Some(answer) => Ok(answer),
        }
    }

    /// Sends an aggregate. `list`: the memory of its list, if the caller has waited for it.
    #[cold]
    fn send_all(
        &mut self,
        all: Aggregate,
        word: u64,
        waits: Waits,
        list: Option<BufferMut>,
    ) -> Result<Self::Sent, SendError<Aggregate>> {
        let list = list_of(self, &all, |writer, len| match list {
            Some(list) => Ok(list),
            None => writer.await_memory(len, waits.deadline()),
        });
        let ready = list.and_then(|list| Ok((list, self.await_room(waits)?)));
        let (named, list) = match ready {
            Ok((list, None)) => list,
            Ok((_, Some(answer))) => return Ok(answer),
            Err(error) => return Err(SendError::new(error, all)),
        };
        let buffers = all.pieces().iter().cloned().chain([list]);
        let slots = buffers.map(|buffer| {
            let slot = buffer.id().slot();
            self.kept().keep(slot, buffer);
            slot
        });
        let slots: Vec<u32> = slots.collect();
        Ok(self.write(line::list(named, word), &slots))
    }

    /// Finds memory: first the buffers that rounds find free. The inner error: there is none before readers let go of
    /// some.
    #[cold]
    fn make_memory(
        &mut self,
        len: usize,
        shortage: &mut Self::Shortage,
    ) -> Result<Result<BufferMut, Error>, Error> {
        loop {
            topics::check_fork(self.domain())?;
            self.look_for_memory();
            let error = match self.pool().try_alloc(len) {
                Err(error) if error == ErrorKind::OutOfMemory => error,
                allocated => return allocated.map(Ok),
            };
            if !self.free_more(&error, shortage) {
                return Ok(Err(error));
            }
        }
    }

    /// Returns an error that says who has the memory.
    fn no_memory(&self, error: Error) -> Error;

    /// Wakes readers that sleep.
    fn ring(&self);

    /// Returns the readers that tell when they let go of memory or make room.
    fn awaited(&self) -> AwaitedReaders {
        AwaitedReaders::default()
    }

    /// Does a visit's work while the program does nothing with the writer. Returns true if more is due soon.
    fn tend_idle(&mut self, now: Instant) -> bool;
}

/// Stores the list of an aggregate's pieces in a buffer of the writer's pool.
///
/// # Errors
/// `TooLarge` for more pieces than a message may have; as [`pieces::named`]; those of `alloc`.
#[cold]
fn list_of<W: Writes>(
    writer: &mut W,
    all: &Aggregate,
    alloc: impl FnOnce(&mut W, usize) -> Result<BufferMut, Error>,
) -> Result<(Named, Buffer), Error> {
    let (count, most) = (all.pieces().len(), writer.most_pieces());
    if count > most as usize {
        let (kind, name) = writer.of();
        let text = format!(
            "an aggregate of {count} pieces is too large for {kind} {name}, whose messages have at most {most} (`pieces` of the options, up to {})",
            pieces::MOST
        );
        return Err(Error::new(ErrorKind::TooLarge, text));
    }
    let named = |piece, writer: &W| pieces::named(writer.pool(), piece, writer.of());
    let pieces = all.pieces().iter().map(|piece| named(piece, writer));
    let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
    let mut list = alloc(writer, topics::list_len(count))?;
    topics::write_list(&pieces, &mut list);
    let list = list.freeze();
    Ok((named(&list, writer)?, list))
}

impl Sealed for Buffer {}

impl Payload for Buffer {
    type Unsent = Buffer;

    #[inline(always)]
    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<Buffer>> {
        to.writer.send_buffer(self, to.word, to.waits)
    }

    fn give_back(self) -> Buffer {
        self
    }
}

impl Sealed for BufferMut {}

/// An error gives back the frozen buffer.
impl Payload for BufferMut {
    type Unsent = Buffer;

    #[inline(always)]
    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<Buffer>> {
        self.freeze().go(to)
    }

    fn give_back(self) -> Buffer {
        self.freeze()
    }
}

impl Sealed for Aggregate {}

impl Payload for Aggregate {
    type Unsent = Aggregate;

    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<Aggregate>> {
        to.writer.send_all(self, to.word, to.waits, to.list)
    }

    fn give_back(self) -> Aggregate {
        self
    }

    fn pieces(&self) -> usize {
        Aggregate::pieces(self).len()
    }
}

impl Sealed for Body {}

/// An error gives back frozen buffers.
impl Payload for Body {
    type Unsent = Body;

    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<Body>> {
        match self.give_back() {
            Body::Buffer(buf) => buf.go(to).map_err(|failed| failed.map(Body::Buffer)),
            Body::Aggregate(all) => all.go(to).map_err(|failed| failed.map(Body::Aggregate)),
            Body::Inline(bytes) => {
                let sent = bytes[..].go(to);
                sent.map_err(|failed| failed.map(|()| Body::Inline(bytes)))
            }
            other => {
                let text =
                    "the word of a release (Body::Released) cannot be sent: send a buffer or bytes";
                Err(SendError::new(
                    Error::new(ErrorKind::BadArgument, text),
                    other,
                ))
            }
        }
    }

    fn give_back(self) -> Body {
        match self {
            Body::BufferMut(buf) => Body::Buffer(buf.freeze()),
            Body::AggregateMut(all) => Body::Aggregate(all.freeze()),
            shared => shared,
        }
    }

    fn pieces(&self) -> usize {
        match self {
            Body::Aggregate(all) => all.pieces().len(),
            Body::AggregateMut(all) => all.pieces().len(),
            _ => 0,
        }
    }
}

impl Sealed for &[u8] {}

impl Payload for &[u8] {
    type Unsent = ();

    #[inline]
    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<()>> {
        let sent = check(self).and_then(|()| to.writer.send_bytes(self, to.word, to.waits));
        sent.map_err(|error| SendError::new(error, ()))
    }

    fn give_back(self) {}
}

impl<const N: usize> Sealed for &[u8; N] {}

impl<const N: usize> Payload for &[u8; N] {
    type Unsent = ();

    #[inline]
    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<()>> {
        const { assert!(N <= INLINE_BYTES, "so many bytes do not fit into a line") };
        self[..].go(to)
    }

    fn give_back(self) {}
}

impl<P: Sealed> Sealed for (P, u64) {}

impl<P: Payload> Payload for (P, u64) {
    type Unsent = (P::Unsent, u64);

    #[inline(always)]
    fn go<W: Writes>(self, to: To<'_, W>) -> Result<W::Sent, SendError<(P::Unsent, u64)>> {
        let (payload, word) = self;
        let sent = payload.go(To { word, ..to });
        sent.map_err(|failed| failed.map(|unsent| (unsent, word)))
    }

    fn give_back(self) -> (P::Unsent, u64) {
        (self.0.give_back(), self.1)
    }

    fn pieces(&self) -> usize {
        self.0.pieces()
    }
}

/// Says whether bytes fit into a line.
#[inline]
fn check(bytes: &[u8]) -> Result<(), Error> {
    match bytes.len() {
        0..=INLINE_BYTES => Ok(()),
        len => Err(too_large(len)),
    }
}

#[cold]
fn too_large(len: usize) -> Error {
    let text = format!(
        "{len} bytes do not fit into a line, which holds {INLINE_BYTES}: put them into a buffer (`alloc`)"
    );
    Error::new(ErrorKind::TooLarge, text)
}
