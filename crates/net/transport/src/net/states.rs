//! States of a session: one type for each thing that can be in several states, with all transitions between them. This
//! module has no bytes and no sockets.
//!
//! | | states |
//! |---|---|
//! | [`Connection`] | new, up, lost (dialed for or not), over |
//! | [`Program`] | ours: looks, has left (farewell due, said, closed) |
//! | [`News`] | report of taken frames to the other end: nothing, some may wait, due |
//! | [`Coming`] | a buffer whose frame the program has: its frame comes again first, or its bytes come |

use std::time::{Duration, Instant};

/// Reason of a session's end.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub(super) violation: bool,
    pub(super) why: String,
}

impl Over {
    /// Returns the end of a session by the other end's fault.
    pub(super) fn broken(rule: impl Into<String>) -> Over {
        Over {
            violation: true,
            why: rule.into(),
        }
    }

    /// Returns the end of a session whose other end is gone, or is not needed any more.
    pub(super) fn gone(why: impl Into<String>) -> Over {
        Over {
            violation: false,
            why: why.into(),
        }
    }
}

/// The connection under a session, which is `U` while it is there.
#[derive(Debug)]
pub(super) enum Connection<U> {
    /// The first connection is about to be made.
    New,
    Up(U),
    /// The connection is lost; the end that made it makes another one.
    Lost(Lost),
    /// There will be no connection any more, and nothing is sent or received.
    Over(Over),
}

/// A connection that is no more.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) since: Instant,
    /// Reason of the loss, or of the last failed attempt at another connection.
    pub(super) why: String,
    dialer: Dialer,
}

/// State of the attempt to make another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dialer {
    Nobody,
    Dials,
}

impl<U> Connection<U> {
    pub(super) fn up(&self) -> Option<&U> {
        match self {
            Connection::Up(up) => Some(up),
            _ => None,
        }
    }

    pub(super) fn up_mut(&mut self) -> Option<&mut U> {
        match self {
            Connection::Up(up) => Some(up),
            _ => None,
        }
    }

    pub(super) fn lost(&self) -> Option<&Lost> {
        match self {
            Connection::Lost(lost) => Some(lost),
            _ => None,
        }
    }

    pub(super) fn over(&self) -> Option<&Over> {
        match self {
            Connection::Over(over) => Some(over),
            _ => None,
        }
    }

    fn into_up(self) -> Option<U> {
        match self {
            Connection::Up(up) => Some(up),
            _ => None,
        }
    }

    /// Takes another connection; returns the one before it, if there was one. A session that is over does not take it.
    pub(super) fn renew(&mut self, up: U) -> Option<U> {
        match self {
            Connection::Over(_) => None,
            _ => std::mem::replace(self, Connection::Up(up)).into_up(),
        }
    }

    /// Notes the loss of the connection, and returns it. Nothing happens if there is none.
    pub(super) fn lose(&mut self, why: String, now: Instant) -> Option<U> {
        self.up()?;
        let lost = Lost {
            since: now,
            why,
            dialer: Dialer::Nobody,
        };
        std::mem::replace(self, Connection::Lost(lost)).into_up()
    }

    /// Ends the session, and returns its connection. The first reason stays.
    pub(super) fn end(&mut self, over: Over) -> Option<U> {
        match self {
            Connection::Over(_) => None,
            _ => std::mem::replace(self, Connection::Over(over)).into_up(),
        }
    }

    /// Returns whether a thread must be found that makes another connection.
    pub(super) fn needs_dialer(&self) -> bool {
        self.lost()
            .is_some_and(|lost| lost.dialer == Dialer::Nobody)
    }

    /// Notes that a thread makes another connection.
    pub(super) fn dials(&mut self) {
        if let Connection::Lost(lost) = self {
            lost.dialer = Dialer::Dials;
        }
    }

    /// Notes that the thread that dialed has given up.
    pub(super) fn gave_up(&mut self) {
        if let Connection::Lost(lost) = self {
            lost.dialer = Dialer::Nobody;
        }
    }

    /// Notes that an attempt at another connection failed.
    pub(super) fn failed(&mut self, why: String) {
        if let Connection::Lost(lost) = self {
            lost.why = why;
        }
    }
}

/// Use that our program makes of the session.
#[derive(Debug)]
pub(super) enum Program {
    /// The program looks for data, and looked last at that time.
    Looks(Instant),
    /// The program has released the session, at that time. Frames that were sent still go out.
    Left { since: Instant, farewell: Farewell },
}

/// Farewell to the other end after our program has left, over the present connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Farewell {
    Due,
    /// The farewell is in the socket.
    Said,
    /// The farewell is in the socket and the way out is closed.
    Closed,
}

impl Program {
    pub(super) fn looked(&mut self, now: Instant) {
        if let Program::Looks(at) = self {
            *at = now;
        }
    }

    pub(super) fn left(&mut self, now: Instant) {
        if self.left_at().is_none() {
            *self = Program::Left {
                since: now,
                farewell: Farewell::Due,
            };
        }
    }

    pub(super) fn left_at(&self) -> Option<Instant> {
        match self {
            Program::Left { since, .. } => Some(*since),
            Program::Looks(_) => None,
        }
    }

    pub(super) fn farewell(&self) -> Option<Farewell> {
        match self {
            Program::Left { farewell, .. } => Some(*farewell),
            Program::Looks(_) => None,
        }
    }

    /// Advances the farewell: due, said, closed.
    pub(super) fn said(&mut self, now: Farewell) {
        if let Program::Left { farewell, .. } = self {
            debug_assert!(matches!(
                (*farewell, now),
                (Farewell::Due, Farewell::Said) | (Farewell::Said, Farewell::Closed)
            ));
            *farewell = now;
        }
    }

    /// Makes the farewell due again: a farewell over an old connection does not count.
    pub(super) fn begin_anew(&mut self) {
        if let Program::Left { farewell, .. } = self {
            *farewell = Farewell::Due;
        }
    }

    /// Returns whether the program soon checks by itself.
    pub(super) fn is_attentive(&self, now: Instant, within: Duration) -> bool {
        match self {
            Program::Looks(at) => now.saturating_duration_since(*at) < within,
            Program::Left { .. } => false,
        }
    }
}

/// Report to the other end of the frames that the program took. Each record that goes out carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Nothing,
    /// The program took this many frames. The report goes with the next frame, or when the program waits.
    Taken {
        frames: u32,
        /// A frame of these came with a buffer's bytes.
        buffers: bool,
    },
    /// A record is to go out for it.
    Due,
}

impl News {
    /// Counts a frame that the program has taken. After `most` frames the other end hears at once.
    pub(super) fn took(&mut self, buffer: bool, most: u32) {
        let (frames, buffers) = match *self {
            News::Nothing => (1, buffer),
            News::Taken { frames, buffers } => (frames + 1, buffers || buffer),
            News::Due => return,
        };
        *self = match frames >= most {
            true => News::Due,
            false => News::Taken { frames, buffers },
        };
    }

    /// Makes the report due: the program has been silent for long enough.
    pub(super) fn hurry(&mut self) {
        *self = News::Due;
    }

    /// Notes that a record with the report is on its way.
    pub(super) fn said(&mut self) {
        *self = News::Nothing;
    }
}

/// Progress of a buffer whose frame the program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coming {
    /// The connection is a new one: the frame comes again first.
    Frame,
    /// This many bytes have come.
    Bytes(usize),
}

#[cfg(test)]
mod tests;
