//! Errors of operations on mbufs.

use crate::size::{ClusterSize, MAX_BYTES};
use std::io;

/// Errors of operations that were not done. Their object is as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no memory, or a zone's limit is reached (`ENOBUFS`).
    #[error(transparent)]
    NoBuffers(#[from] NoBuffers),
    /// The chain has fewer bytes than that.
    #[error("{wanted} bytes wanted of a chain of {available}")]
    TooShort {
        /// The requested bytes, from the chain's beginning.
        wanted: usize,
        /// Bytes of the chain.
        available: usize,
    },
    /// More than this operation can do at once.
    #[error("{wanted} bytes wanted, at most {limit} are possible")]
    TooLong {
        /// The requested bytes.
        wanted: usize,
        /// The most.
        limit: usize,
    },
    /// The chain cannot be made of so few mbufs.
    #[error("{needed} mbufs are needed, {limit} are allowed")]
    TooMany {
        /// Mbufs at the end.
        needed: usize,
        /// Mbufs allowed.
        limit: usize,
    },
    /// The chain is no packet: its first mbuf has no header.
    #[error("the chain has no packet header: give one that is a packet (Chain::make_packet)")]
    NoHeader,
    /// There would be fewer mbufs than clusters.
    #[error("a limit of {mbufs} mbufs is less than the limits of clusters together")]
    Limits {
        /// Mbufs.
        mbufs: u64,
    },
    /// The mbuf has data or storage already.
    #[error("the mbuf has data or external storage already")]
    Occupied,
    /// A piece of a file could not be read or written.
    #[error("reading or writing {len} bytes at {offset} of a file segment: {source}")]
    File {
        /// The offset in the file.
        offset: u64,
        /// The number of bytes.
        len: usize,
        /// Why.
        source: io::Error,
    },
}

/// There is no memory, or a zone's limit is reached. [`Mbufs::stats`](crate::Mbufs::stats) has the limits, and how
/// often they were reached. A pool's error is the source: [`refusal`](NoBuffers::refusal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoBuffers {
    what: What,
    /// On the heap, so that a result on a fast path is two words. Zones leave it empty: a packet that is dropped at a
    /// limit costs no memory.
    refusal: Option<Box<tranship_core::Error>>,
}

const _: () = assert!(size_of::<Result<std::ptr::NonNull<u8>, NoBuffers>>() == 16);

impl NoBuffers {
    /// Returns the kind of item that was missing.
    #[must_use]
    pub fn what(&self) -> What {
        self.what
    }

    /// Returns the reason why the pool had no memory, with its figures; `None` if mbufs came from the process's own
    /// zones.
    #[must_use]
    pub fn refusal(&self) -> Option<&tranship_core::Error> {
        self.refusal.as_deref()
    }

    /// Makes the error of a pool without memory, for `map_err`.
    #[cold]
    pub(crate) fn pool(refusal: tranship_core::Error) -> NoBuffers {
        let refusal = Some(Box::new(refusal));
        NoBuffers {
            what: What::Pool,
            refusal,
        }
    }
}

impl From<What> for NoBuffers {
    fn from(what: What) -> NoBuffers {
        NoBuffers {
            what,
            refusal: None,
        }
    }
}

impl std::fmt::Display for NoBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no {}: memory or the limit is exhausted", self.what)
    }
}

impl std::error::Error for NoBuffers {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.refusal.as_deref().map(|refusal| refusal as _)
    }
}

/// The kind of item that was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum What {
    /// An mbuf.
    Mbuf,
    /// A mini-mbuf.
    Mini,
    /// An mbuf with a cluster.
    Packet,
    /// A cluster.
    Cluster(ClusterSize),
    /// A tag's memory.
    Tag,
    /// Memory for an owner of external storage.
    Owner,
    /// Memory of a pool.
    Pool,
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            What::Mbuf => f.write_str("mbuf"),
            What::Mini => f.write_str("mini-mbuf"),
            What::Packet => f.write_str("mbuf with a cluster"),
            What::Cluster(size) => write!(f, "cluster of {} bytes", size.bytes()),
            What::Tag => f.write_str("tag"),
            What::Owner => f.write_str("memory for an owner"),
            What::Pool => f.write_str("memory in the pool"),
        }
    }
}

/// Checks that a chain may have `len` bytes and `more`.
pub(crate) fn check_total(len: usize, more: usize) -> Result<(), Error> {
    let wanted = len.saturating_add(more);
    if wanted > MAX_BYTES {
        return Err(Error::TooLong {
            wanted,
            limit: MAX_BYTES,
        });
    }
    Ok(())
}

impl Error {
    /// Returns the error number of the traditional routine.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Error::NoBuffers(_) => rustix::io::Errno::NOBUFS,
            Error::TooShort { .. }
            | Error::TooLong { .. }
            | Error::NoHeader
            | Error::Limits { .. } => rustix::io::Errno::INVAL,
            Error::TooMany { .. } => rustix::io::Errno::FBIG,
            Error::Occupied => rustix::io::Errno::BUSY,
            Error::File { source, .. } => {
                return source
                    .raw_os_error()
                    .unwrap_or(rustix::io::Errno::IO.raw_os_error());
            }
        };
        errno.raw_os_error()
    }
}
