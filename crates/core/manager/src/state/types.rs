//! The state machine's inputs, outputs and opaque handles.

use serde::{Deserialize, Serialize};
use tranship_proto::{
    ChannelId, DomainId, Event, HogAction, PoolId, PoolStat, Pressure, Refusal, Req, Request,
    StatRecord,
};

/// A connection, as the shell numbers them. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// A descriptor in the shell's table. The state owns every token that it received, until its action `Close`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FdToken(pub u64);

/// The common header of a shared object (`docs/format.md`), if magic and version were right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// Kind of object.
    pub kind: u32,
    /// Slots, lines or entries.
    pub count: u32,
    /// Offset 24: a slot table's pool maximum.
    pub max_bytes: u64,
    /// Offset 32: a slot table's chunk size.
    pub chunk_bytes: u64,
}

/// The processes that can write memory, by its seals (`docs/format.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Sealed {
    /// The file is not memory, or has other seals.
    #[default]
    No,
    /// Only the maker can write.
    OneWriter,
    /// Every holder can write.
    Shared,
    /// Only the maker can write, until it seals the memory: no other process has it.
    Open,
    /// No process can write, ever again.
    Nobody,
}

impl Sealed {
    /// Says whether it is memory of any kind.
    pub fn is_memory(self) -> bool {
        self != Sealed::No
    }
}

/// The shell's findings about a descriptor that a client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The seals, if the file is on tmpfs, has exactly these seals and no execute bit, and has every block.
    pub sealed: Sealed,
    /// The size, bytes.
    pub size: u64,
    /// The header, if there is a valid one.
    pub header: Option<Header>,
    /// No client sent it: it is one of the two sockets that the shell made for the request, which two clients will
    /// share.
    pub made_here: bool,
    /// The inode number.
    pub inode: u64,
}

/// A received descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd {
    /// The handle.
    pub token: FdToken,
    /// The known facts.
    pub facts: Facts,
}

/// A writer's figures about its pool (`docs/format.md`, kind 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Time that callers waited, summed.
    pub blocked_ns: u64,
    /// Time spent collecting.
    pub collect_ns: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// Bytes in use.
    pub live_bytes: u64,
    /// The most at once, lately.
    pub peak_bytes: u64,
    /// Buffers in caches.
    pub cached: u64,
    /// Buffers in use.
    pub live_buffers: u64,
    /// Callers that wait.
    pub waiters: u64,
    /// Bytes that the writer's last look found dead.
    pub garbage_bytes: u64,
    /// Bytes in caches.
    pub cached_bytes: u64,
    /// Bytes of buffers' pages beyond the requested length.
    pub padding_bytes: u64,
    /// Collections.
    pub collections: u64,
}

impl Figures {
    /// Puts the figures into the pool's record.
    pub(crate) fn say(self, to: &mut PoolStat) {
        // Trust: a writer's word about memory that it was granted.
        let bound = |bytes: u64| bytes.min(to.granted_bytes);
        *to = PoolStat {
            live_bytes: bound(self.live_bytes),
            peak_bytes: bound(self.peak_bytes),
            garbage_bytes: bound(self.garbage_bytes),
            cached_bytes: bound(self.cached_bytes),
            padding_bytes: bound(self.padding_bytes),
            live_buffers: self.live_buffers,
            cached_buffers: self.cached,
            allocs: self.allocs,
            blocked_ns: self.blocked_ns,
            collect_ns: self.collect_ns,
            collections: self.collections,
            waiters: self.waiters,
            ..std::mem::take(to)
        };
    }
}

/// The place of facts that only owners know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// A writer's figures about its pool.
    Figures {
        /// The pool's table.
        table: FdToken,
    },
    /// A channel's cursors.
    Rings {
        /// The source's half.
        source: Option<FdToken>,
        /// The sink's half.
        sink: Option<FdToken>,
    },
}

/// A record of the state, and where the facts are that only owners know.
pub(crate) type Surveyed = (StatRecord, Option<Look>);

/// A slot that a reader's counter says it holds, as the pool's table has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldSlot {
    /// The descriptor.
    pub slot: u32,
    /// The slot's generation.
    pub generation: u32,
    /// The buffer's length, bytes.
    pub bytes: u64,
    /// Whether the writer says that it moved the buffer.
    pub moved: bool,
}

/// A report about a domain that holds too much memory of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HogNotice {
    /// The domain.
    pub domain: DomainId,
    /// The domain's name.
    pub name: String,
    /// The domain's process.
    pub pid: u32,
    /// The domain's user.
    pub uid: u32,
    /// Bytes of others' memory that are charged to the domain.
    pub charged_bytes: u64,
    /// The limit that the charged bytes exceed, bytes.
    pub over_bytes: u64,
    /// The action; `None`: the domain is within the limit again.
    pub action: Option<HogAction>,
}

/// An event for the state. Time comes along with every input.
#[derive(Clone, Debug)]
pub enum Input {
    /// A connection was accepted.
    Connected {
        /// The new connection.
        client: ClientId,
        /// The user of the process that connected.
        uid: u32,
        /// Group.
        gid: u32,
        /// Process.
        pid: u32,
    },
    /// A message came.
    Request {
        /// The client.
        client: ClientId,
        /// The request.
        request: Request,
        /// The descriptors, in order.
        fds: Vec<Fd>,
    },
    /// The first message came: the shell adds the sender's pidfd and a fresh control page.
    Hello {
        /// The client.
        client: ClientId,
        /// Always `Request::Hello`.
        request: Request,
        /// The sender's pidfd, if the kernel gave one.
        pidfd: Option<FdToken>,
        /// A number that identifies the process for as long as the machine runs.
        process: u64,
        /// A control page for the domain, if one could be made.
        control_page: Option<FdToken>,
    },
    /// The connection broke the rules on a level below messages.
    Violation {
        /// The client.
        client: ClientId,
        /// The rule.
        refusal: Refusal,
    },
    /// A message came without descriptors that it prescribes, because the manager's process had no room for them.
    Crippled {
        /// The client.
        client: ClientId,
        /// The request.
        request: Request,
    },
    /// The connection is closed.
    HungUp {
        /// The client.
        client: ClientId,
    },
    /// The oldest message queued to this client went out.
    Sent {
        /// The client.
        client: ClientId,
    },
    /// A descriptor was closed after `Action::Close`.
    Closed {
        /// The descriptor.
        token: FdToken,
    },
    /// A connection's own descriptor is closed.
    Parted {
        /// The client.
        client: ClientId,
    },
    /// Messages queued to this client cannot go out for now: it does not read, or the kernel lets no more descriptors
    /// go.
    Blocked {
        /// The client.
        client: ClientId,
    },
    /// A watched pidfd fired.
    ProcessDied {
        /// The domain.
        domain: DomainId,
    },
    /// The answer to `Action::ReadOrphan`: indices of chunks in which something is still alive.
    OrphanRead {
        /// The pool.
        pool: PoolId,
        /// The slots.
        slots: std::ops::Range<u32>,
        /// Ranges of window indices, first and last, each after the one before; `None` if they could not be read.
        live: Option<Vec<(u32, u32)>>,
    },
    /// The answer to `Action::Complete`.
    Completed {
        /// The client that asked.
        client: ClientId,
        /// The records, with what could be read.
        records: Vec<StatRecord>,
    },
    /// The answer to `Action::ReadFigures`, in its order; `None` for figures that could not be read.
    FiguresRead {
        /// The client that asked; `None`: a period is over.
        asker: Option<(ClientId, Req)>,
        /// The figures of each pool.
        figures: Vec<(PoolId, Option<Figures>)>,
    },
    /// The answer to `Action::ReadHeld`; empty if it could not be read.
    HeldRead {
        /// The pool.
        pool: PoolId,
        /// The reader.
        reader: DomainId,
        /// The slots.
        slots: std::ops::Range<u32>,
        /// The held ones among these slots, by rising slots.
        held: Vec<HeldSlot>,
    },
    /// The kernel did not execute `Action::Kill`.
    NotKilled {
        /// The process's domain.
        domain: DomainId,
    },
    /// The result of a look at memory outside of the manager.
    Pressure(Pressure),
    /// The administrator sets a quota.
    SetQuota {
        /// The pool or heap.
        pool: PoolId,
        /// New quota, bytes.
        quota_bytes: u64,
    },
    /// Time passed.
    Tick,
}

/// The shell's actions, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Queues a message, and raises the client's `wake`. The state keeps the tokens. The answer is `Input::Sent`.
    Send {
        /// The client.
        client: ClientId,
        /// The event.
        event: Event,
        /// The descriptors.
        fds: Vec<FdToken>,
    },
    /// Forget a token and close its descriptor (a queued message keeps its own hold on it).
    Close(FdToken),
    /// Drop the connection, after a last attempt to say why.
    Disconnect {
        /// The client.
        client: ClientId,
        /// The reason; `None` if the client left by itself.
        refusal: Option<Refusal>,
    },
    /// Watch this pidfd until it is closed.
    Watch {
        /// The pidfd.
        pidfd: FdToken,
        /// The domain.
        domain: DomainId,
    },
    /// Store an entry of a control page (release).
    SetEntry {
        /// The control page.
        control_page: FdToken,
        /// Index.
        entry: u32,
        /// The pool; `None` clears the entry.
        pool: Option<PoolId>,
        /// The pool's epoch.
        epoch: u64,
        /// The pool's quota, bytes.
        quota_bytes: u64,
    },
    /// Read some of an orphan's counters: all `rcvd`, then all `ref`, then all `sent`. Answered at once.
    ReadOrphan {
        /// The pool.
        pool: PoolId,
        /// The slots.
        slots: std::ops::Range<u32>,
        /// The chunk size, bytes.
        chunk_bytes: u64,
        /// Places for chunks.
        windows: u32,
        /// The slot table; without it every buffer counts as being in chunk 0.
        table: Option<FdToken>,
        /// `ref` of every reader.
        refs: Vec<FdToken>,
        /// (`sent`, `rcvd`) of every queue.
        queues: Vec<(FdToken, FdToken)>,
    },
    /// Add the facts that only owners know to these records. Answered in the asker's next turn.
    Complete {
        /// The client that asked.
        client: ClientId,
        /// The records, and where such facts are.
        records: Vec<Surveyed>,
    },
    /// Read the writers' figures about their pools. Answered at once.
    ReadFigures {
        /// The client that asked; `None`: a period is over.
        asker: Option<(ClientId, Req)>,
        /// Pools and their tables.
        pools: Vec<(PoolId, FdToken)>,
    },
    /// Find out which slots a reader holds. Answered at once.
    ReadHeld {
        /// The pool.
        pool: PoolId,
        /// The reader.
        reader: DomainId,
        /// The pool's table.
        table: FdToken,
        /// The reader's counters.
        refs: FdToken,
        /// The slots.
        slots: std::ops::Range<u32>,
    },
    /// Tell the administrator that a domain holds too much of others' memory, or does so no more.
    SayHog(HogNotice),
    /// Kill a process. Answered only if that is not permitted.
    Kill {
        /// The domain.
        domain: DomainId,
        /// The process.
        pidfd: FdToken,
    },
    /// Make sure, before anything that follows, that ids below these are never handed out again.
    ReserveIds {
        /// Next free id of domains, channels and exports.
        next: u32,
        /// Next free pool id.
        next_pool: u32,
    },
    /// Quotas change without a request from now on: present and later control pages say so.
    Scheduled,
    /// The manager was idle for the configured time.
    Exit,
}

/// Why a request is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fail {
    /// The client is told, and stays.
    Refuse(Refusal),
    /// The client broke the protocol.
    Expel(Refusal),
}

impl From<Refusal> for Fail {
    fn from(r: Refusal) -> Fail {
        Fail::Refuse(r)
    }
}

pub(crate) type Done = Result<(), Fail>;

/// A chunk, as readers name it.
pub(crate) type ChunkKey = (u32, u32);

/// A queued message, and the step that follows when it has gone out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub fds: usize,
    /// The user that has caused the message, unless the client itself did.
    pub cause: Option<u32>,
    pub then: Then,
}

/// A departure from a reader set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Queue(ChannelId),
    Reader(DomainId),
}

impl Left {
    /// Returns the event that says it.
    pub fn event(self, pool: PoolId, epoch: u64) -> Event {
        match self {
            Left::Queue(channel) => Event::QueueLeft {
                pool,
                channel,
                epoch,
            },
            Left::Reader(domain) => Event::ReaderLeft {
                pool,
                domain,
                epoch,
            },
        }
    }
}

/// The step that waits for a message to have gone out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Nothing,
    /// The writer's `ChunkReady` or `ChunksReady`.
    Chunk(PoolId, ChunkKey),
    /// The opening of a queue, of which the writer was told in this epoch.
    Joined(PoolId, ChannelId, u64),
    /// The end of a departure.
    Left(PoolId, Left),
}
