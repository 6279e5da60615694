//! The two ends of a carried channel inside this process: the program's and the carrier's.

use super::carrier::{Ends, Handed};
use super::driver::Driver;
use super::inside::{self, Wish};
use super::message::Message;
use super::open::End;
use super::receiver::arrivals;
use super::{Receiver, Sender};
use crate::error::{Error, ErrorKind, SendError};
use crate::options::{ChannelOptions, PoolOptions};
use crate::pool::Pool;
use std::sync::Arc;
use tranship_proto::Role;

/// Memory for bytes that arrive at a channel whose options name no pool for them: 64 MiB.
const ARRIVALS_BYTES: u64 = 64 << 20;

/// Reasons for which a channel may end for the program at its other end. Any other kind would blame the program's own
/// side, or mean, as `Full` and `TimedOut` do, that it may try again.
pub const REASONS: [ErrorKind; 5] = [
    ErrorKind::PeerGone,
    ErrorKind::PeerDied,
    ErrorKind::PeerViolation,
    ErrorKind::SameRole,
    ErrorKind::Limit,
];

fn reason(why: Error, otherwise: ErrorKind) -> Error {
    let kind = why.kind();
    match REASONS.contains(&kind) {
        true => why,
        false => Error::because(otherwise, format!("{} at the carrier", kind.name()), why),
    }
}

/// A carrier's end of a channel by which the program sends.
#[derive(Debug)]
pub struct Outlet(pub(super) Receiver);

/// A carrier's end of a channel by which the program receives.
#[derive(Debug)]
pub struct Inlet(Sender);

impl Ends {
    /// Makes the program's end that sends to `place`, messages of at most `most_bytes`, and the carrier's end.
    ///
    /// Does not block.
    ///
    /// # Errors
    /// `BadArgument` for lines outside their range; `System`.
    pub fn sending(&self, place: &str, most_bytes: u64) -> Result<(Outlet, Handed), Error> {
        let (mut sender, mut receiver) = self.pair(place)?;
        sender.limit(most_bytes);
        sender.linger();
        receiver.hold_lines();
        Ok((Outlet(receiver), Handed(End::Source(sender))))
    }

    /// Makes the program's end that receives from `place`, and the carrier's end.
    ///
    /// Does not block.
    ///
    /// # Errors
    /// As [`sending`](Ends::sending).
    pub fn receiving(&self, place: &str) -> Result<(Inlet, Handed), Error> {
        let (sender, receiver) = self.pair(place)?;
        Ok((Inlet(sender), Handed(End::Sink(receiver))))
    }

    fn pair(&self, place: &str) -> Result<(Sender, Receiver), Error> {
        let carriers = ChannelOptions::default().lines(self.options.lines);
        let wish = |role| Wish {
            domain: &self.domain,
            options: match role == self.role {
                true => &self.options,
                false => &carriers,
            },
        };
        inside::pair(
            &self.address,
            wish(Role::Source),
            wish(Role::Sink),
            Some(place),
        )
    }

    /// Returns the pool for arriving bytes: the one that the options name ([`ChannelOptions::snapshots`]), else a new
    /// one of this channel's ([`ChannelOptions::arrivals`]).
    ///
    /// # Errors
    /// As [`Domain::create_pool`](crate::Domain::create_pool), and it blocks as that does; `BadArgument` for a pool that is not this domain's.
    pub fn arrivals(&self) -> Result<Pool, Error> {
        let plain = PoolOptions::new(ARRIVALS_BYTES)
            .name("arrivals")
            .slots(4096);
        let pool = arrivals(&self.domain, &self.options, Some(plain))?;
        pool.ok_or_else(|| ErrorKind::BadArgument.into())
    }
}

impl Outlet {
    /// Whether the program waits until its messages have arrived, or until their memory is free.
    pub fn is_awaited(&self) -> bool {
        let link = &self.0.link;
        link.ring.is_awaited()
            || link
                .other()
                .is_some_and(|other| other.domain.pressure.is_under())
    }

    /// Takes the program's next message, if one is there. It counts as taken when it is
    /// [acknowledged](Outlet::acknowledge).
    ///
    /// # Errors
    /// As [`Receiver::try_recv`]: `PeerGone` when the program has closed its end and everything was taken.
    pub fn try_take(&mut self) -> Result<Option<Message>, Error> {
        self.0.try_recv()
    }

    /// Notes that so many messages, from the first on, have arrived at their place.
    pub fn acknowledge(&mut self, messages: u64) {
        self.0.give_back_to(messages);
    }

    /// Sends bytes back to the program, as its receiver does.
    ///
    /// # Errors
    /// As [`Receiver::send_back`]. It does not block.
    pub fn send_back(&mut self, bytes: &[u8], word: u64) -> Result<(), SendError<()>> {
        self.0
            .send_back((bytes, word))
            .map_err(|failed| failed.map(drop))
    }

    /// Tells the program that its receiver has released something.
    ///
    /// # Errors
    /// As [`Receiver::send_back`]. It does not block.
    pub fn tell_released(&mut self, word: u64) -> Result<(), Error> {
        self.0.tell_released(word)
    }

    /// Sends the last replies of a carrier that goes: for these there is always room, and nothing comes after them.
    pub fn say_last(&mut self, words: impl IntoIterator<Item = Message>) {
        if let Some(store) = self.0.store() {
            words.into_iter().for_each(|word| store.put_late(word));
        }
    }

    /// Ends the channel for the program: nothing is taken any more. `why` is one of the [reasons](REASONS); any other
    /// error becomes the cause of `PeerGone`.
    pub fn end(self, why: Error) {
        self.0.end_because(reason(why, ErrorKind::PeerGone));
    }

    /// Whether the program has closed its end. There may be messages that were not taken.
    pub fn is_closed(&mut self) -> bool {
        self.0.link.their_closed()
    }
}

impl Inlet {
    /// Gives the program a message; `Full` if it has too many.
    ///
    /// # Errors
    /// As [`Sender::try_send`].
    pub fn try_send(&mut self, message: Message) -> Result<(), SendError<Message>> {
        self.0.try_message(message)
    }

    /// Returns how many messages the program has taken, from the first on.
    pub fn taken(&mut self) -> u64 {
        self.0.taken()
    }

    /// Takes the program's next message to the sender.
    ///
    /// # Errors
    /// As [`Sender::try_recv_back`]. It does not block.
    pub fn try_control(&mut self) -> Result<Option<Message>, Error> {
        self.0.try_recv_back()
    }

    /// Whether the program has let go of its end.
    pub fn is_gone(&mut self) -> bool {
        self.0.link.is_over()
    }

    /// Ends the channel in order: the sender has closed it, and everything is here.
    pub fn close(self) {
        drop(self.0);
    }

    /// Ends the channel for the program: nothing more comes. `why` is one of the [reasons](REASONS), but not
    /// `PeerGone`, which is an end in order; any other error becomes the cause of `PeerDied`.
    pub fn end(self, why: Error) {
        let why = match why.kind() {
            ErrorKind::PeerGone => Error::because(ErrorKind::PeerDied, "not closed in order", why),
            _ => reason(why, ErrorKind::PeerDied),
        };
        self.0.end_because(why);
    }
}

impl Handed {
    /// Has the program's end call `driver` whenever it does something, from now on. The carrier's end is not told
    /// otherwise.
    pub fn drive(&mut self, driver: Arc<dyn Driver>) {
        let link = match &mut self.0 {
            End::Source(sender) => &sender.link,
            End::Sink(receiver) => {
                receiver.driver = Some(Arc::clone(&driver));
                &receiver.link
            }
        };
        let Some((inside, other)) = link.inside.as_ref().zip(link.other()) else {
            return;
        };
        link.domain.pressure.has_carriers();
        if inside.driver.set(driver).is_ok() {
            // The end never sleeps but in the driver: so each message presses its doorbell, which is the driver.
            other.ring.arm();
        }
    }
}
