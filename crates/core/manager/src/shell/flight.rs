//! Descriptors on their way: sent to a client, and not taken by it yet.
//!
//! The kernel counts those of all processes of the manager's user together, and when there are as many as one process may open it
//! lets no more go (`ETOOMANYREFS`): then nobody is sent any. So each client's user may have some under way, of which the others
//! leave it the more the fewer they have themselves. A connection that has ended counts until its client has taken what was
//! sent, or has closed its end.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use tranship_sys::socket;

/// With what the kernel charges a message to its sender at least, until it is taken: what it needs to keep track of it.
const LEAST_CHARGE: usize = 512;

/// Of one connection.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Of each message that may not be taken yet, oldest first.
    pub messages: VecDeque<usize>,
    pub fds: usize,
    /// It is among its party's.
    pub listed: bool,
}

impl Flight {
    /// Forgets what is taken for certain; how many descriptors that were.
    pub fn look(&mut self, conn: impl AsFd) -> usize {
        // Nobody takes anything any more.
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

/// Of all connections, by user.
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

    /// Whether so many more may go to a user. As with everything else (`state/accounts`): three quarters of what others leave.
    pub fn may(&self, uid: u32, fds: usize) -> bool {
        let its = self.users.get(&uid).copied().unwrap_or(0);
        let left = self.most.saturating_sub(self.sum - its);
        let share = if uid == self.owner {
            left
        } else {
            left / 4 * 3
        };
        // One message always may: it is what the user waits for.
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
