//! A relay: what comes by one channel goes on by another, and what comes back goes back.
//!
//! ```text
//!  source ═ Sender ──► Receiver ═ Relay ═ Sender ──► Receiver ═ sink       messages, buffers by reference
//!                 ◄──                         ◄──                          words, buffers passed back, releases that are told
//! ```
//!
//! It takes nothing that it has no place for: one message each way waits in it, all else in the channels, whose back-pressure so reaches the source.
//!
//! NOT here: more than one sink; choosing, changing or answering anything.

use super::message::{Body, Message};
use super::poll::{Inward, Onward, PollItem, poll};
use super::{Receiver, Sender};
use crate::domain::POLL_INTERVAL;
use crate::error::{Error, ErrorKind, SendError};
use crate::options::PoolOptions;
use crate::pool::Pool;
use std::fmt;
use std::time::Instant;
use tranship_ring::Ending;

/// Messages one way between two looks at the other.
const SOME: usize = 64;
/// Of the pool for lists of aggregates, which holds several of the longest.
const LISTS_BYTES: u64 = 1 << 20;

/// Hands on whatever comes by one channel to another, with its word, and back whatever the other end says, passes back or tells of.
///
/// | it gets | it does |
/// |---|---|
/// | inline bytes, a shared buffer, an aggregate | the same to the sink, by reference where memory is shared: the relay needs the right to forward ([`Pool::allow_forward`]) |
/// | a moved buffer, a moved aggregate | moves it on |
/// | what was copied (level `none`), or carried here | the copy, which is a buffer of the relay's own |
/// | from the sink: bytes ([`Receiver::send_back`]) | the same to the source |
/// | a release that is told ([`Released`](crate::Released)) | tells it, with the buffer's id if the source knows that |
/// | a buffer that is handed back | hands it back; if it is not the source's, releases it and tells that |
/// | the source's end | is over when all is handed on ([`RelayEnd::Source`]); dropped then, it ends for the sink as the source did |
/// | the sink's end | hands back what that had said, and is over ([`RelayEnd::Sink`]): the next message stays, for [another sink](Relay::replace_sink). [`turn`](Relay::turn) tells it while something still waits for the source to take it, which each further turn tries |
///
/// An aggregate's list goes into a pool of the relay's own, of 1 MiB at most, made at the first one; another can be [named](Relay::set_list_pool).
///
/// ```
/// # use tranship_core as tranship;
/// use std::thread;
/// use tranship::{Domain, PoolOptions, Receiver, Relay, RelayEnd, Sender};
///
/// let domain = Domain::embedded()?;
/// let channel = |name: &str| -> Result<_, tranship::Error> {
///     let listener = domain.listen::<Receiver>(name)?;
///     Ok((domain.open::<Sender>(name)?, listener.accept()?))
/// };
/// let ((mut to, middle), (out, mut from)) = (channel("local:a")?, channel("local:b")?);
/// let relay = thread::spawn(move || Relay::new(middle, out).map(|mut relay| relay.run()));
///
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// to.send((pool.copy(b"by way of the relay")?.freeze(), 7))?;
/// let message = from.recv()?;
/// assert_eq!((message.word, message.to_vec()), (7, b"by way of the relay".to_vec()));
/// drop(to);
/// let stop = relay.join().map_err(|_| "it panicked")??;
/// assert_eq!(stop.end, RelayEnd::Source);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Relay {
    from: Receiver,
    to: Sender,
    /// Taken, and not handed on yet; and what for.
    next: Option<Message>,
    awaits: Awaits,
    /// The same of what goes back.
    back: Option<Message>,
    /// How the source ended.
    over: Option<Error>,
    lists: Option<Pool>,
}

/// What the next message waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    Room,
    /// Consent to its pool, memory, the manager.
    Else,
}

/// At which side a relay has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayEnd {
    /// The source is gone, and all that it had sent is handed on.
    Source,
    /// The sink is gone, and all that it had said is handed back for which the source has room now. The next message, if there is one, stays with the
    /// relay, and so does the next word.
    Sink,
    /// The next message cannot go on, as the error says: it stays with the relay, which can be run again when that is changed, or
    /// without it ([`Relay::take_unsent`]).
    Message,
}

/// Why a relay has stopped.
#[derive(Debug)]
pub struct RelayStop {
    /// At which side.
    pub end: RelayEnd,
    /// Of the source `PeerGone`: it closed its end in order.
    pub error: Error,
}

impl fmt::Display for RelayStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.end {
            RelayEnd::Source => "its source",
            RelayEnd::Sink => "its sink",
            RelayEnd::Message => "a message that cannot go on",
        };
        write!(f, "the relay stopped at {side}: {}", self.error)
    }
}

impl std::error::Error for RelayStop {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PeerGone | ErrorKind::PeerDied | ErrorKind::PeerViolation | ErrorKind::Lost
    )
}

impl Relay {
    /// A relay from one channel to another, both of one domain. It does something when it is [run](Relay::run), or is given a [turn](Relay::turn).
    ///
    /// # Errors
    /// `BadArgument` if the two ends are of different domains: a buffer that came to one cannot be sent by the other.
    pub fn new(from: Receiver, to: Sender) -> Result<Relay, Error> {
        of_one_domain(&from, &to)?;
        Ok(Relay {
            from,
            to,
            next: None,
            awaits: Awaits::Room,
            back: None,
            over: None,
            lists: None,
        })
    }

    /// Where the lists of aggregates go from here on: a pool of this domain's.
    pub fn set_list_pool(&mut self, pool: &Pool) {
        self.lists = Some(pool.clone());
    }

    /// Both channels.
    pub fn ends(&self) -> (&Receiver, &Sender) {
        (&self.from, &self.to)
    }

    /// Another sink from here on; gives the one before. What was not handed on yet goes there; what the one before had not taken is lost with it, and what
    /// it has said goes back.
    ///
    /// # Errors
    /// As [`new`](Relay::new); the relay is as before.
    #[expect(
        clippy::result_large_err,
        reason = "rare, and the end comes back whole"
    )]
    pub fn replace_sink(&mut self, to: Sender) -> Result<Sender, SendError<Sender>> {
        match of_one_domain(&self.from, &to) {
            Ok(()) => {
                self.awaits = Awaits::Room;
                Ok(std::mem::replace(&mut self.to, to))
            }
            Err(error) => Err(SendError::new(error, to)),
        }
    }

    /// Another source from here on; gives the one before.
    ///
    /// # Errors
    /// As [`new`](Relay::new); the relay is as before.
    #[expect(
        clippy::result_large_err,
        reason = "rare, and the end comes back whole"
    )]
    pub fn replace_source(&mut self, from: Receiver) -> Result<Receiver, SendError<Receiver>> {
        match of_one_domain(&from, &self.to) {
            Ok(()) => {
                self.over = None;
                Ok(std::mem::replace(&mut self.from, from))
            }
            Err(error) => Err(SendError::new(error, from)),
        }
    }

    /// The message that could not be handed on, which the relay forgets.
    pub fn take_unsent(&mut self) -> Option<Message> {
        self.next.take()
    }

    /// Hands on and back what can go now; how many messages that were. It waits for nobody, but the first aggregate for its pool of lists.
    ///
    /// # Errors
    /// When it has come to an [end](RelayEnd).
    pub fn turn(&mut self) -> Result<usize, RelayStop> {
        let moved = self.hand_back()? + self.hand_on()?;
        if moved > 0 || !self.to.is_peer_gone() {
            return Ok(moved);
        }
        // What it said before it went is there now. Nobody knows when a source takes what it has no room for.
        let more = self.hand_back()?;
        if more > 0 {
            return Ok(more);
        }
        Err(RelayStop {
            end: RelayEnd::Sink,
            error: self.to.peer_gone(),
        })
    }

    /// Relays until it comes to an [end](RelayEnd), and sleeps while there is nothing to do; of a sink that is gone the source takes all that it had said
    /// before that is told. To wait for other things as well take
    /// [`turn`](Relay::turn) and [`poll_items`](Relay::poll_items).
    pub fn run(&mut self) -> RelayStop {
        loop {
            match self.turn() {
                // The source has still to take what the sink had said.
                Err(stop) if stop.end == RelayEnd::Sink && self.back.is_some() => {}
                Err(stop) => return stop,
                Ok(0) => {}
                Ok(_) => continue,
            }
            if let Err(error) = poll(&mut self.poll_items(), None) {
                let end = RelayEnd::Message;
                return RelayStop { end, error };
            }
        }
    }

    /// What to [`poll`](crate::poll) for: when one of these is ready it is time for a [`turn`](Relay::turn). To be taken anew after each.
    pub fn poll_items(&mut self) -> [PollItem<'_>; 2] {
        let soon = || Some(Instant::now() + POLL_INTERVAL);
        let waits = self.next.is_some();
        let inward = Inward {
            message: !waits && self.over.is_none(),
            // Nobody tells of room on that way.
            again: self.back.is_some().then(soon).flatten(),
        };
        let onward = Onward {
            room: waits && self.awaits == Awaits::Room,
            control: self.back.is_none(),
            again: (waits && self.awaits == Awaits::Else).then(soon).flatten(),
        };
        [
            PollItem::inward(&mut self.from, inward),
            PollItem::onward(&mut self.to, onward),
        ]
    }

    fn hand_on(&mut self) -> Result<usize, RelayStop> {
        for handed in 0..SOME {
            let message = match self.next.take() {
                Some(message) => message,
                None => match self.take_next()? {
                    Some(message) => message,
                    None => return Ok(handed),
                },
            };
            let Err(failed) = self.send_on(message) else {
                continue;
            };
            let kind = failed.kind();
            self.next = Some(failed.unsent);
            self.awaits = match kind {
                ErrorKind::Full => Awaits::Room,
                _ => Awaits::Else,
            };
            return match kind {
                // Whether it has said something is looked at first.
                kind if is_end(kind) => Ok(handed),
                ErrorKind::Full
                | ErrorKind::PoolPending
                | ErrorKind::ManagerAway
                | ErrorKind::OutOfMemory
                | ErrorKind::TimedOut => Ok(handed),
                _ => Err(RelayStop {
                    end: RelayEnd::Message,
                    error: failed.error,
                }),
            };
        }
        Ok(SOME)
    }

    fn take_next(&mut self) -> Result<Option<Message>, RelayStop> {
        let taken = match &self.over {
            Some(over) => Err(over.clone()),
            None => self.from.try_recv(),
        };
        taken.map_err(|error| {
            if is_end(error.kind()) {
                self.over = Some(error.clone());
            }
            let end = RelayEnd::Source;
            RelayStop { end, error }
        })
    }

    fn send_on(&mut self, mut message: Message) -> Result<(), SendError<Message>> {
        let needs_list = matches!(message.body, Body::Aggregate(_) | Body::AggregateMut(_));
        if needs_list && self.to.needs_lists() {
            let lists = match self.list_pool() {
                Ok(lists) => lists,
                Err(error) => return Err(SendError::new(error, message)),
            };
            match &mut message.body {
                Body::Aggregate(all) => all.set_list_pool(&lists),
                Body::AggregateMut(all) => all.set_list_pool(&lists),
                _ => {}
            }
        }
        self.to.try_message(message)
    }

    fn list_pool(&mut self) -> Result<Pool, Error> {
        if let Some(pool) = &self.lists {
            return Ok(pool.clone());
        }
        let options = PoolOptions::new(LISTS_BYTES).name("lists of a relay");
        let made = Pool::create(&self.to.link.domain, options)?;
        Ok(self.lists.insert(made).clone())
    }

    fn hand_back(&mut self) -> Result<usize, RelayStop> {
        for handed in 0..SOME {
            let said = match self.back.take() {
                Some(said) => Ok(Some(said)),
                None => self.to.try_recv_back(),
            };
            match said {
                Ok(Some(said)) => self.back = self.say_back(said),
                Ok(None) => return Ok(handed),
                // What comes after a lie comes at the next turn.
                Err(error) => {
                    let end = RelayEnd::Sink;
                    return Err(RelayStop { end, error });
                }
            }
            if self.back.is_some() {
                return Ok(handed);
            }
        }
        Ok(SOME)
    }

    /// Gives back what has to wait. What nobody is there to hear is let go.
    fn say_back(&mut self, said: Message) -> Option<Message> {
        if self.over.is_some() || self.from.sender_is_there().is_err() {
            return None;
        }
        let word = said.word;
        let waits = |kind| {
            matches!(
                kind,
                ErrorKind::Full | ErrorKind::PoolPending | ErrorKind::ManagerAway
            )
        };
        let body = match said.body {
            Body::Inline(inline) => {
                let sent = self.from.say(&inline, word);
                sent.err()
                    .filter(|error| waits(error.kind()))
                    .map(|_| Body::Inline(inline))
            }
            Body::BufferMut(buf) => match self.from.hand_back(buf, word) {
                Ok(()) => None,
                Err(failed) if waits(failed.kind()) => Some(Body::BufferMut(failed.unsent)),
                // It is not the source's.
                Err(failed) => {
                    let id = failed.unsent.id();
                    drop(failed.unsent);
                    return self.say_back(Message {
                        word,
                        body: Body::Released(Some(id)),
                    });
                }
            },
            Body::Released(id) => {
                let told = self.from.tell_released(id, word);
                told.err()
                    .filter(|error| waits(error.kind()))
                    .map(|_| Body::Released(id))
            }
            // Nothing else comes back.
            Body::Buffer(_) | Body::Aggregate(_) | Body::AggregateMut(_) => None,
        };
        body.map(|body| Message { word, body })
    }
}

fn of_one_domain(from: &Receiver, to: &Sender) -> Result<(), Error> {
    if from.link.domain.is(&to.link.domain) {
        return Ok(());
    }
    let text = format!(
        "the relay's receiver is of domain {}, its sender of domain {}: both have to be of one, as only that one may send what it has got",
        from.link.domain.id(),
        to.link.domain.id()
    );
    Err(Error::new(ErrorKind::BadArgument, text))
}

impl Drop for Relay {
    /// The sink hears the end that the source had. Of a relay that goes before that, or with a message that was not handed on, it hears that not all
    /// has come ([`ErrorKind::PeerDied`]).
    fn drop(&mut self) {
        let closed = self
            .over
            .as_ref()
            .is_some_and(|over| *over == ErrorKind::PeerGone);
        if (!closed || self.next.is_some()) && !self.to.link.domain.fork.is_child() {
            self.to.link.ring.end(Ending::Abandoned);
        }
    }
}
