//! Errors of allocating and finding buffers.

use std::io;
use tranship_error::{Cause, ErrorKind};
use tranship_proto::{BufferId, DomainId, PoolId, RefusalCode};

/// Reason why a pool gets no more memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// The pool's quota, or its maximum. The quota may be smaller than what is asked for, until it is raised.
    #[error("its quota is used up, or smaller than that")]
    Quota,
    /// The manager's total.
    #[error("the manager has {left_bytes} bytes left for everybody")]
    Total {
        /// Bytes left of it.
        left_bytes: u64,
    },
    /// Memory of other domains that this domain holds counts against its limit, or its user's.
    #[error(
        "what it holds of others' pools leaves {left_bytes} bytes of what it may have: buffers that are dropped make room, `tranship stat` says in whose pools they are"
    )]
    Charged {
        /// Bytes left of it.
        left_bytes: u64,
    },
    /// The domain holds more of others' memory than the manager's rules allow, and is granted memory rarely.
    #[error(
        "it is slowed down: {charged_bytes} bytes of others' pools are charged to it, allowed are {over_bytes}; buffers that are dropped count no more"
    )]
    Hog {
        /// Bytes that are charged to it.
        charged_bytes: u64,
        /// Bytes that may be charged to it at most.
        over_bytes: u64,
    },
    /// The pool's number of buffers.
    #[error("all its {slots} slots are in use (PoolOptions::slots)")]
    Slots {
        /// Slots of the pool.
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
        /// The step that failed.
        step: &'static str,
        /// Number of the kernel's error.
        errno: i32,
    },
    /// The manager's answer is not an answer to the request.
    #[error("the manager broke the protocol")]
    Protocol,
    /// The manager refused for another reason.
    #[error("{0}")]
    Refused(RefusalCode),
    /// No manager is there to ask for more.
    #[error("the manager is away")]
    Away,
    /// No manager can be reached any more.
    #[error("no manager can be reached any more (Domain::cut_off says why)")]
    CutOff,
    /// The manager was asked for more and has not answered yet.
    #[error("the manager has not answered yet")]
    Late,
    /// The list of an aggregate has no pool: all pieces are of other domains' pools.
    #[error("no pool for the list of pieces (Aggregate::set_list_pool)")]
    NoPool,
    /// Other callers wait for memory already, and come first.
    #[error("others wait for it")]
    Queue,
}

/// Domain that has the oldest buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("domain {domain} holds {buffers} of the {asked} oldest buffers, or has not taken them")]
pub struct Holder {
    /// The domain that holds most of them; the pool's own is possible.
    pub domain: DomainId,
    /// Number of these buffers that the domain holds.
    pub buffers: u32,
    /// Number of buffers that were looked at.
    pub asked: u32,
}

/// A buffer can never fit: the call fails at once, also if it would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a buffer of {need_bytes} bytes is larger than the pool's maximum of {max_bytes} bytes (PoolOptions::new)"
)]
pub struct TooLarge {
    /// Asked for.
    pub need_bytes: u64,
    /// The pool's maximum, which no quota changes.
    pub max_bytes: u64,
}

/// A pool cannot be mapped where its options say: there are no such free addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {need_bytes} free bytes of addresses between {from:#x} and {to:#x}: give a larger range, or a smaller maximum (PoolOptions::address_range)"
)]
pub struct NoAddresses {
    /// The pool's maximum.
    pub need_bytes: u64,
    /// Lowest address that the options allow.
    pub from: usize,
    /// End of the addresses that the options allow.
    pub to: usize,
}

/// No memory is free now (`try_alloc`), or was within the given time (`alloc_timeout`). Nothing was changed.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, ErrorKind, PoolOptions};
/// use tranship::error::Shortage;
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// let mut held = Vec::new();
/// let error = loop {
///     match pool.try_alloc(256 << 10) {
///         Ok(buffer) => held.push(buffer),
///         Err(error) => break error,
///     }
/// };
/// assert_eq!(error.kind(), ErrorKind::OutOfMemory);
/// let shortage: &Shortage = error.find().unwrap(); // the figures
/// assert_eq!((shortage.need_bytes, shortage.quota_bytes), (256 << 10, 1 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {need_bytes} bytes free: {limit}; the pool has {live_bytes} bytes and a quota of {quota_bytes} bytes{}; waited {waited_ms} ms",
    holder.map(|holder| format!(", {holder}")).unwrap_or_default()
)]
pub struct Shortage {
    /// Asked for.
    pub need_bytes: u64,
    /// Reason why the pool gets no more.
    pub limit: Limit,
    /// Bytes of chunks that the pool has.
    pub live_bytes: u64,
    /// The quota now.
    pub quota_bytes: u64,
    /// The domain that holds most of the oldest buffers, if it is another one.
    pub holder: Option<Holder>,
    /// Time waited, milliseconds.
    pub waited_ms: u64,
}

/// An id that names no living buffer in its pool: the buffer was reused, never sent, or never existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("buffer {id} is not alive in pool {pool}")]
pub struct StaleId {
    /// The id.
    pub id: BufferId,
    /// The pool that was searched.
    pub pool: PoolId,
}

impl Cause for NoAddresses {
    fn kind(&self) -> ErrorKind {
        ErrorKind::PoolMap
    }
}

impl Cause for TooLarge {
    fn kind(&self) -> ErrorKind {
        ErrorKind::TooLarge
    }
}

impl Cause for Shortage {
    fn kind(&self) -> ErrorKind {
        ErrorKind::OutOfMemory
    }
}

impl Cause for StaleId {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Stale
    }
}
