//! A domain in the library's form: its pools with their reader sets, the pools that it reads, its ends of links.

use super::*;

/// A process with one domain.
#[derive(Default)]
pub struct Proc {
    pub id: u64,
    pub client: Option<ClientId>,
    pub domain: Option<DomainId>,
    pub control_page: Option<FdToken>,
    pub greeted: bool,
    /// Messages queued by the manager; in the domain's socket; in the manager's socket.
    pub flight: VecDeque<(Event, Vec<Inode>)>,
    pub socket: VecDeque<(Event, Vec<Inode>, Option<FdToken>)>,
    pub outbox: VecDeque<(Request, Vec<Fd>)>,
    pub claims: BTreeMap<Req, Claim>,
    pub connecting: Option<(Req, Inode)>,
    pub pools: BTreeMap<PoolId, Own>,
    pub creating: BTreeMap<Req, Inode>,
    pub foreign: BTreeMap<PoolId, Foreign>,
    pub links: BTreeMap<ChannelId, Link>,
    pub exported: bool,
    /// It does not search for a new manager before.
    pub late: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Pool(PoolId),
    Channel(ChannelId),
    Other,
}

/// An own pool.
#[derive(Default)]
pub struct Own {
    pub table: Inode,
    /// The position in the present control page; `None`: no collection by it.
    pub entry: Option<u32>,
    /// No manager can add a reader to the reader set: the last connection was read to its end, or the manager does not
    /// know the pool. The reader set is then complete, whatever a control page says.
    pub alone: bool,
    pub epoch: u64,
    pub queues: BTreeMap<ChannelId, QueueOf>,
    pub readers: BTreeMap<DomainId, ReaderOf>,
    pub chunks: BTreeMap<u32, (u32, Inode)>,
    pub granted: u32,
    pub serial: u32,
}

pub struct QueueOf {
    pub sink: DomainId,
    pub process: u64,
    pub rcvd: Inode,
    pub named: bool,
}

pub struct ReaderOf {
    pub refs: Inode,
    pub process: u64,
    pub named: bool,
}

/// A pool of another's.
pub struct Foreign {
    pub table: Inode,
    pub refs: Inode,
    pub mapped: BTreeSet<(u32, u32)>,
    pub spoken_of: bool,
    pub given_up: bool,
    /// Chunks whose buffers are held.
    pub held: BTreeSet<(u32, u32)>,
}

/// One end of a link.
pub struct Link {
    pub role: Role,
    pub peer: DomainId,
    pub peer_process: u64,
    pub own: Inode,
    pub theirs: Inode,
    pub assigned: BTreeMap<PoolId, Assign>,
    /// Source: the manager has answered `Accept`.
    pub made: Option<Req>,
    pub watched: bool,
    pub leaving: bool,
    pub gone: bool,
}

pub struct Assign {
    pub counts: Inode,
    /// For a sink: its own references, in which this end counts; 0 for an own pool.
    pub refs: Inode,
    pub open: bool,
    /// Source: under way.
    pub asked: Option<Req>,
}

impl Own {
    /// Records that from here on only this domain can see that readers die.
    pub fn stands_alone(&mut self) {
        self.alone = true;
        self.queues.values_mut().for_each(|q| q.named = false);
        self.readers.values_mut().for_each(|r| r.named = false);
    }
}

impl Proc {
    pub fn is_up(&self) -> bool {
        self.client.is_some() && self.greeted
    }

    /// Ends a connection: its answers will not come.
    pub fn down(&mut self, closed: &mut BTreeSet<Inode>) {
        (self.client, self.greeted, self.exported) = (None, false, false);
        self.outbox.clear();
        self.claims.clear();
        self.creating.clear();
        // The process with the other half sees that this end is gone.
        closed.extend(self.connecting.take().map(|(_, half)| half));
        self.links.retain(|_, link| {
            link.watched = false;
            for a in link.assigned.values_mut() {
                a.asked = None;
            }
            if link.made.is_some() {
                closed.insert(link.own);
            }
            link.made.is_none()
        });
        self.pools.values_mut().for_each(|p| p.granted = 0);
    }
}
