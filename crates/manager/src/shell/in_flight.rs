//! Descriptors on their way: sent to a client, and not taken by it yet.
//!
//! The kernel counts those of all processes of the manager's user together, and when there are as many as one process may open it
//! lets no more go (`ETOOMANYREFS`): then nobody is sent any. So each client's user may have some under way, of which the others
//! leave it the more the fewer they have themselves. A connection that has ended counts until its client has taken what was
//! sent, or has closed its end.

use super::keep::Rubbish;
use super::{Shell, party::Task};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::time::Duration;
use tranship_sys::socket;

use crate::state::ClientId;

/// With what the kernel charges a message to its sender at least, until it is taken: what it needs to keep track of it.
const LEAST_CHARGE: usize = 512;
/// Connections that are looked at in one go.
const LOOKS: usize = 32;
/// How often those that have ended are.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Of one connection.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Of each message that may not be taken yet, oldest first.
    messages: VecDeque<usize>,
    fds: usize,
    /// It is among its party's.
    listed: bool,
}

impl Flight {
    /// Forgets what is taken for certain; how many descriptors that were.
    fn look(&mut self, conn: impl AsFd) -> usize {
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
    fn may(&self, uid: u32, fds: usize) -> bool {
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

    fn add(&mut self, uid: u32, fds: usize) {
        if fds > 0 {
            *self.users.entry(uid).or_default() += fds;
            self.sum += fds;
        }
    }

    fn sub(&mut self, uid: u32, fds: usize) {
        self.sum -= fds;
        if let Some(its) = self.users.get_mut(&uid) {
            *its -= fds;
            if *its == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

impl Shell {
    /// Whether so many descriptors may go to one of a user's clients now.
    pub(super) fn may_fly(&mut self, uid: u32, fds: usize) -> bool {
        if fds == 0 || self.flights.may(uid, fds) {
            return true;
        }
        self.look_at_flights(uid);
        self.flights.may(uid, fds)
    }

    /// A message has gone out.
    pub(super) fn flies(&mut self, client: ClientId, fds: usize) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let flight = &mut conn.flight;
        // Before the first descriptor there is nothing to tell apart.
        if fds > 0 || flight.fds > 0 {
            flight.messages.push_back(fds);
            flight.fds += fds;
            self.flights.add(conn.uid, fds);
        }
        if flight.fds > 0
            && !std::mem::replace(&mut flight.listed, true)
            && let Some(party) = self.parties.get_mut(&conn.uid)
        {
            party.flying.push_back(client);
        }
    }

    /// Looks what one client has taken meanwhile.
    pub(super) fn look_at_flight(&mut self, client: ClientId) {
        if let Some(conn) = self.conns.get_mut(&client)
            && conn.flight.fds > 0
        {
            let taken = conn.flight.look(&conn.fd);
            self.flights.sub(conn.uid, taken);
        }
    }

    /// Looks what some of a user's clients have taken meanwhile.
    pub(super) fn look_at_flights(&mut self, uid: u32) {
        let Some(party) = self.parties.get_mut(&uid) else {
            return;
        };
        for _ in 0..party.flying.len().min(LOOKS) {
            let Some(client) = party.flying.pop_front() else {
                break;
            };
            let Some(conn) = self.conns.get_mut(&client) else {
                continue;
            };
            self.flights.sub(uid, conn.flight.look(&conn.fd));
            conn.flight.listed = conn.flight.fds > 0;
            if conn.flight.listed {
                party.flying.push_back(client);
            }
        }
        for _ in 0..party.lingering.len().min(LOOKS) {
            let Some((mut flight, rubbish)) = party.lingering.pop_front() else {
                break;
            };
            self.flights.sub(uid, flight.look(&rubbish));
            if flight.fds > 0 {
                party.lingering.push_back((flight, rubbish));
            } else {
                self.trash.throw(uid, rubbish);
            }
        }
        if party.lingering.is_empty() {
            self.lingering.remove(&uid);
        }
    }

    /// A connection has ended. It is closed when nothing of what was sent to it can be on its way any more.
    pub(super) fn linger(&mut self, uid: u32, mut flight: Flight, rubbish: Rubbish) {
        let taken = flight.look(&rubbish);
        self.flights.sub(uid, taken);
        match self.parties.get_mut(&uid) {
            Some(party) if flight.fds > 0 => {
                party.lingering.push_back((flight, rubbish));
                self.lingering.insert(uid);
            }
            _ => {
                self.flights.sub(uid, flight.fds);
                self.throw(uid, rubbish);
            }
        }
    }

    /// It is time to look at those that have ended.
    pub(super) fn look_at_lingering(&mut self) {
        for uid in self.lingering.iter().copied().collect::<Vec<_>>() {
            self.enqueue(uid, Task::Look);
        }
    }
}
