//! How a link ends for its receiver: once, and then for good.

use super::Receiver;
use super::pending::Pending;
use crate::error::{RecvError, Violation};
use crate::link::message::Message;
use crate::link::shared::Ending;
use tranship_proto::{ChannelId, Request};
use tranship_sys::crash;

/// What comes before the next line.
pub(super) enum Ahead {
    Nothing,
    /// A line that was taken off the ring but cannot be received yet. Its count and the head wait with it.
    Line(Pending),
    /// The end: no line is looked at any more.
    End(Over),
}

/// Why nothing more comes.
#[derive(Clone)]
pub(super) enum Over {
    Closed,
    Died,
    Never,
    Lost,
    Violated(Violation),
}

impl Over {
    fn error(self, channel: ChannelId) -> RecvError {
        match self {
            Over::Closed => RecvError::PeerGone(channel),
            Over::Died => RecvError::PeerDied(channel),
            Over::Never => RecvError::NotConnected(channel),
            Over::Lost => RecvError::Lost(channel),
            Over::Violated(violation) => RecvError::Violation(violation),
        }
    }
}

impl Receiver {
    /// The source is gone and the ring is empty.
    pub(super) fn all_taken(&mut self) -> RecvError {
        self.drained(match self.link.their_ending() {
            Ending::Closed => Over::Closed,
            Ending::Never => Over::Never,
            // Its own word alone says that it had nothing more to send: the manager hears of a close also where there was none.
            Ending::Open | Ending::Abandoned => Over::Died,
        })
    }

    /// Nothing of a source that is gone can still be taken.
    pub(super) fn drained(&mut self, over: Over) -> RecvError {
        crash::point("recv.before_drained");
        let channel = self.link.channel;
        let _ = self.link.domain.tell(&Request::Drained { channel }, &[]);
        self.end(over)
    }

    pub(super) fn end(&mut self, over: Over) -> RecvError {
        self.ahead = Ahead::End(over.clone());
        over.error(self.link.channel)
    }

    /// What was put aside, or the end once more.
    #[cold]
    pub(super) fn take_ahead(&mut self) -> Result<Option<Message>, RecvError> {
        if self.link.domain.fork.is_child() {
            return Err(RecvError::Forked);
        }
        match std::mem::replace(&mut self.ahead, Ahead::Nothing) {
            Ahead::Nothing => Ok(None),
            Ahead::Line(pending) => self.take_pending(&pending),
            Ahead::End(over) => Err(self.end(over)),
        }
    }
}
