//! What goes in and what comes out of the state machine, and its opaque handles.

use serde::{Deserialize, Serialize};
use tranship_proto::{
    ChannelId, DomainId, Event, HogAction, PoolId, Pressure, Refusal, Req, Request,
};

/// A connection, as the shell numbers them. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// A descriptor in the shell's table. The state owns every token that it was given until it says `Close`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

/// Who can write memory, by its seals (`docs/format.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Sealed {
    /// It is not memory, or has other seals.
    #[default]
    No,
    /// Who made it.
    OneWriter,
    /// Everybody who has it.
    Shared,
    /// Who made it, until it is sealed: nobody else has it.
    Open,
    /// Nobody, ever again.
    Nobody,
}

impl Sealed {
    /// Whether it is memory of any kind.
    pub fn is_memory(self) -> bool {
        self != Sealed::No
    }
}

/// What the shell found out about a descriptor that a client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// On tmpfs, with exactly these seals, no execute bit, every block present.
    pub sealed: Sealed,
    /// Its size, bytes.
    pub size: u64,
    /// Its header, if it has a valid one.
    pub header: Option<Header>,
    /// No client sent it: it is one of the two sockets that the shell made for the request, which two clients will share.
    pub made_here: bool,
    /// Its inode number.
    pub inode: u64,
}

/// A received descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd {
    /// Its handle.
    pub token: FdToken,
    /// What is known of it.
    pub facts: Facts,
}

/// What a writer says of its pool (`docs/format.md`, kind 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Time that callers waited, summed.
    pub blocked_ns: u64,
    /// Time spent collecting.
    pub collect_ns: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// In use.
    pub live_bytes: u64,
    /// The most at once, lately.
    pub peak_bytes: u64,
    /// Buffers in caches.
    pub cached: u64,
    /// Buffers in use.
    pub live_buffers: u64,
    /// Callers that wait.
    pub waiters: u64,
    /// Found dead when it last looked, bytes.
    pub garbage_bytes: u64,
    /// In caches, bytes.
    pub cached_bytes: u64,
    /// Of buffers' pages, beyond what was asked for, bytes.
    pub padding_bytes: u64,
}

/// A slot that a reader's counter says it holds, as the pool's table has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldSlot {
    /// Which.
    pub slot: u32,
    /// Its generation.
    pub generation: u32,
    /// Its length, bytes.
    pub bytes: u64,
    /// Its writer says that it moved the buffer.
    pub moved: bool,
}

/// What is said of a domain that holds too much of others' memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HogNotice {
    /// The domain.
    pub domain: DomainId,
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// What is charged to it of others' memory, bytes.
    pub charged_bytes: u64,
    /// More than so much is too much, bytes.
    pub over_bytes: u64,
    /// What is done; nothing: it is one no more.
    pub action: Option<HogAction>,
}

/// Something happened. Time comes along with every input.
#[derive(Clone, Debug)]
pub enum Input {
    /// A connection was accepted.
    Connected {
        /// The new connection.
        client: ClientId,
        /// Credentials of who connected.
        uid: u32,
        /// Group.
        gid: u32,
        /// Process.
        pid: u32,
    },
    /// A message came.
    Request {
        /// From whom.
        client: ClientId,
        /// What.
        request: Request,
        /// With which descriptors, in order.
        fds: Vec<Fd>,
    },
    /// The first message came: the shell adds the sender's pidfd and a fresh control page.
    Hello {
        /// From whom.
        client: ClientId,
        /// Always `Request::Hello`.
        request: Request,
        /// The sender's pidfd, if the kernel gave one.
        pidfd: Option<FdToken>,
        /// What identifies the process for as long as the machine runs.
        process: u64,
        /// A control page for it, if one could be made.
        control_page: Option<FdToken>,
    },
    /// The connection broke the rules on a level below messages.
    Violation {
        /// Who.
        client: ClientId,
        /// Which rule.
        refusal: Refusal,
    },
    /// A message came without descriptors that it prescribes, as the manager's process had no room for them.
    Crippled {
        /// From whom.
        client: ClientId,
        /// What.
        request: Request,
    },
    /// The connection is closed.
    HungUp {
        /// Whose.
        client: ClientId,
    },
    /// The oldest message queued to this client went out.
    Sent {
        /// To whom.
        client: ClientId,
    },
    /// A descriptor that was said to be closed is.
    Closed {
        /// Which.
        token: FdToken,
    },
    /// A connection's own descriptor is closed.
    Parted {
        /// Whose.
        client: ClientId,
    },
    /// What is queued to this client does not go out for now: it does not read, or the kernel lets no more descriptors go.
    Blocked {
        /// Whose.
        client: ClientId,
    },
    /// A watched pidfd fired.
    ProcessDied {
        /// Whose.
        domain: DomainId,
    },
    /// The answer to `Action::ReadOrphan`: indices of chunks in which something is still alive.
    OrphanRead {
        /// Of which pool.
        pool: PoolId,
        /// Which of its slots.
        slots: std::ops::Range<u32>,
        /// Ranges of window indices, first and last, each after the one before; `None` if they could not be read.
        live: Option<Vec<(u32, u32)>>,
    },
    /// The answer to `Action::ReadHold`.
    HoldRead {
        /// Who asked.
        client: ClientId,
        /// Buffers referenced.
        buffers: u32,
        /// Bytes of these buffers.
        bytes: u64,
    },
    /// The answer to `Action::ReadTaken`.
    TakenRead {
        /// Who asked.
        client: ClientId,
        /// The sink's head.
        taken: u64,
    },
    /// The answer to `Action::ReadFigures`, in its order; `None` where they could not be read.
    FiguresRead {
        /// Who asked; nobody: a period is over.
        asker: Option<(ClientId, Req)>,
        /// Of which pool what.
        figures: Vec<(PoolId, Option<Figures>)>,
    },
    /// The answer to `Action::ReadHeld`; nothing, where it could not be read.
    HeldRead {
        /// Of which pool.
        pool: PoolId,
        /// Who reads it.
        reader: DomainId,
        /// Which of its slots.
        slots: std::ops::Range<u32>,
        /// Those of them that are held, by rising slots.
        held: Vec<HeldSlot>,
    },
    /// The answer to `Action::ReadPool`.
    PoolRead {
        /// Who asked.
        client: ClientId,
        /// What its writer says, if that could be read.
        figures: Option<Figures>,
    },
    /// The kernel did not do what `Action::Kill` says.
    NotKilled {
        /// Whose process.
        domain: DomainId,
    },
    /// It was looked whether memory is short outside.
    Pressure(Pressure),
    /// The administrator sets a quota.
    SetQuota {
        /// Of which pool or heap.
        pool: PoolId,
        /// New quota, bytes.
        quota_bytes: u64,
    },
    /// Time passed.
    Tick,
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Queue a message; the tokens stay the state's. Raise the client's `wake`. Answered by `Input::Sent`.
    Send {
        /// To whom.
        client: ClientId,
        /// What.
        event: Event,
        /// With which descriptors.
        fds: Vec<FdToken>,
    },
    /// Forget a token and close its descriptor (a queued message keeps its own hold on it).
    Close(FdToken),
    /// Drop the connection, after a last attempt to say why.
    Disconnect {
        /// Whose.
        client: ClientId,
        /// Why; `None` where the client left of its own will.
        refusal: Option<Refusal>,
    },
    /// Watch this pidfd until it is closed.
    Watch {
        /// The pidfd.
        pidfd: FdToken,
        /// Whose.
        domain: DomainId,
    },
    /// Store an entry of a control page (release).
    SetBoard {
        /// The control page.
        control_page: FdToken,
        /// Index.
        entry: u32,
        /// The pool; `None` clears the entry.
        pool: Option<PoolId>,
        /// Its epoch.
        epoch: u64,
        /// Its quota.
        quota_bytes: u64,
    },
    /// Read some of an orphan's counters: all `rcvd`, then all `ref`, then all `sent`. Answered at once.
    ReadOrphan {
        /// The pool.
        pool: PoolId,
        /// Which of its slots.
        slots: std::ops::Range<u32>,
        /// Its chunk size.
        chunk_bytes: u64,
        /// Places for chunks.
        windows: u32,
        /// Its slot table; without it all is said to be in chunk 0.
        table: Option<FdToken>,
        /// `ref` of every reader.
        refs: Vec<FdToken>,
        /// (`sent`, `rcvd`) of every queue.
        queues: Vec<(FdToken, FdToken)>,
    },
    /// Count what a reader holds. Answered at once.
    ReadHold {
        /// Who asked.
        client: ClientId,
        /// The pool's table.
        table: FdToken,
        /// The reader's counters.
        refs: FdToken,
        /// Which of its slots.
        slots: std::ops::Range<u32>,
    },
    /// Read the head of a sink's half. Answered at once.
    ReadTaken {
        /// Who asked.
        client: ClientId,
        /// The sink's half.
        half: FdToken,
    },
    /// Read what writers say of their pools. Answered at once.
    ReadFigures {
        /// Who asked; nobody: a period is over.
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
        /// Which of its slots.
        slots: std::ops::Range<u32>,
    },
    /// Read what a writer says of its pool. Answered at once.
    ReadPool {
        /// Who asked.
        client: ClientId,
        /// The pool's table.
        table: FdToken,
    },
    /// Tell the administrator that a domain holds too much of others' memory, or does so no more.
    SayHog(HogNotice),
    /// Kill a process. Answered only where that is not permitted.
    Kill {
        /// Whose.
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
    /// Quotas move from now on: control pages, and those to come, say so.
    Scheduled,
    /// The manager was idle for as long as it is to be.
    Exit,
}

/// Why a request is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fail {
    /// Said to the client, which stays.
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

/// What to do when a queued message has gone out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub fds: usize,
    /// The user who has caused it, where that is not the client's own doing.
    pub cause: Option<u32>,
    pub then: Then,
}

/// What left a reader set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Queue(ChannelId),
    Reader(DomainId),
}

/// What waits for a message to have gone out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Nothing,
    /// The writer's `ChunkReady` or `ChunksReady`.
    Chunk(PoolId, ChunkKey),
    /// The opening of a queue of which the writer has heard in this epoch.
    Joined(PoolId, ChannelId, u64),
    /// Nothing more to say of what left.
    Left(PoolId, Left),
}
