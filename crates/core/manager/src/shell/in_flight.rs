//! Counting descriptors in transit, see `flight`.

use super::flight::Flight;
use super::keep::Discarded;
use super::parts::Shell;
use super::party::Task;
use crate::state::ClientId;
use std::time::Duration;

/// Connections that are checked at a time.
const LOOKS: usize = 32;
/// Time between two checks of ended connections.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);

impl Shell {
    /// Says whether `fds` more descriptors may go to one of a user's clients now.
    pub(super) fn may_fly(&mut self, uid: u32, fds: usize) -> bool {
        if fds == 0 || self.flights.may(uid, fds) {
            return true;
        }
        self.look_at_flights(uid);
        self.flights.may(uid, fds)
    }

    /// Records that a message has gone out.
    pub(super) fn flies(&mut self, client: ClientId, fds: usize) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let flight = &mut conn.flight;
        // Before the first descriptor there is nothing to count.
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

    /// Updates the descriptors that one client has taken.
    pub(super) fn look_at_flight(&mut self, client: ClientId) {
        if let Some(conn) = self.conns.get_mut(&client)
            && conn.flight.fds > 0
        {
            let taken = conn.flight.look(&conn.fd);
            self.flights.sub(conn.uid, taken);
        }
    }

    /// Updates the descriptors that some of a user's clients have taken.
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
            let Some((mut flight, discarded)) = party.lingering.pop_front() else {
                break;
            };
            self.flights.sub(uid, flight.look(&discarded));
            if flight.fds > 0 {
                party.lingering.push_back((flight, discarded));
            } else {
                self.close_queue.throw(uid, discarded);
            }
        }
        if party.lingering.is_empty() {
            self.lingering.remove(&uid);
        }
    }

    /// Keeps an ended connection, and closes it when none of its descriptors can be in transit any more.
    pub(super) fn linger(&mut self, uid: u32, mut flight: Flight, discarded: Discarded) {
        let taken = flight.look(&discarded);
        self.flights.sub(uid, taken);
        match self.parties.get_mut(&uid) {
            Some(party) if flight.fds > 0 => {
                party.lingering.push_back((flight, discarded));
                self.lingering.insert(uid);
            }
            _ => {
                self.flights.sub(uid, flight.fds);
                self.throw(uid, discarded);
            }
        }
    }

    /// Updates the ended connections, when it is time.
    pub(super) fn look_at_lingering(&mut self) {
        for uid in self.lingering.iter().copied().collect::<Vec<_>>() {
            self.enqueue(uid, Task::Look);
        }
    }
}
