//! Connections, and the bounded queue of each: a client that does not read harms only itself.

use crate::state::model::StatRun;
use crate::state::refuse::refusal;
use crate::state::types::{Action, ChunkKey, ClientId, FdToken, InFlight, Then};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tranship_proto::{DomainId, Event, Limited, PoolId, Refusal, RefusalCode};

/// The time in which a connection must say `Hello`.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Silent connections that are given up at a time.
const LATE: usize = 64;

/// The number of queued messages at which a client is given up. A client with 512 messages to take is not read, and
/// messages caused by others are bounded. The limit therefore allows for the ends of as many objects as a client may
/// have.
const MAX_MESSAGES: usize = 1 << 17;
/// Long answers (`stat`, resync) and messages caused by others fill a queue only up to these numbers.
const EASY_MESSAGES: usize = 512;
const EASY_FDS: usize = 192;
/// Messages and descriptors that others may cause in one client's queue.
const CAUSED: usize = 256;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub domain: Option<DomainId>,
    since: Duration,
    /// Queued and not yet gone out, oldest first.
    flight: VecDeque<InFlight>,
    // Invariant: the sum over `flight`.
    flight_fds: usize,
    /// The messages and descriptors of the queue that other users have caused, by user.
    // Invariant: the sums over `flight`.
    caused: BTreeMap<u32, usize>,
    /// The oldest message could not go out at the last try.
    blocked: bool,
    pub stat: Option<StatRun>,
}

impl Client {
    /// Says whether long answers may continue.
    fn has_room(&self) -> bool {
        self.flight.len() < EASY_MESSAGES && self.flight_fds < EASY_FDS
    }

    /// Returns the chunks queued to the client.
    pub fn chunks(&self) -> impl Iterator<Item = (PoolId, ChunkKey)> + '_ {
        self.flight.iter().filter_map(|flight| match flight.then {
            Then::Chunk(pool, key) => Some((pool, key)),
            _ => None,
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: BTreeMap<ClientId, Client>,
    /// Clients that have not said `Hello`, oldest first.
    // Invariant: all without a domain.
    handshakes: BTreeSet<(Duration, ClientId)>,
    /// Clients that are expelled at the end of this step.
    expelled: Vec<(ClientId, Refusal)>,
}

impl Clients {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get(&self, client: ClientId) -> Option<&Client> {
        self.all.get(&client)
    }

    pub fn domain_of(&self, client: ClientId) -> Option<DomainId> {
        self.all.get(&client)?.domain
    }

    /// Returns the client's answer under way.
    pub fn stat(&mut self, client: ClientId) -> Option<&mut Option<StatRun>> {
        self.all.get_mut(&client).map(|c| &mut c.stat)
    }

    pub fn insert(&mut self, client: ClientId, (uid, gid, pid): (u32, u32, u32), now: Duration) {
        let new = Client {
            uid,
            gid,
            pid,
            domain: None,
            since: now,
            flight: VecDeque::new(),
            flight_fds: 0,
            caused: BTreeMap::new(),
            blocked: false,
            stat: None,
        };
        self.all.insert(client, new);
        self.handshakes.insert((now, client));
    }

    /// Records that a client has said `Hello`.
    pub fn welcome(&mut self, client: ClientId, domain: DomainId) {
        if let Some(c) = self.all.get_mut(&client) {
            c.domain = Some(domain);
            self.handshakes.remove(&(c.since, client));
        }
    }

    pub fn remove(&mut self, client: ClientId) -> Option<Client> {
        let c = self.all.remove(&client)?;
        self.handshakes.remove(&(c.since, client));
        Some(c)
    }

    /// Returns when the next silent connection is given up.
    pub fn hello_due(&self) -> Option<Duration> {
        let hello = self.handshakes.first();
        hello.map(|(since, _)| *since + HELLO_TIMEOUT)
    }

    /// Gives up connections that have been silent for too long.
    pub fn expel_late(&mut self, now: Duration) {
        let late = self.handshakes.iter().map_while(|(since, client)| {
            let late = *since + HELLO_TIMEOUT <= now;
            late.then_some(*client)
        });
        let why = refusal(RefusalCode::State, 0, HELLO_TIMEOUT.as_secs());
        let late = late.take(LATE).map(|client| (client, why));
        self.expelled.extend(late);
    }

    /// Expels a client at the end of this step.
    pub fn expel(&mut self, client: ClientId, why: Refusal) {
        self.expelled.push((client, why));
    }

    /// Takes the next client to be expelled that is still there.
    pub fn next_expelled(&mut self) -> Option<(ClientId, Refusal)> {
        while let Some((client, why)) = self.expelled.pop() {
            if self.all.contains_key(&client) {
                return Some((client, why));
            }
        }
        None
    }

    /// Queues an event, with the step that follows when it has gone out. `cause` is the user whose share of this
    /// client's queue pays for it.
    pub fn push(
        &mut self,
        client: ClientId,
        (event, fds): (Event, &[FdToken]),
        then: Then,
        cause: Option<u32>,
        out: &mut Vec<Action>,
    ) {
        debug_assert_eq!(event.fds(), fds.len(), "{event:?}");
        let Some(c) = self.all.get_mut(&client) else {
            return;
        };
        if c.flight.len() >= MAX_MESSAGES {
            let most = MAX_MESSAGES as u64;
            return self.expel(client, Limited::Messages.refuse(most + 1, most));
        }
        if let Some(uid) = cause {
            *c.caused.entry(uid).or_default() += 1 + fds.len();
        }
        c.flight.push_back(InFlight {
            fds: fds.len(),
            then,
            cause,
        });
        c.flight_fds += fds.len();
        out.push(Action::Send {
            client,
            event,
            fds: fds.to_vec(),
        });
    }

    /// Says whether long answers may continue.
    pub fn has_room(&self, client: ClientId) -> bool {
        self.all.get(&client).is_some_and(Client::has_room)
    }

    /// Says whether a user may cause one more message to a client. If not, the request fails for that user. It never
    /// fails for the client, nor for the next user that wants something of the client.
    pub fn has_room_for(&self, client: ClientId, uid: u32) -> bool {
        let (its, share) = self.share_in(client, uid);
        its < share
    }

    /// Says whether a client may be sent a chunk of a user's pool now: it must read, and half of the share is reserved
    /// for other messages.
    pub fn has_room_for_chunk(&self, client: ClientId, uid: u32) -> bool {
        let Some(c) = self.all.get(&client) else {
            return false;
        };
        let (its, share) = self.share_in(client, uid);
        !(c.blocked || its >= share / 2)
    }

    /// Returns a user's part of a client's queue, and its share.
    fn share_in(&self, client: ClientId, uid: u32) -> (usize, usize) {
        let Some(c) = self.all.get(&client).filter(|c| c.has_room()) else {
            return (0, 0);
        };
        let its = c.caused.get(&uid).copied().unwrap_or(0);
        let others = c.caused.values().sum::<usize>() - its;
        (its, (CAUSED.saturating_sub(others) / 4 * 3).max(2))
    }

    /// Removes the oldest queued message, which went out; returns the step that waits for that.
    pub fn sent(&mut self, client: ClientId) -> Then {
        let Some(c) = self.all.get_mut(&client) else {
            return Then::Nothing;
        };
        let Some(flight) = c.flight.pop_front() else {
            debug_assert!(false, "more sent than queued");
            return Then::Nothing;
        };
        c.flight_fds -= flight.fds;
        if let Some(uid) = flight.cause
            && let Some(n) = c.caused.get_mut(&uid)
        {
            *n = n.saturating_sub(1 + flight.fds);
            if *n == 0 {
                c.caused.remove(&uid);
            }
        }
        c.blocked = false;
        flight.then
    }

    /// Marks a client that does not read. Returns the chunks whose requests no longer wait for it.
    pub fn blocked(&mut self, client: ClientId) -> Vec<(PoolId, ChunkKey)> {
        let Some(c) = self.all.get_mut(&client) else {
            return Vec::new();
        };
        if std::mem::replace(&mut c.blocked, true) {
            return Vec::new();
        }
        c.chunks().collect()
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Client {
        pub fn has_all(&self) -> bool {
            self.flight.is_empty()
        }
    }

    impl Clients {
        /// Returns the clients that have not said `Hello` yet.
        pub fn in_handshake(&self) -> impl Iterator<Item = &Client> {
            self.all.values().filter(|c| c.domain.is_none())
        }

        /// Counts the queued messages anew, by the user that caused them.
        pub fn audit(&self) -> Result<(), String> {
            for (id, c) in &self.all {
                let mut caused: BTreeMap<u32, usize> = BTreeMap::new();
                for flight in &c.flight {
                    if let Some(uid) = flight.cause {
                        *caused.entry(uid).or_default() += 1 + flight.fds;
                    }
                }
                let fds: usize = c.flight.iter().map(|flight| flight.fds).sum();
                if caused != c.caused || fds != c.flight_fds {
                    let (ours, theirs) = (&c.caused, c.flight_fds);
                    return Err(format!(
                        "{id:?}: {ours:?}, {theirs} descriptors; counted: {caused:?}, {fds}"
                    ));
                }
            }
            let waiting = self.all.iter().filter(|(_, c)| c.domain.is_none());
            if self.handshakes != waiting.map(|(id, c)| (c.since, *id)).collect() {
                return Err(format!("handshakes: {:?}", self.handshakes));
            }
            Ok(())
        }
    }
}
