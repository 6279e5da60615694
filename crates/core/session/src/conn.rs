//! The connection with the manager: requests under way, replies that threads wait for, pending claims.

use super::cut_off::Attempts;
use super::greeting::Greeting;
use super::wire::{EventWithFds, Wire};
use crate::error::Error;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::time::Instant;
use tranship_proto::{ChannelId, DomainId, Event, ExportId, PoolId, Req, StatRecord};

/// The subject of a request at a resume. The answer is handled when it comes, and no thread waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    Pool(PoolId),
    /// The heap, by its number in this process.
    Heap(u32),
    Chunk(PoolId, u32),
    ReaderSet(PoolId),
    Reader(PoolId),
    Right(PoolId, DomainId),
    Channel(ChannelId),
    Assign(ChannelId, PoolId),
    Export(ExportId),
    Done,
}

/// The connection. One thread at a time works with it, and never waits meanwhile: a manager that hangs delays only
/// threads that want something from it.
pub struct Conn {
    wire: Wire,
    /// The greeting of a manager that has not answered yet.
    pub(super) greeting: Option<Greeting>,
    /// The present manager refused a claim of this domain, and so does not have all of its objects.
    pub(super) disowned: bool,
    /// The random number of the present or the last manager.
    pub instance: u64,
    /// When this domain came back to it, if it was there before.
    pub back_since: Option<Instant>,
    claims: HashMap<Req, Claim>,
    next_req: u32,
    replies: HashMap<Req, EventWithFds>,
    /// Replies that are no longer waited for are dropped when they come.
    forgotten: Vec<Req>,
    records: Vec<(Req, StatRecord)>,
    /// Events of channels that are open for the manager but not yet on this domain's register of links.
    early: HashMap<ChannelId, Vec<EventWithFds>>,
    pub last_attempt: Option<Instant>,
    /// The attempts to reach a manager again.
    pub(super) attempts: Attempts,
}

/// Operations on the socket alone.
impl Deref for Conn {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

impl Conn {
    pub(super) fn new(fd: OwnedFd, instance: u64) -> Conn {
        Conn {
            wire: Wire::new(fd),
            greeting: None,
            disowned: false,
            instance,
            back_since: None,
            claims: HashMap::new(),
            next_req: 1,
            replies: HashMap::new(),
            forgotten: Vec::new(),
            records: Vec::new(),
            early: HashMap::new(),
            last_attempt: None,
            attempts: Attempts::default(),
        }
    }

    /// Ends the connection, with all requests sent over it.
    pub fn down(&mut self) {
        self.wire.down();
        self.greeting = None;
        self.replies.clear();
        self.forgotten.clear();
        self.early.clear();
        self.records.clear();
        self.claims.clear();
    }

    pub fn up(&mut self, fd: OwnedFd, instance: u64) {
        self.wire.up(fd);
        self.back_since = Some(Instant::now());
        self.attempts = Attempts::default();
        self.disowned = false;
        self.instance = instance;
    }

    /// Hangs up, and looks for no other manager before that time.
    pub fn hang_up_until(&mut self, then: Instant) {
        self.hang_up();
        self.last_attempt = Some(then);
    }

    /// Takes the next event, without waiting, like [`Wire::receive`]. All requests sent over a connection end with it.
    pub fn receive(&mut self) -> Result<Option<EventWithFds>, Error> {
        let was_up = self.wire.is_up();
        let received = self.wire.receive();
        if was_up && !self.wire.is_up() {
            self.down();
        }
        received
    }

    /// Says whether a thread has waited in vain for a request that can be left out, and nothing has come since.
    pub(super) fn is_stalled(&self) -> bool {
        self.wire.stalled
    }

    pub(super) fn set_stalled(&mut self) {
        self.wire.stalled = true;
    }

    pub fn next_req(&mut self) -> Req {
        self.next_req = self.next_req.wrapping_add(1).max(1);
        Req(self.next_req)
    }

    /// Says whether a manager was found that has not answered yet, and may soon.
    pub fn is_greeting(&self) -> bool {
        self.greeting.is_some() && !self.is_stalled()
    }

    /// Keeps a reply for the thread that waits for it. Returns true if no thread does any more; the caller must then
    /// take the reply at once.
    pub fn keep_reply(&mut self, req: Req, came: EventWithFds) -> bool {
        let forgotten = self.forgotten.iter().position(|f| *f == req);
        if let Some(at) = forgotten {
            self.forgotten.swap_remove(at);
        }
        if let (None, Event::Opened { channel, .. }) = (forgotten, &came.0) {
            self.early.insert(*channel, Vec::new());
        }
        self.replies.insert(req, came);
        forgotten.is_some()
    }

    pub fn expect_claim(&mut self, req: Req, claim: Claim) {
        self.claims.insert(req, claim);
    }

    pub(super) fn unanswered_claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    pub fn take_claim(&mut self, req: Req) -> Option<Claim> {
        self.claims.remove(&req)
    }

    /// Keeps events of a channel that is not on the register yet, for [`take_early`](Conn::take_early), and returns all
    /// others. The peer may use a channel as soon as the manager has answered, while the connecting thread still makes
    /// its link of the answer.
    pub fn keep_early(&mut self, came: EventWithFds) -> Option<EventWithFds> {
        let (Event::PoolOffer { channel, .. }
        | Event::PoolOpen { channel, .. }
        | Event::PeerGone { channel, .. }
        | Event::WakeFd { channel }) = came.0
        else {
            return Some(came);
        };
        match self.early.get_mut(&channel) {
            Some(early) => {
                early.push(came);
                None
            }
            None => Some(came),
        }
    }

    /// Forgets early offers of a pool: the manager no longer counts this domain among the pool's readers, and so has
    /// taken back all offers of it.
    pub fn drop_early_offers(&mut self, pool: PoolId) {
        for kept in self.early.values_mut() {
            kept.retain(
                |(event, _)| !matches!(event, Event::PoolOffer { pool: of, .. } if *of == pool),
            );
        }
    }

    /// Returns the events that came for a channel meanwhile. From here on none is kept.
    pub fn take_early(&mut self, channel: ChannelId) -> Vec<EventWithFds> {
        self.early.remove(&channel).unwrap_or_default()
    }

    pub fn keep_record(&mut self, req: Req, record: StatRecord) {
        if !self.forgotten.contains(&req) {
            self.records.push((req, record));
        }
    }

    pub fn take_records(&mut self, req: Req) -> Vec<StatRecord> {
        let (mine, others) = std::mem::take(&mut self.records)
            .into_iter()
            .partition(|(r, _)| *r == req);
        self.records = others;
        let mine: Vec<(Req, StatRecord)> = mine;
        mine.into_iter().map(|(_, record)| record).collect()
    }

    pub fn has_reply(&self, req: Req) -> bool {
        self.replies.contains_key(&req)
    }

    pub fn take_reply(&mut self, req: Req) -> Option<EventWithFds> {
        self.replies.remove(&req)
    }

    /// Ends the caller's wait for this reply.
    pub fn forget(&mut self, req: Req) {
        if self.replies.remove(&req).is_none() {
            self.forgotten.push(req);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{PoolShape, Trust};

    #[test]
    fn offers_that_were_taken_back_are_not_answered_later() {
        let null = std::fs::File::open("/dev/null").expect("a file");
        let mut conn = Conn::new(null.into(), 1);
        let channel = ChannelId(1);
        conn.early.insert(channel, Vec::new());
        for pool in [PoolId(1), PoolId(2)] {
            let offer = Event::PoolOffer {
                channel,
                pool,
                writer: DomainId(3),
                shape: PoolShape {
                    max_bytes: 1 << 20,
                    slots: 1024,
                    chunk_bytes: 1 << 16,
                    trust: Trust::Producer,
                },
                known: false,
            };
            assert!(conn.keep_early((offer, Vec::new())).is_none());
        }
        conn.drop_early_offers(PoolId(1));
        let kept: Vec<Event> = conn.take_early(channel).into_iter().map(|p| p.0).collect();
        assert!(
            matches!(
                kept[..],
                [Event::PoolOffer {
                    pool: PoolId(2),
                    ..
                }]
            ),
            "{kept:?}"
        );
    }
}
