//! The connection of a subscriber: the ring, the desk, and the buffers that the subscriber holds.

use crate::options::SubscriberOptions;
use crate::seats::{DEMOTED, HISTORY, NAMES, RELIABLE};
use tranship_core::topics::{Due, Gone, Holds, Taken};
use tranship_core::{DomainId, Error, Message, PoolId, Receiver};
use tranship_readers::{Connection, Names, WORDS, Word, is_put_off, line, reading};
use tranship_ring::broadcast::{
    BellAt, BellRo, DeskRw, Limits, Quiet, Reader, ReaderMemory, Received, SEQUENCES, T_NS, ahead,
    sequence,
};
use tranship_sys::crash;
use tranship_sys::time::monotonic_ns;

/// A connection to a publisher, before and after it has said where to begin.
pub(crate) struct Seat {
    connection: Connection,
    bell: BellRo,
    desk: DeskRw,
    /// The place in the ring, once the publisher has said where to begin.
    reading: Option<Place>,
    quiet: Quiet,
    /// The number of messages since the last sleep, counted up to two.
    flows: u8,
}

/// A publisher: its domain and process.
pub(crate) type Source = (DomainId, u32);

/// Where a subscriber is in the ring, and what it holds.
struct Place {
    reader: Reader,
    holds: Holds,
    reliable: bool,
    /// A message that was taken out of the ring and could not be held.
    pending: Option<Pending>,
}

/// A message that was taken out of the ring and is still the next one to receive.
struct Pending {
    line: tranship_ring::broadcast::Message,
    /// Set if the manager has not yet shown the message's memory. `None`: the subscriber holds as many buffers as it
    /// may.
    due: Option<Due>,
}

/// The result of a look at the ring.
pub(crate) enum Looked {
    Nothing,
    /// The look found missed messages, and read some lines for it.
    Missed {
        count: u64,
        looks: u64,
    },
    Message(Message),
}

impl Seat {
    /// Takes what the publisher has shown, and says what this end wishes.
    pub(crate) fn new(
        receiver: Receiver,
        desk: DeskRw,
        options: &SubscriberOptions,
    ) -> Result<Seat, Error> {
        static ENDS: Names = NAMES;
        let rank = if options.reliable { RELIABLE } else { 0 };
        let wish = rank | u64::from(options.history) << HISTORY;
        let (connection, bell, _) = Connection::new(receiver, &ENDS, Some(wish))?;
        Ok(Seat {
            connection,
            bell: BellRo::open(bell)?,
            desk,
            reading: None,
            quiet: Quiet::new(T_NS, monotonic_ns()),
            flows: 0,
        })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Returns the publisher's word and the time since its last message.
    pub(crate) fn bell(&self) -> BellAt<'_> {
        BellAt {
            word: self.bell.word(),
            quiet: &self.quiet,
        }
    }

    /// Notes that a message came.
    #[inline(always)]
    pub(crate) fn took(&mut self) {
        self.flows = (self.flows + 1).min(2);
    }

    /// Notes that lines were seen, and not taken.
    #[cold]
    pub(crate) fn passed_over(&mut self) {
        self.flows = 2;
    }

    /// Notes when messages came since the last sleep, for the length of the next sleep.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        match std::mem::take(&mut self.flows) {
            0 => {}
            1 => self.quiet.saw(now_ns),
            _ => self.quiet.saw_many(now_ns),
        }
    }

    /// Says whether the publisher wakes this end for its next message, as of a time before the look at the ring.
    pub(crate) fn may_sleep(&self, now_ns: u64) -> bool {
        self.quiet.may_sleep(now_ns)
    }

    /// Says whether the publisher has said where to begin.
    pub(crate) fn has_begun(&self) -> bool {
        self.reading.is_some()
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.reading.as_ref().is_some_and(|place| place.reliable)
    }

    pub(crate) fn publisher(&self) -> Source {
        let peer = self.connection.peer();
        (peer.domain, peer.pid)
    }

    /// Returns how many buffers this subscriber holds, by the desk and the table.
    pub(crate) fn held(&self) -> usize {
        let place = self.reading.as_ref();
        place.map_or(0, |place| place.holds.count())
    }

    /// Returns the pool of the next message's memory, if the manager has not yet shown this memory.
    pub(crate) fn awaits_memory(&self) -> Option<PoolId> {
        let pending = self.reading.as_ref()?.pending.as_ref()?;
        pending.due.as_ref().map(Due::pool)
    }

    /// Says whether a message was taken out of the ring and stays the next one.
    pub(crate) fn is_pending(&self) -> bool {
        let place = self.reading.as_ref();
        place.is_some_and(|place| place.pending.is_some())
    }

    pub(crate) fn gone(&self) -> Gone {
        self.connection.gone()
    }

    /// Receives the publisher's words from the channel beside the ring, at most [`WORDS`] of them.
    pub(crate) fn hear(&mut self) -> Result<(), Error> {
        for _ in 0..WORDS {
            match (self.connection.hear(self.has_begun())?, &mut self.reading) {
                (None, _) => return Ok(()),
                (Some(Word::Go(go)), _) => {
                    // The subscriber looks at the ring from now on: a burst may be under way.
                    self.quiet.saw_many(monotonic_ns());
                    self.reading = Some(Place {
                        reader: Reader::new(go.position, Limits::new(go.keep)),
                        holds: Holds::new(go.pool, go.keep),
                        reliable: u64::from(go.mark) & RELIABLE != 0,
                        pending: None,
                    });
                }
                (Some(DEMOTED), Some(place)) => place.reliable = false,
                _ => return Err(self.connection.broken("a word that no publisher says")),
            }
        }
        Ok(())
    }

    /// Says whether the next line is there, or the publisher has said something beside the ring.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        let Some(place) = &self.reading else {
            return self.connection.has_word();
        };
        let position = place.reader.cursor();
        let memory = reading(&self.connection.ring, &self.desk);
        let Ok(first) = memory.first(position);
        if let Some(pending) = &place.pending {
            return pending.is_due(&self.connection) || self.connection.has_word();
        }
        first != 0 && ahead(sequence(position), first & SEQUENCES) >= 0
            || self.connection.has_word()
    }

    /// Looks at the next line. With `latest`, at the newest one that is there.
    #[inline]
    pub(crate) fn look(&mut self, latest: bool) -> Result<Looked, Error> {
        let Seat {
            connection,
            desk,
            reading: Some(place),
            ..
        } = self
        else {
            return self.hear().map(|()| Looked::Nothing);
        };
        place.tidy(connection, desk);
        let memory = reading(&connection.ring, desk);
        if let Some(pending) = &place.pending {
            if !pending.is_due(connection) {
                return Ok(Looked::Nothing);
            }
            let line = pending.line;
            place.pending = None;
            let taken = place.take(connection, desk, line);
            if place.pending.is_none() {
                connection.receiver.topic_has_done();
            }
            return taken;
        }
        let Ok(received) = place.reader.receive(&memory);
        let mut message = match received {
            Received::Nothing => return Ok(Looked::Nothing),
            Received::Missed(count) => return Ok(Looked::Missed { count, looks: 1 }),
            Received::Message(message) => message,
            // Every message is finished before the next one is looked for.
            Received::Unfinished => return Ok(Looked::Nothing),
        };
        crash::point("topic.claimed");
        let mut skipped = 0;
        // Goes on to the newest message. The messages before it are finished as they are skipped.
        while latest && skipped < u64::from(connection.ring.lines().count()) {
            let Ok(next) = place.reader.receive(&memory);
            match next {
                Received::Message(newer) => {
                    let Ok(()) = place.reader.finish(&memory);
                    message = newer;
                    skipped += 1;
                }
                // The message that was taken first is finished, and the ring is read again.
                Received::Unfinished => {
                    let Ok(()) = place.reader.finish(&memory);
                    return Ok(missed(skipped + 1));
                }
                Received::Nothing | Received::Missed(_) => break,
            }
        }
        if skipped > 0 {
            place.pending = Some(Pending {
                line: message,
                due: None,
            });
            return Ok(missed(skipped));
        }
        place.take(connection, desk, message)
    }

    /// Takes all claims off the desk, before a sleep.
    pub(crate) fn rest(&mut self) {
        if let Some(place) = &mut self.reading {
            place.tidy(&mut self.connection, &self.desk);
            let memory = reading(&self.connection.ring, &self.desk);
            let Ok(()) = place.reader.rest(&memory);
            self.connection.receiver.topic_tells();
        }
    }

    /// Leaves in order. The table keeps the buffers that this subscriber holds.
    pub(crate) fn leave(mut self) {
        if let Some(place) = &mut self.reading {
            let memory = reading(&self.connection.ring, &self.desk);
            let Ok(()) = place.reader.leave(&memory);
            crash::point("topic.left");
        }
    }
}

impl Pending {
    /// Says whether there is a reason to try again.
    fn is_due(&self, connection: &Connection) -> bool {
        let due = self.due.as_ref();
        due.is_none_or(|due| connection.receiver.topic_is_due(due))
    }
}

impl Place {
    /// Gives back entries of the desk whose buffers were dropped.
    fn tidy(&mut self, connection: &mut Connection, desk: &DeskRw) {
        let memory = reading(&connection.ring, desk);
        let receiver = &mut connection.receiver;
        if self.holds.tidy(receiver, &mut self.reader, &memory) {
            receiver.topic_tells();
        }
    }

    /// Makes a message of a line that was taken, and finishes it.
    #[inline(always)]
    fn take(
        &mut self,
        connection: &mut Connection,
        desk: &DeskRw,
        line: tranship_ring::broadcast::Message,
    ) -> Result<Looked, Error> {
        let Some((word, said)) = line::parse(&line) else {
            return Err(connection.broken("a line that no publisher writes"));
        };
        let body = connection.body(said, &mut self.holds, &mut self.reader, desk);
        let looked = match body {
            Ok(Taken::Here(body)) => Looked::Message(Message { word, body }),
            // The message's memory is gone with its writer.
            Ok(Taken::Lost) => missed(1),
            Ok(Taken::Later(due)) => return Ok(self.put_off(line, Some(due))),
            Err(error) => {
                if is_put_off(&error) {
                    self.put_off(line, None);
                }
                return Err(error);
            }
        };
        let memory = reading(&connection.ring, desk);
        let Ok(()) = self.reader.finish(&memory);
        crash::point("topic.kept");
        connection.receiver.topic_tells();
        Ok(looked)
    }

    /// Keeps a message that cannot be held yet, so that it is still the next one.
    #[cold]
    fn put_off(&mut self, line: tranship_ring::broadcast::Message, due: Option<Due>) -> Looked {
        self.pending = Some(Pending { line, due });
        Looked::Nothing
    }
}

/// Makes the result of a look that read one line for each missed message.
fn missed(count: u64) -> Looked {
    Looked::Missed {
        count,
        looks: count,
    }
}
