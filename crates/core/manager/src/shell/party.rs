//! A party: one user's connections, processes and tasks.

use super::flight::Flight;
use super::keep::Discarded;
use super::watchdog::Phase;
use crate::state::{ClientId, FdToken, Input};
use std::collections::VecDeque;
use tranship_sys::epoll::Epoll;

/// A task of a party. Each is short.
#[derive(Debug)]
pub(super) enum Task {
    /// Some messages of a client may be read.
    Read(ClientId),
    /// A worker has brought a message.
    Arrived(ClientId),
    /// Some messages to a client may be sent.
    Write(ClientId),
    /// A process ended.
    Ended(FdToken),
    /// The state waits for this.
    Answer(Box<Input>),
    /// Descriptors are to be closed.
    Sweep,
    /// Connections that have ended are looked at.
    Look,
}

impl Task {
    /// Returns the kind of task and its connection, for the watchdog.
    pub fn place(&self) -> (Phase, u64) {
        match self {
            Task::Read(c) => (Phase::Reading, c.0),
            Task::Arrived(c) => (Phase::Carried, c.0),
            Task::Write(c) => (Phase::Writing, c.0),
            Task::Ended(_) => (Phase::Ended, 0),
            Task::Answer(_) => (Phase::Answer, 0),
            Task::Sweep => (Phase::Closing, 0),
            Task::Look => (Phase::Looking, 0),
        }
    }
}

#[derive(Debug)]
pub(super) struct Party {
    pub epoll: Epoll,
    pub tasks: VecDeque<Task>,
    /// The party is in the queue for turns.
    pub queued: bool,
    /// The party has no turn for the moment, because the last one took long.
    pub rests: bool,
    /// Connections and processes that are watched.
    pub members: usize,
    /// Connections whose next message waits for a worker.
    pub carry: VecDeque<ClientId>,
    /// Messages that workers have brought and that were not looked at yet.
    pub arrived: usize,
    /// Descriptors to be closed: here, and by a worker.
    pub small: VecDeque<Discarded>,
    pub foreign: VecDeque<Discarded>,
    pub sweeping: bool,
    /// Connections with descriptors in transit, and ended ones.
    pub flying: VecDeque<ClientId>,
    pub lingering: VecDeque<(Flight, Discarded)>,
}

impl Party {
    pub fn is_over(&self) -> bool {
        let nothing = self.tasks.is_empty() && self.carry.is_empty() && self.lingering.is_empty();
        self.members == 0 && nothing && self.small.is_empty() && self.foreign.is_empty()
    }
}

/// Returns the user in a party's token.
pub(super) fn of(token: u64) -> u32 {
    u32::try_from(token).unwrap_or(u32::MAX)
}
