//! Status of a channel's end.

use super::receiver::Receiver;
use super::sender::Sender;
use super::shared::LinkShared;
use tranship_proto::{ChannelId, DomainId};

/// Facts about a channel, as one of its ends sees them now ([`Sender::status`], [`Receiver::status`]).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The channel's id.
    pub channel: ChannelId,
    /// Domain of the other end.
    pub peer: DomainId,
    /// Process of the other end, as the kernel told the manager.
    pub peer_pid: u32,
    /// User of the other end, as the kernel told the manager.
    pub peer_uid: u32,
    /// Place of the other end, if that is another machine: as `HOST:PORT`, or in words.
    pub peer_place: Option<String>,
    /// Whether the other end listens at a name that other domains may have too ([`ChannelOptions::shared`](crate::ChannelOptions::shared)). The end that listens sees `false`.
    pub peer_shares: bool,
    /// Whether the other end is gone.
    pub peer_gone: bool,
    /// Messages that [`WhenFull`](crate::WhenFull) has dropped at a sender, or that a receiver has skipped because a newer one was there
    /// ([`WhenFull::DropOldest`](crate::WhenFull::DropOldest)).
    pub dropped: u64,
}

impl Status {
    fn of(link: &LinkShared, place: Option<&str>) -> Status {
        Status {
            channel: link.channel,
            peer: link.peer,
            peer_pid: link.peer_pid,
            peer_uid: link.peer_uid,
            peer_place: place.map(str::to_owned),
            peer_shares: link.shared,
            peer_gone: link.is_over(),
            dropped: 0,
        }
    }
}

impl Sender {
    /// Returns the channel's id, the receiver and its place, whether it is gone, and how many messages were dropped. It
    /// checks by a system call whether the receiver lives. [`Sender::queued`] returns the number of waiting messages
    /// without a system call.
    pub fn status(&self) -> Status {
        Status {
            dropped: self.dropped,
            ..Status::of(&self.link, self.place())
        }
    }
}

impl Receiver {
    /// Returns the channel's id, the sender and its place, whether it is gone, and how many messages were skipped. It
    /// checks by a system call whether the sender lives. Messages of a sender that is gone may still wait.
    pub fn status(&self) -> Status {
        Status {
            dropped: self.skipped,
            ..Status::of(&self.link, self.place())
        }
    }
}
