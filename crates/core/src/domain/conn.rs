//! The connection with the manager: requests under way, replies that somebody waits for, what is to be claimed.

use super::cut_off::Attempts;
use super::greeting::Greeting;
use super::wire::{Parcel, Wire};
use crate::error::Error;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, DomainId, Event, ExportId, PoolId, Req, Request, StatRecord};

/// What a request at a resume was about: its answer is dealt with as it comes, nobody waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    Pool(PoolId),
    /// By its number in this process.
    Heap(u32),
    Chunk(PoolId, u32),
    Roster(PoolId),
    Reader(PoolId),
    Right(PoolId, DomainId),
    Channel(ChannelId),
    Assign(ChannelId, PoolId),
    Export(ExportId),
    Done,
}

/// The connection. One thread at a time works with it, and never waits while it does: a manager that hangs keeps only those
/// waiting who want something of it.
pub(crate) struct Conn {
    wire: Wire,
    /// Of a manager that has not answered yet.
    pub(super) greeting: Option<Greeting>,
    /// The present manager refused something that we claimed: it has not all that there is of us.
    pub(super) disowned: bool,
    /// Which manager it is or was.
    pub(crate) instance: u64,
    /// When we came back to it, if we were there before.
    pub(crate) back_since: Option<Instant>,
    claims: HashMap<Req, Claim>,
    next_req: u32,
    replies: HashMap<Req, Parcel>,
    /// Replies that nobody waits for any more are dropped when they come.
    forgotten: Vec<Req>,
    records: Vec<(Req, StatRecord)>,
    /// Events of channels that are open for the manager but not yet on our register of links.
    early: HashMap<ChannelId, Vec<Parcel>>,
    pub(crate) last_attempt: Option<Instant>,
    /// To reach it again.
    pub(super) attempts: Attempts,
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

    pub(crate) fn is_up(&self) -> bool {
        self.wire.is_up()
    }

    /// Whether it can be told something, as far as we know.
    pub(crate) fn hears(&self) -> bool {
        self.wire.hears()
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.wire.fd()
    }

    /// The connection is over, with all that was asked over it.
    pub(crate) fn down(&mut self) {
        self.wire.down();
        self.greeting = None;
        self.replies.clear();
        self.forgotten.clear();
        self.early.clear();
        self.records.clear();
        self.claims.clear();
    }

    /// As [`Wire::take_ended`].
    pub(crate) fn take_ended(&mut self) -> bool {
        self.wire.take_ended()
    }

    /// Counts connections that ended: answers to requests from before will not come.
    pub(crate) fn era(&self) -> u64 {
        self.wire.era()
    }

    pub(crate) fn up(&mut self, fd: OwnedFd, instance: u64) {
        self.wire.up(fd);
        self.back_since = Some(Instant::now());
        self.attempts = Attempts::default();
        self.disowned = false;
        self.instance = instance;
    }

    /// Nothing more is to come or to go; what has come is still to be taken.
    pub(crate) fn hang_up(&mut self) {
        self.wire.hang_up();
    }

    /// The same, and no other manager is looked for before that time.
    pub(crate) fn hang_up_until(&mut self, then: Instant) {
        self.hang_up();
        self.last_attempt = Some(then);
    }

    /// Sends one request, or keeps it until there is room. A broken connection is "away", not an error of the caller.
    pub(crate) fn send(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.wire.send(request, fds)
    }

    /// Sends what can be left out, if that goes without waiting.
    pub(crate) fn offer(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) {
        self.wire.offer(request, fds);
    }

    /// Sends what waits for room, as far as there is some.
    pub(crate) fn flush(&mut self) {
        self.wire.flush();
    }

    /// The same, waiting for room at most that long.
    pub(crate) fn flush_for(&mut self, limit: Duration) {
        self.wire.flush_for(limit);
    }

    /// The next event, without waiting, as [`Wire::receive`]. With the connection goes all that was asked over it.
    pub(crate) fn receive(&mut self) -> Result<Option<Parcel>, Error> {
        let was_up = self.wire.is_up();
        let received = self.wire.receive();
        if was_up && !self.wire.is_up() {
            self.down();
        }
        received
    }

    /// Somebody waited in vain as long as one may for what can be done without, and nothing has come since.
    pub(super) fn is_stalled(&self) -> bool {
        self.wire.stalled
    }

    pub(super) fn set_stalled(&mut self) {
        self.wire.stalled = true;
    }

    pub(crate) fn next_req(&mut self) -> Req {
        self.next_req = self.next_req.wrapping_add(1).max(1);
        Req(self.next_req)
    }

    /// Whether a manager was found that has not answered yet, and may soon.
    pub(crate) fn is_greeting(&self) -> bool {
        self.greeting.is_some() && !self.is_stalled()
    }

    /// Keeps a reply for the thread that waits for it. True if nobody does any more; the reply is
    /// then to be taken at once by the caller.
    pub(crate) fn keep_reply(&mut self, req: Req, parcel: Parcel) -> bool {
        let forgotten = self.forgotten.iter().position(|f| *f == req);
        if let Some(at) = forgotten {
            self.forgotten.swap_remove(at);
        }
        if let (None, Event::Opened { channel, .. }) = (forgotten, &parcel.0) {
            self.early.insert(*channel, Vec::new());
        }
        self.replies.insert(req, parcel);
        forgotten.is_some()
    }

    pub(crate) fn expect_claim(&mut self, req: Req, claim: Claim) {
        self.claims.insert(req, claim);
    }

    pub(super) fn unanswered_claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    pub(crate) fn take_claim(&mut self, req: Req) -> Option<Claim> {
        self.claims.remove(&req)
    }

    /// The peer may use a channel as soon as the manager has answered, while the thread that connects still makes
    /// its link of the answer: what concerns such a channel is kept for [`take_early`](Conn::take_early).
    /// Gives back what does not.
    pub(crate) fn keep_early(&mut self, parcel: Parcel) -> Option<Parcel> {
        let (Event::PoolOffer { channel, .. }
        | Event::PoolOpen { channel, .. }
        | Event::PeerGone { channel, .. }
        | Event::WakeFd { channel }) = parcel.0
        else {
            return Some(parcel);
        };
        match self.early.get_mut(&channel) {
            Some(early) => {
                early.push(parcel);
                None
            }
            None => Some(parcel),
        }
    }

    /// The manager counts us no more among a pool's readers, and so has taken back all offers of it: those that were kept, too.
    pub(crate) fn drop_early_offers(&mut self, pool: PoolId) {
        for kept in self.early.values_mut() {
            kept.retain(
                |(event, _)| !matches!(event, Event::PoolOffer { pool: of, .. } if *of == pool),
            );
        }
    }

    /// What came for a channel meanwhile. From here on nothing is kept.
    pub(crate) fn take_early(&mut self, channel: ChannelId) -> Vec<Parcel> {
        self.early.remove(&channel).unwrap_or_default()
    }

    pub(crate) fn keep_record(&mut self, req: Req, record: StatRecord) {
        if !self.forgotten.contains(&req) {
            self.records.push((req, record));
        }
    }

    pub(crate) fn take_records(&mut self, req: Req) -> Vec<StatRecord> {
        let (mine, others) = std::mem::take(&mut self.records)
            .into_iter()
            .partition(|(r, _)| *r == req);
        self.records = others;
        let mine: Vec<(Req, StatRecord)> = mine;
        mine.into_iter().map(|(_, record)| record).collect()
    }

    pub(crate) fn has_reply(&self, req: Req) -> bool {
        self.replies.contains_key(&req)
    }

    pub(crate) fn take_reply(&mut self, req: Req) -> Option<Parcel> {
        self.replies.remove(&req)
    }

    /// The caller waits no longer for this reply.
    pub(crate) fn forget(&mut self, req: Req) {
        if self.replies.remove(&req).is_none() {
            self.forgotten.push(req);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::Trust;

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
                max_bytes: 1 << 20,
                slots: 1024,
                chunk_bytes: 1 << 16,
                trust: Trust::Producer,
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
