//! What comes back to a source over the control ring, as far as it is taken.

use crate::error::Error;
use crate::link::message::Message;
use std::collections::VecDeque;
use tranship_ring::Consumer;

/// A source's end of the control ring.
#[derive(Default)]
pub(crate) struct Replies {
    pub(crate) consumer: Consumer,
    /// Taken before anybody asked, as the queue left.
    pub(crate) early: VecDeque<Result<Message, Error>>,
    /// Nobody will ask any more.
    pub(crate) over: bool,
}
