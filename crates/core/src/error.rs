//! Errors, one enum per family of operations, with numbers and units.
//!
//! [`Code`] is the stable number of each kind, the same for every face.

use std::io;
use tranship_proto::{CbufId, ChannelId, DomainId, MAX_NAME_BYTES, PoolId, Refusal, RefusalCode};

/// Stable error codes, shared by all faces.
#[non_exhaustive]
#[repr(u16)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Code {
    /// A system call failed.
    System = 1,
    /// No manager answers and none could be started.
    NoManager = 2,
    /// The manager is away; what exists goes on, nothing new can be had.
    ManagerAway = 3,
    /// The manager refused.
    Refused = 4,
    /// The time given is over.
    TimedOut = 5,
    /// Used in a forked child.
    Forked = 6,
    /// Larger than the pool's quota can ever hold.
    TooLarge = 7,
    /// Nothing free now.
    OutOfMemory = 8,
    /// The ring is full.
    Full = 9,
    /// The other end is gone.
    PeerGone = 10,
    /// The other end broke a rule.
    PeerViolation = 11,
    /// A message's memory was not shown to this process, and no manager can be reached for it.
    ChunkPending = 12,
    /// The id names nothing alive.
    Stale = 13,
    /// An argument is outside its range.
    BadArgument = 14,
    /// The other end died, or gave up, before it closed the channel.
    PeerDied = 15,
    /// Messages went with the memory that they were in.
    Lost = 16,
    /// There is a socket, or something else in its place, that cannot be used.
    Unreachable = 17,
    /// The manager is gone, and this process cannot reach another one.
    CutOff = 18,
}

/// Joining or leaving a manager, and anything asked of it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// A system call failed.
    #[error("{call} failed: {source}")]
    System {
        /// Which call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No manager.
    #[error("no manager answers at {tried}: {reason}")]
    NoManager {
        /// The sockets that were tried.
        tried: String,
        /// Why none was started, and what to do.
        reason: String,
    },
    /// What is at the place of a manager's socket cannot be used. No other manager is looked for or started.
    #[error("the manager's socket {} cannot be used: {problem}", socket.display())]
    Unreachable {
        /// Where.
        socket: std::path::PathBuf,
        /// Why.
        problem: SocketProblem,
    },
    /// The manager went away; existing channels go on.
    #[error(
        "the manager is away: existing channels go on, nothing new can be had until it is back"
    )]
    ManagerAway,
    /// The manager went away, and this process cannot reach the next one, as it was locked down after it had joined.
    #[error(
        "the manager at {} is gone, and no other can be reached there any more, {barrier}: existing channels go on, nothing new can be had; let the \
         process connect, or restart it", socket.display()
    )]
    CutOff {
        /// Where it was found.
        socket: Box<std::path::Path>,
        /// What stands in the way.
        barrier: Barrier,
    },
    /// The manager said no.
    #[error("the manager refused: {0}")]
    Refused(#[from] Refusal),
    /// The time given is over.
    #[error("timed out after {waited_ms} ms: {awaited}")]
    TimedOut {
        /// What has not happened.
        awaited: Awaited,
        /// How long it waited, milliseconds.
        waited_ms: u64,
    },
    /// Used in a forked child of the process that made it.
    #[error(
        "this domain belongs to the parent process: after fork(), connect a domain of your own"
    )]
    Forked,
    /// The manager broke the protocol.
    #[error("the manager broke the protocol: {0}")]
    Protocol(String),
    /// A name that nothing can have.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// An argument is outside its range.
    #[error("{what} is {value}, allowed is {min} to {max}")]
    BadArgument {
        /// Which argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// Shared memory could not be made.
    #[error("cannot make shared memory: {0}")]
    Make(#[from] tranship_region::MakeError),
    /// What a pool is to begin with could not be had.
    #[error("the pool cannot begin with what it is to have: {0}")]
    Preallocate(#[source] AllocError),
    /// A shared object could not be made.
    #[error("cannot make a shared object: {0}")]
    Create(#[from] tranship_region::layout::CreateError),
    /// A pool's window could not be made or changed.
    #[error("cannot change the window: {0}")]
    Window(#[from] tranship_region::WindowError),
    /// The embedded manager could not be started.
    #[error("cannot start the embedded manager: {0}")]
    Manager(#[from] tranship_manager::ManagerError),
    /// What the other side showed is not what it should be.
    #[error("shared memory of the other side is not as agreed: {0}")]
    Open(#[from] tranship_region::layout::OpenError),
}

/// Why a manager's socket cannot be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketProblem {
    /// This user has no access.
    #[error(
        "permission denied; look at the modes of the socket and of the directories above it, or name another one"
    )]
    Access,
    /// Something else is there.
    #[error("it is no socket; remove it, or name another one")]
    NotASocket,
    /// A socket of another kind is there.
    #[error("it is a socket, but no manager's (not SEQPACKET); name another one")]
    OtherKind,
    /// No socket can have this path.
    #[error("its path has {bytes} bytes, a socket's has at most {max}")]
    PathLength {
        /// Of the path.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
}

impl DomainError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            DomainError::System { .. } | DomainError::Protocol(_) | DomainError::Manager(_) => {
                Code::System
            }
            DomainError::NoManager { .. } => Code::NoManager,
            DomainError::Unreachable { .. } => Code::Unreachable,
            DomainError::ManagerAway => Code::ManagerAway,
            DomainError::CutOff { .. } => Code::CutOff,
            DomainError::Refused(_) => Code::Refused,
            DomainError::TimedOut { .. } => Code::TimedOut,
            DomainError::Forked => Code::Forked,
            DomainError::BadName(_) | DomainError::BadArgument { .. } => Code::BadArgument,
            DomainError::Make(_) | DomainError::Create(_) | DomainError::Window(_) => {
                Code::OutOfMemory
            }
            DomainError::Open(_) => Code::PeerViolation,
            DomainError::Preallocate(error) => error.code(),
        }
    }

    pub(crate) fn system(call: &'static str) -> impl FnOnce(io::Error) -> DomainError {
        move |source| DomainError::System { call, source }
    }

    /// Whether a refusal with this code is what it is.
    pub fn is_refusal(&self, code: RefusalCode) -> bool {
        matches!(self, DomainError::Refused(refusal) if refusal.code == code)
    }
}

/// What keeps a process from a manager that it had joined before.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barrier {
    /// A sandbox, or the modes of files.
    #[error("connecting is forbidden: {}", io::Error::from_raw_os_error(*errno))]
    Denied {
        /// What the kernel said.
        errno: i32,
    },
    /// It has changed its root, and there is no such socket in the new one.
    #[error("its socket is not under the present root directory")]
    OtherRoot,
    /// The manager does not let it in.
    #[error("the manager refuses it: {0}")]
    Refused(Refusal),
}

/// What was waited for in vain.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Awaited {
    /// The manager's answer.
    #[error("the manager has not answered")]
    Manager,
    /// Somebody who offers a name.
    #[error("nobody offers `{0}`")]
    Offer(String),
    /// Somebody who connects to a name.
    #[error("nobody has connected to `{0}`")]
    Connection(String),
    /// The receiver's consent to a pool.
    #[error(
        "the receiver has not agreed to pool {0}, which it does when it next calls the library"
    )]
    Consent(PoolId),
}

/// Why a name cannot be used: it has 1 to [`MAX_NAME_BYTES`] bytes and no control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Its length.
    #[error("a name has 1 to {MAX_NAME_BYTES} bytes, this one has {bytes}")]
    Length {
        /// Of the name.
        bytes: usize,
    },
    /// A character in it.
    #[error("a name has no control characters, this one has {found:?} at byte {at}")]
    Control {
        /// The first such character.
        found: char,
        /// Where it begins.
        at: usize,
    },
}

/// What keeps a pool from having more memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// The pool's quota, or its maximum.
    #[error("its quota is used up")]
    Quota,
    /// The manager's total.
    #[error("the manager has {left_bytes} bytes left for everybody")]
    Total {
        /// Bytes left of it.
        left_bytes: u64,
    },
    /// The pool's number of buffers.
    #[error("all its {slots} slots are in use (PoolOptions::slots)")]
    Slots {
        /// How many it has.
        slots: u32,
    },
    /// The pool has its maximum of chunks, but no hole in them is long enough.
    #[error("no hole in it is long enough")]
    Window,
    /// The memory limit of this process's cgroup.
    #[error("its cgroup has {free_bytes} bytes left")]
    Cgroup {
        /// Bytes left there.
        free_bytes: u64,
    },
    /// The machine's memory.
    #[error("the machine has {free_bytes} bytes left")]
    Machine {
        /// Bytes left there.
        free_bytes: u64,
    },
    /// The kernel gave no memory, descriptors or mappings.
    #[error("the kernel gave none, {step}: {}", io::Error::from_raw_os_error(*errno))]
    Kernel {
        /// Where.
        step: &'static str,
        /// What it said.
        errno: i32,
    },
    /// The manager's answer is none.
    #[error("the manager broke the protocol")]
    Protocol,
    /// The manager refused for another reason.
    #[error("{0}")]
    Refused(RefusalCode),
    /// No manager is there to ask for more.
    #[error("the manager is away")]
    Away,
    /// Nor can one be reached any more.
    #[error("no manager can be reached any more (Domain::cut_off says why)")]
    CutOff,
    /// The manager was asked for more and has not answered yet.
    #[error("the manager has not answered yet")]
    Late,
    /// A list of pieces of others' pools, and no pool of one's own for it.
    #[error("no pool for the list of pieces (Aggregate::set_list_pool)")]
    NoPool,
    /// Others wait for memory already, and come first.
    #[error("others wait for it")]
    Queue,
}

/// Whose the oldest buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("domain {domain} holds {buffers} of the {asked} oldest buffers, or has not taken them")]
pub struct Holder {
    /// The domain that holds most of them; the pool's own is possible.
    pub domain: DomainId,
    /// How many.
    pub buffers: u32,
    /// Of so many that were looked at.
    pub asked: u32,
}

/// Why a buffer could not be had. Nothing was changed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum AllocError {
    /// It can never fit: error at once, whatever was asked about waiting.
    #[error(
        "a buffer of {need_bytes} bytes is larger than the pool's quota of {quota_bytes} bytes"
    )]
    TooLarge {
        /// Asked for.
        need_bytes: u64,
        /// The quota now.
        quota_bytes: u64,
    },
    /// Nothing free now (`try_alloc`), or not within the time given (`alloc_timeout`).
    #[error(
        "no {need_bytes} bytes free: {limit}; the pool has {live_bytes} of {quota_bytes} bytes{}; waited {waited_ms} ms",
        holder.map(|holder| format!(", {holder}")).unwrap_or_default()
    )]
    OutOfMemory {
        /// Asked for.
        need_bytes: u64,
        /// What keeps the pool from having more.
        limit: Limit,
        /// Bytes of chunks that the pool has.
        live_bytes: u64,
        /// The quota now.
        quota_bytes: u64,
        /// Who is in the way, if it is others.
        holder: Option<Holder>,
        /// Time waited, milliseconds.
        waited_ms: u64,
    },
    /// Used in a forked child.
    #[error("this pool belongs to the parent process: after fork(), connect a domain of your own")]
    Forked,
}

impl AllocError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            AllocError::TooLarge { .. } => Code::TooLarge,
            AllocError::OutOfMemory { .. } => Code::OutOfMemory,
            AllocError::Forked => Code::Forked,
        }
    }
}

/// An id that names nothing alive in its pool: its buffer was reused, never sent, or never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("buffer {id} is not alive in pool {pool}")]
pub struct StaleId {
    /// The id.
    pub id: CbufId,
    /// Where it was looked for.
    pub pool: PoolId,
}

impl StaleId {
    /// The stable code.
    pub fn code(&self) -> Code {
        Code::Stale
    }
}

/// A rule that the other end of a channel broke. The channel is closed; nothing else is touched.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The ring's cursor moved where it cannot.
    #[error("its ring cursor went to {head}, allowed is {min} to {max}")]
    Head {
        /// What it says.
        head: u64,
        /// Smallest possible.
        min: u64,
        /// Largest possible.
        max: u64,
    },
    /// An operation that does not exist.
    #[error("operation {op} does not exist")]
    Operation {
        /// What it says.
        op: u8,
    },
    /// More inline bytes than a line holds.
    #[error("{bytes} inline bytes, the limit is 48")]
    InlineLength {
        /// What it says.
        bytes: u8,
    },
    /// Bits of a line that this version does not use.
    #[error("word {word} of its line has {bits:#x} where version 1 has zeros")]
    Reserved {
        /// Which word of the line.
        word: u8,
        /// Those of its bits that should be zero and are not.
        bits: u64,
    },
    /// A pool that is not assigned to this channel.
    #[error("pool {pool} is not assigned to this channel")]
    NotAssigned {
        /// The pool.
        pool: PoolId,
    },
    /// A slot outside the table.
    #[error("slot {slot} of {slots}")]
    Slot {
        /// What it says.
        slot: u32,
        /// Slots of the pool.
        slots: u32,
    },
    /// Bytes outside the window.
    #[error("bytes {offset}+{length} are outside the pool's {max_bytes} bytes")]
    Range {
        /// Window offset.
        offset: u64,
        /// Length.
        length: u64,
        /// The pool's maximum.
        max_bytes: u64,
    },
    /// A forwarded reference names bytes that are not those of its buffer.
    #[error("bytes {offset}+{length} are not those of buffer {id}")]
    Elsewhere {
        /// The id sent.
        id: CbufId,
        /// Window offset.
        offset: u64,
        /// Length.
        length: u64,
    },
    /// The buffer was already reused when it arrived.
    #[error("buffer {id} is not alive (its generation is {now})")]
    Dead {
        /// The id sent.
        id: CbufId,
        /// The slot's generation.
        now: u32,
    },
    /// An aggregate list that does not hold together.
    #[error("an aggregate of {pieces} pieces in a list of {list_bytes} bytes")]
    Aggregate {
        /// Pieces it says it has.
        pieces: u32,
        /// Length of its list.
        list_bytes: u64,
    },
    /// A chunk that does not exist.
    #[error("chunk serial {serial} at window index {index} does not exist")]
    Chunk {
        /// The window index.
        index: u32,
        /// The serial it claims.
        serial: u32,
    },
}

/// Why a send did not happen. What was to be sent comes back in [`SendError`].
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SendFailure {
    /// The ring is full and the sender does not wait, or waited long enough.
    #[error("the ring of {lines} messages is full; waited {waited_ms} ms")]
    Full {
        /// Lines of the ring.
        lines: u32,
        /// Time waited, milliseconds.
        waited_ms: u64,
    },
    /// The receiver is gone.
    #[error("the receiver of channel {0} is gone")]
    PeerGone(ChannelId),
    /// The receiver has not taken everything: it is gone, or the time is over ([`wait_taken`](crate::Sender::wait_taken)).
    #[error("{messages} messages were not taken{}", not_taken(*gone, *waited_ms))]
    NotTaken {
        /// How many.
        messages: u64,
        /// Whether the receiver is gone.
        gone: bool,
        /// Time waited, milliseconds.
        waited_ms: u64,
    },
    /// The receiver broke a rule.
    #[error("the receiver broke a rule, the channel is closed: {0}")]
    Violation(Violation),
    /// The receiver has still to agree to the pool, which it does when it next calls the library. The request goes on.
    #[error(
        "the receiver has connected but not agreed to pool {pool} yet, which it does when it receives; waited {waited_ms} ms"
    )]
    NotAssigned {
        /// The pool.
        pool: PoolId,
        /// Time waited, milliseconds.
        waited_ms: u64,
    },
    /// The pool could not be assigned to the channel.
    #[error("the pool could not be assigned to the channel: {0}")]
    Assign(DomainError),
    /// Too many bytes for an inline message.
    #[error("{bytes} bytes do not fit inline, the limit is 48; put them into a buffer")]
    TooLongInline {
        /// How many.
        bytes: usize,
    },
    /// The list of an aggregate could not be stored.
    #[error("the list of the aggregate could not be stored: {0}")]
    List(AllocError),
    /// A buffer of another domain of this process: only its own domain may send it.
    #[error("the buffer belongs to another domain of this process")]
    OtherDomain,
    /// Used in a forked child.
    #[error(
        "this channel belongs to the parent process: after fork(), connect a domain of your own"
    )]
    Forked,
}

fn not_taken(gone: bool, waited_ms: u64) -> String {
    if gone {
        ": the receiver is gone".into()
    } else {
        format!(" within {waited_ms} ms")
    }
}

impl SendFailure {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            SendFailure::Full { .. } | SendFailure::NotAssigned { .. } => Code::Full,
            SendFailure::PeerGone(_) | SendFailure::NotTaken { gone: true, .. } => Code::PeerGone,
            SendFailure::NotTaken { gone: false, .. } => Code::TimedOut,
            SendFailure::Violation(_) => Code::PeerViolation,
            SendFailure::Assign(error) => error.code(),
            SendFailure::TooLongInline { .. } | SendFailure::OtherDomain => Code::BadArgument,
            SendFailure::List(error) => error.code(),
            SendFailure::Forked => Code::Forked,
        }
    }
}

/// A failed send gives back what was to be sent.
#[derive(thiserror::Error)]
#[error("{failure}")]
pub struct SendError<T> {
    /// Why.
    pub failure: SendFailure,
    /// What was not sent.
    pub unsent: T,
}

impl<T> std::fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendError")
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Why nothing was received.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The end: the sender closed the channel, and everything it sent was taken.
    #[error("the sender of channel {0} has closed it, and everything it sent was taken")]
    PeerGone(ChannelId),
    /// The sender's process ended, or the sender gave up, without closing the channel. What it had sent was taken; whether it
    /// wanted to send more nobody can say.
    #[error(
        "the sender of channel {0} died or gave up before it closed it; what it had sent was taken, but that may not be all"
    )]
    PeerDied(ChannelId),
    /// The connection was not made after all: the manager died before the other end heard of it. Nothing was sent; connect again.
    #[error(
        "channel {0} was not made after all: the manager died before its other end heard of it; connect again"
    )]
    NotConnected(ChannelId),
    /// Messages that were sent cannot be had: the domain that wrote their memory ended before this one, or a manager, had that memory.
    #[error(
        "messages of channel {0} are lost: the domain that wrote their memory ended before this one, or a manager, had it"
    )]
    Lost(ChannelId),
    /// The sender broke a rule.
    #[error("the sender broke a rule, the channel is closed: {0}")]
    Violation(Violation),
    /// The manager went before it could show the next message's memory, and this process cannot reach another one. The message
    /// stays the next one.
    #[error(
        "the next message is in memory of pool {pool} that was not shown to this process before the manager went, and no other can be reached, {barrier}"
    )]
    ChunkPending {
        /// The pool.
        pool: PoolId,
        /// What stands in the way.
        barrier: Barrier,
    },
    /// The time given is over.
    #[error("{} within {waited_ms} ms", not_come(*memory_of))]
    TimedOut {
        /// The next message has come, but not the memory that it is in, which the manager has still to show: of this pool.
        memory_of: Option<PoolId>,
        /// Time waited, milliseconds.
        waited_ms: u64,
    },
    /// Used in a forked child.
    #[error(
        "this channel belongs to the parent process: after fork(), connect a domain of your own"
    )]
    Forked,
}

fn not_come(memory_of: Option<PoolId>) -> String {
    match memory_of {
        None => "nothing came".into(),
        Some(pool) => format!(
            "a message came, but the manager, which may be away, has not shown its memory, in pool {pool},"
        ),
    }
}

impl RecvError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            RecvError::PeerGone(_) | RecvError::NotConnected(_) => Code::PeerGone,
            RecvError::PeerDied(_) => Code::PeerDied,
            RecvError::Lost(_) => Code::Lost,
            RecvError::Violation(_) => Code::PeerViolation,
            RecvError::ChunkPending { .. } => Code::ChunkPending,
            RecvError::TimedOut { .. } => Code::TimedOut,
            RecvError::Forked => Code::Forked,
        }
    }
}
