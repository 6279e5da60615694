//! Descriptors in transit: sent to a client, and not taken by it yet.
//!
//! The kernel counts the descriptors in transit of all processes of the manager's user together. At the number that one
//! process may open, it refuses to send any more (`ETOOMANYREFS`), and then no client is sent any. Each client's user
//! may therefore have only some in transit. The fewer the other users have, the more they leave to it. An ended
//! connection counts until its client has taken its messages, or has closed its end.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use tranship_sys::socket;

/// The least number of bytes that the kernel charges a sender for a message until it is taken: the kernel's own record
/// of it.
const LEAST_CHARGE: usize = 512;

/// The descriptors in transit of one connection.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The descriptors of each message that may not be taken yet, oldest first.
    pub messages: VecDeque<usize>,
    pub fds: usize,
    /// The connection is in its party's list.
    pub listed: bool,
}

impl Flight {
    /// Forgets descriptors that were certainly taken; returns their number.
    pub fn look(&mut self, conn: impl AsFd) -> usize {
        // No process can take anything any more.
        let unread = socket::unread(conn).unwrap_or(0);
        let most = unread.div_ceil(LEAST_CHARGE);
        let taken = self.messages.len().saturating_sub(most);
        let taken = self.messages.drain(..taken).sum();
        self.fds -= taken;
        if self.fds == 0 {
            self.messages.clear();
        }
        taken
    }
}

/// The descriptors in transit of all connections, by user.
#[derive(Debug)]
pub(super) struct Flights {
    users: BTreeMap<u32, usize>,
    sum: usize,
    most: usize,
    owner: u32,
}

impl Flights {
    pub fn new(most: usize, owner: u32) -> Flights {
        Flights {
            users: BTreeMap::new(),
            sum: 0,
            most,
            owner,
        }
    }

    /// Says whether `fds` more descriptors may go to a user. As with every other limit (`state/accounts`), the share is
    /// three quarters of the rest that others leave.
    pub fn may(&self, uid: u32, fds: usize) -> bool {
        let its = self.users.get(&uid).copied().unwrap_or(0);
        let left = self.most.saturating_sub(self.sum - its);
        let share = if uid == self.owner {
            left
        } else {
            left / 4 * 3
        };
        // One message is always allowed: the user waits for it.
        its == 0 || its + fds <= share
    }

    pub fn add(&mut self, uid: u32, fds: usize) {
        if fds > 0 {
            *self.users.entry(uid).or_default() += fds;
            self.sum += fds;
        }
    }

    pub fn sub(&mut self, uid: u32, fds: usize) {
        self.sum -= fds;
        if let Some(its) = self.users.get_mut(&uid) {
            *its -= fds;
            if *its == 0 {
                self.users.remove(&uid);
            }
        }
    }
}
