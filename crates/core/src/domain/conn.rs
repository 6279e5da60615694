//! The manager's socket: sending requests, taking events, remembering replies.

use super::cut_off::Attempts;
use super::greeting::Greeting;
use crate::error::{self, Error, Kind};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranship_proto::{
    ChannelId, DomainId, Event, ExportId, MAX_MESSAGE_BYTES, PoolId, Req, Request, StatRecord,
};
use tranship_sys::{errno, socket};

/// An event with its descriptors.
pub(crate) type Parcel = (Event, Vec<OwnedFd>);

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

/// Requests that may wait for room in the socket. Their number has its bound in what there is to be asked or told about;
/// this one is for a manager that hangs for days.
const MAX_OUTGOING: usize = 1 << 16;

/// The connection. One thread at a time works with it, and never waits while it does: a manager that hangs keeps only those
/// waiting who want something of it.
pub(crate) struct Conn {
    /// `None` while the manager is away.
    fd: Option<OwnedFd>,
    /// What the socket had no room for yet, oldest first.
    outgoing: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Of a manager that has not answered yet.
    pub(super) greeting: Option<Greeting>,
    /// Somebody waited in vain as long as one may for what can be done without, and nothing has come since.
    pub(super) stalled: bool,
    /// The present manager refused something that we claimed: it has not all that there is of us.
    pub(super) disowned: bool,
    /// Nothing can be sent any more; what the manager had sent before is still to be taken.
    broken: bool,
    /// The kernel has reported the break.
    reset: bool,
    /// The last one was read to its end.
    ended: bool,
    /// Counts connections that ended: answers to requests from before will not come.
    era: u64,
    /// Which manager it is or was.
    pub(crate) instance: u64,
    /// When we came back to it, if we were there before.
    pub(crate) back_since: Option<std::time::Instant>,
    claims: HashMap<Req, Claim>,
    next_req: u32,
    replies: HashMap<Req, Parcel>,
    /// Replies that nobody waits for any more are dropped when they come.
    forgotten: Vec<Req>,
    records: Vec<(Req, StatRecord)>,
    /// Events of channels that are open for the manager but not yet on our register of links.
    early: HashMap<ChannelId, Vec<Parcel>>,
    pub(crate) last_attempt: Option<std::time::Instant>,
    /// To reach it again.
    pub(super) attempts: Attempts,
    buffer: Vec<u8>,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd, instance: u64) -> Conn {
        Conn {
            fd: Some(fd),
            outgoing: VecDeque::new(),
            greeting: None,
            stalled: false,
            disowned: false,
            broken: false,
            reset: false,
            ended: false,
            era: 0,
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
            buffer: vec![0; MAX_MESSAGE_BYTES],
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.fd.is_some()
    }

    /// Whether it can be told something, as far as we know.
    pub(crate) fn hears(&self) -> bool {
        self.is_up() && !self.broken
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// The connection is over, with all that was asked over it.
    pub(crate) fn down(&mut self) {
        if self.fd.take().is_some() {
            self.era += 1;
        }
        (self.broken, self.reset) = (false, false);
        self.outgoing.clear();
        self.greeting = None;
        self.replies.clear();
        self.forgotten.clear();
        self.early.clear();
        self.records.clear();
        self.claims.clear();
    }

    /// Whether the last connection was read to its end, so that nothing that a manager said by it can still come. True
    /// once per connection.
    pub(crate) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    pub(crate) fn into_fd(self) -> Option<OwnedFd> {
        self.fd
    }

    pub(crate) fn up(&mut self, fd: OwnedFd, instance: u64) {
        self.fd = Some(fd);
        self.back_since = Some(std::time::Instant::now());
        self.ended = false;
        self.attempts = Attempts::default();
        (self.broken, self.reset, self.stalled) = (false, false, false);
        self.disowned = false;
        self.instance = instance;
    }

    /// Nothing more is to come or to go; what has come is still to be taken.
    pub(crate) fn hang_up(&mut self) {
        if let Some(fd) = &self.fd {
            // Fails if the other end did the same.
            let _ = socket::shutdown(fd);
        }
        self.broken = true;
        self.outgoing.clear();
    }

    /// The same, and no other manager is looked for before that time.
    pub(crate) fn hang_up_until(&mut self, then: std::time::Instant) {
        self.hang_up();
        self.last_attempt = Some(then);
    }

    pub(crate) fn next_req(&mut self) -> Req {
        self.next_req = self.next_req.wrapping_add(1).max(1);
        Req(self.next_req)
    }

    /// Sends one request, or keeps it until there is room. A broken connection is "away", not an error of the caller.
    pub(crate) fn send(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        debug_assert_eq!(fds.len(), request.fds());
        let Some(fd) = self.fd.as_ref().filter(|_| !self.broken) else {
            return Err(Kind::ManagerAway.into());
        };
        let bytes = tranship_proto::encode(request);
        if self.outgoing.is_empty() {
            match socket::sendmsg(fd.as_fd(), &bytes, fds, true) {
                Ok(()) => return Ok(()),
                Err(error) if has_no_room(&error) => {}
                Err(error) => return Err(self.broke(&error)),
            }
        }
        let fds = fds.iter().map(BorrowedFd::try_clone_to_owned);
        match fds.collect::<io::Result<Vec<_>>>() {
            Ok(fds) if self.outgoing.len() < MAX_OUTGOING => {
                self.outgoing.push_back((bytes, fds));
                Ok(())
            }
            // Left out it may not be: the next connection begins with all that there is.
            _ => {
                tracing::warn!("no room to keep what the manager does not read");
                self.hang_up();
                Err(Kind::ManagerAway.into())
            }
        }
    }

    /// Sends what can be left out, if that goes without waiting. A connection that is broken is found out by others.
    pub(crate) fn offer(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) {
        debug_assert_eq!(fds.len(), request.fds());
        if let Some(fd) = self
            .fd
            .as_ref()
            .filter(|_| !self.broken && self.outgoing.is_empty())
        {
            let _ = socket::sendmsg(fd.as_fd(), &tranship_proto::encode(request), fds, true);
        }
    }

    /// Sends what waits for room, as far as there is some.
    pub(crate) fn flush(&mut self) {
        while let (Some(fd), Some((bytes, fds))) = (&self.fd, self.outgoing.front()) {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match socket::sendmsg(fd.as_fd(), bytes, &fds, true) {
                Ok(()) => drop(self.outgoing.pop_front()),
                Err(error) if has_no_room(&error) => return,
                Err(error) => drop(self.broke(&error)),
            }
        }
    }

    /// The same, waiting for room at most that long.
    pub(crate) fn flush_for(&mut self, limit: std::time::Duration) {
        let deadline = std::time::Instant::now() + limit;
        self.flush();
        while let (Some(fd), false) = (&self.fd, self.outgoing.is_empty()) {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || tranship_sys::epoll::wait_writable(fd, Some(left)).is_err() {
                return;
            }
            self.flush();
        }
    }

    fn broke(&mut self, error: &io::Error) -> Error {
        tracing::debug!(%error, "the manager's socket broke");
        // What it said before it went is still to be heard: a roster that lacks it would be wrong.
        self.broken = true;
        self.outgoing.clear();
        Kind::ManagerAway.into()
    }

    /// The next event, without waiting. `Err(ManagerAway)` when the connection ended; `Err(System)` when this process has no
    /// room for its descriptors: it comes when there is.
    pub(crate) fn receive(&mut self) -> Result<Option<Parcel>, Error> {
        let Some(fd) = &self.fd else {
            return Err(Kind::ManagerAway.into());
        };
        // Whole or not at all: who lost one part of the roster would have to forget the rest.
        let received = match socket::recvmsg_whole(fd.as_fd(), &mut self.buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(None),
            // Said once, when it died with requests of ours unread; what it had sent comes after.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset && !self.reset => {
                (self.broken, self.reset) = (true, true);
                return self.receive();
            }
            Err(source) if source.raw_os_error() == Some(errno::NO_DESCRIPTORS) => {
                let call = "recvmsg of the manager's descriptors";
                return Err(Error::system(call)(source));
            }
            Err(_) => {
                self.down();
                return Err(Kind::ManagerAway.into());
            }
        };
        self.stalled = false;
        if received.bytes == 0 {
            self.down();
            self.ended = true;
            return Err(Kind::ManagerAway.into());
        }
        let complaint = if received.truncated {
            Some("a truncated message".to_string())
        } else {
            match tranship_proto::decode::<Event>(&self.buffer[..received.bytes]) {
                Ok(event) if event.fds() == received.fds.len() => {
                    return Ok(Some((event, received.fds)));
                }
                Ok(event) => Some(format!(
                    "{} descriptors with a message that carries {}",
                    received.fds.len(),
                    event.fds()
                )),
                Err(error) => Some(error.to_string()),
            }
        };
        self.down();
        Err(error::protocol(complaint.unwrap_or_default()))
    }

    /// Whether a manager was found that has not answered yet, and may soon.
    pub(crate) fn is_greeting(&self) -> bool {
        self.greeting.is_some() && !self.stalled
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

/// Later there may be: the other end has not read yet what is in the socket, or on its way to others (unix(7): ETOOMANYREFS).
fn has_no_room(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(errno::TOO_MANY_IN_FLIGHT)
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
