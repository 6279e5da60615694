//! The end of a link for its receiver: once, and then for good.

use super::Receiver;
use super::ahead::{Ahead, Over};
use crate::error::Error;
use tranship_proto::Request;
use tranship_ring::Ending;
use tranship_sys::crash;

impl Receiver {
    /// The source is gone and the ring is empty.
    pub(super) fn all_taken(&mut self) -> Error {
        self.drained(match self.link.ring.their_ending() {
            Ending::Closed => Over::Closed,
            Ending::Never => Over::Never,
            // Only the source's own word says that it had nothing more to send: the manager is told of a close also
            // after a death.
            Ending::Open | Ending::Abandoned => match self.link.why() {
                Some(why) => Over::Because(why),
                None => Over::Died,
            },
        })
    }

    /// Ends the link of a source that is gone: no message can be taken any more.
    pub(super) fn drained(&mut self, over: Over) -> Error {
        crash::point("recv.before_drained");
        let channel = self.link.channel;
        if self.link.inside.is_none() {
            let _ = self.link.domain.tell(&Request::Drained { channel }, &[]);
        }
        self.end(over)
    }

    pub(super) fn end(&mut self, over: Over) -> Error {
        self.ahead = Ahead::End(over.clone());
        over.error(self.link.channel)
    }
}
