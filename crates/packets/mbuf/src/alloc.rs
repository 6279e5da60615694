//! Allocation: one mbuf, with or without a cluster, or as many as necessary.

use crate::chain::Chain;
use crate::counts::{Routine, count};
use crate::error::{Error, NoBuffers, What, check_total};
use crate::flags::{Flags, Kind};
use crate::limits::Limits;
use crate::seg::Seg;
use crate::size::{ClusterSize, MCLBYTES, MINCLSIZE, MJUM16BYTES, MJUMPAGESIZE};
use crate::zones::{How, Inner, retire};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_core::Pool;

/// An allocator of mbufs: its zones, limits and statistics. Cloning is cheap; threads share it.
///
/// Its mbufs keep its memory when the last handle is gone.
///
/// ```
/// # mod tranship { pub use tranship_mbuf as mbuf; }
/// use tranship::mbuf::Mbufs;
///
/// let mbufs = Mbufs::new()?;
/// let mut packet = mbufs.devget(b"payload", 0)?;
/// packet.push_front(b"header, ")?; // in the space in front of it, or in an mbuf more
/// assert_eq!(packet.to_vec()?, b"header, payload");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mbufs {
    pub(crate) inner: Arc<Inner>,
    pub(crate) how: How,
}

impl Clone for Mbufs {
    fn clone(&self) -> Mbufs {
        self.with(self.how)
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        // Ordering: as for any count of references: the last handle sees the work of the others (partner: the release
        // of each other drop).
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            retire(Some(self.inner.clone()));
        }
    }
}

/// Options of an allocator.
///
/// ```
/// # mod tranship { pub use tranship_mbuf as mbuf; }
/// use tranship::mbuf::{Limits, MbufOptions};
///
/// let mbufs = MbufOptions::new().limits(Limits::NONE).window_bytes(1 << 30).build()?;
/// assert_eq!(mbufs.stats().outstanding(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MbufOptions {
    limits: Limits,
    window_bytes: u64,
    pool: Option<Pool>,
}

impl Default for MbufOptions {
    fn default() -> MbufOptions {
        MbufOptions {
            limits: Limits::default(),
            window_bytes: 16 << 30,
            pool: None,
        }
    }
}

impl MbufOptions {
    /// Limits after the machine's memory, addresses for 16 GiB, clusters in private memory.
    #[must_use]
    pub fn new() -> MbufOptions {
        MbufOptions::default()
    }
    /// Sets the most mbufs and clusters.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
    /// Sets the addresses to reserve: no more memory than that can ever be used. Rounded up to 2 MiB.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Self {
        self.window_bytes = bytes;
        self
    }
    /// Takes clusters from this pool, as buffers, so that chains can be sent to other domains without copying. Mbufs
    /// themselves are in private memory. The pool's own caches take the place of the packet zone.
    #[must_use]
    pub fn over_pool(mut self, pool: &Pool) -> Self {
        self.pool = Some(pool.clone());
        self
    }
    /// Makes the allocator.
    ///
    /// # Errors
    /// If the addresses cannot be reserved.
    pub fn build(self) -> io::Result<Mbufs> {
        retire(None);
        let window = self.window_bytes.max(1).next_multiple_of(2 << 20);
        let inner = Inner::new(self.pool, self.limits, window)?;
        Ok(Mbufs {
            inner,
            how: How::NoWait,
        })
    }
}

impl Mbufs {
    /// Makes an allocator over private memory, with the default limits.
    ///
    /// # Errors
    /// If no addresses can be reserved.
    pub fn new() -> io::Result<Mbufs> {
        MbufOptions::new().build()
    }

    /// Makes an allocator over a pool; see [`MbufOptions::over_pool`].
    ///
    /// # Errors
    /// If no addresses can be reserved.
    pub fn over_pool(pool: &Pool) -> io::Result<Mbufs> {
        MbufOptions::new().over_pool(pool).build()
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *self.inner.lock_limits()
    }

    /// Changes the limits. Mbufs and clusters above a limit stay until they are freed, and are not handed out again.
    ///
    /// # Errors
    /// If there are fewer mbufs than clusters (`EINVAL`).
    pub fn set_limits(&self, limits: Limits) -> Result<(), Error> {
        if !limits.fits() {
            return Err(Error::Limits {
                mbufs: limits.mbufs,
            });
        }
        let inner = &self.inner;
        *inner.lock_limits() = limits;
        for home in inner.more().iter() {
            home.zone().set_max(limits.mbufs);
        }
        for home in [&inner.mbuf, &inner.packet, &inner.mini] {
            home.zone().set_max(limits.mbufs);
        }
        for size in ClusterSize::ALL {
            inner.clusters[size as usize].set_max(limits.clusters(size));
        }
        inner.keep_cluster_limit();
        Ok(())
    }

    /// Gives everything that threads have cached back to the kegs, and empty slabs back to the arena. Returns the
    /// number of pages (`uma_reclaim`).
    #[doc(alias = "mb_reclaim")]
    pub fn reclaim(&self) -> u64 {
        let pages = self.inner.reap();
        self.inner.arena.purge();
        pages
    }

    /// Returns a handle of this allocator whose calls wait until there is a buffer (`M_WAITOK`): first come, first
    /// served.
    ///
    /// Operations on chains never wait.
    #[doc(alias = "M_WAITOK")]
    #[must_use]
    pub fn waiting(&self) -> Mbufs {
        self.with(How::Until(None))
    }

    /// Returns a handle of this allocator whose calls wait for a buffer for at most `timeout`.
    #[must_use]
    pub fn waiting_for(&self, timeout: Duration) -> Mbufs {
        self.with(How::Until(Instant::now().checked_add(timeout)))
    }

    fn with(&self, how: How) -> Mbufs {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        Mbufs {
            inner: self.inner.clone(),
            how,
        }
    }

    /// Returns the pool that clusters come from, if there is one.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        self.inner.pool.as_ref()
    }

    /// Allocates an mbuf with room for [`MLEN`] bytes.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_get")]
    #[inline]
    pub fn get(&self) -> Result<Chain, NoBuffers> {
        self.get_with(Kind::DATA, Flags::NONE)
    }

    /// Allocates an mbuf with a packet header and room for [`MHLEN`] bytes.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_gethdr")]
    #[doc(alias = "m_pkthdr_init")]
    #[inline]
    pub fn gethdr(&self) -> Result<Chain, NoBuffers> {
        self.get_with(Kind::DATA, Flags::PKTHDR)
    }

    /// Allocates an mbuf of a kind, with flags; `PKTHDR` among them gives it a header.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[inline(always)]
    pub fn get_with(&self, kind: Kind, flags: Flags) -> Result<Chain, NoBuffers> {
        self.inner.get(self.how, kind, flags).map(Chain::new)
    }

    /// Allocates a packet: an mbuf with a header, and a cluster of 2 KiB.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_getcl")]
    #[inline(always)]
    pub fn getcl(&self) -> Result<Chain, NoBuffers> {
        self.getcl_with(Kind::DATA, Flags::PKTHDR)
    }

    /// Allocates an mbuf with a cluster of 2 KiB, of a kind, with flags.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[inline(always)]
    pub fn getcl_with(&self, kind: Kind, flags: Flags) -> Result<Chain, NoBuffers> {
        self.inner.getcl(self.how, kind, flags).map(Chain::new)
    }

    /// Allocates a packet with a cluster of a size.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_getjcl")]
    pub fn getjcl(&self, size: ClusterSize) -> Result<Chain, NoBuffers> {
        self.getjcl_with(size, Kind::DATA, Flags::PKTHDR)
    }

    /// Allocates an empty mbuf with a cluster of a size, of a kind, with flags.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    pub fn getjcl_with(
        &self,
        size: ClusterSize,
        kind: Kind,
        flags: Flags,
    ) -> Result<Chain, NoBuffers> {
        self.inner
            .getjcl(self.how, size, kind, flags)
            .map(Chain::new)
    }

    /// Allocates a packet in one mbuf with room for `len` bytes, at most a page.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `TooLong`. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_get2")]
    pub fn get2(&self, len: usize) -> Result<Chain, Error> {
        self.get_up_to(len, MJUMPAGESIZE)
    }

    /// Allocates a packet in one mbuf with room for `len` bytes, at most 16 KiB.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `TooLong`. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_get3")]
    pub fn get3(&self, len: usize) -> Result<Chain, Error> {
        self.get_up_to(len, MJUM16BYTES)
    }

    fn get_up_to(&self, len: usize, limit: usize) -> Result<Chain, Error> {
        if len > limit {
            return Err(Error::TooLong { wanted: len, limit });
        }
        let seg = self.inner.fit(self.how, len, Kind::DATA, Flags::PKTHDR)?;
        Ok(Chain::new(seg))
    }

    /// Allocates an empty packet with room for `len` bytes, in as many mbufs as necessary: all of them or none.
    ///
    /// # Errors
    /// `TooLong` for more than 4,294,967,295 bytes; `NoBuffers` when there is no memory, or a limit is reached. It
    /// waits only if this handle does ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_getm2")]
    #[doc(alias = "m_getm")]
    pub fn getm2(&self, len: usize) -> Result<Chain, Error> {
        self.getm2_with(len, Kind::DATA, Flags::PKTHDR)
    }

    /// Allocates an empty chain with room for `len` bytes, of a kind. Of the flags, `PKTHDR` concerns the first mbuf,
    /// `EOR` the last.
    ///
    /// # Errors
    /// `TooLong` for more than 4,294,967,295 bytes; `NoBuffers` when there is no memory, or a limit is reached. It
    /// waits only if this handle does ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    pub fn getm2_with(&self, len: usize, kind: Kind, flags: Flags) -> Result<Chain, Error> {
        check_total(0, len)?;
        let flags = flags & (Flags::PKTHDR | Flags::EOR);
        Ok(self.inner.getm(self.how, len, kind, flags)?)
    }

    /// Allocates a mini-mbuf with a packet header: for external storage, without a data area of its own.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    pub fn mini(&self) -> Result<Chain, NoBuffers> {
        self.inner
            .mini(self.how, Kind::DATA, Flags::PKTHDR)
            .map(Chain::new)
    }

    /// Allocates a cluster by itself (`m_cljget` without an mbuf); [`Chain::attach_mut`] gives it to one (`m_cljset`).
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_cljget")]
    pub fn cluster(&self, size: ClusterSize) -> Result<Cluster, NoBuffers> {
        count(Routine::Clget);
        let at = self.inner.cluster(size, self.how)?;
        Ok(Cluster {
            at,
            size,
            from: self.clone(),
        })
    }
}

impl fmt::Debug for Mbufs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbufs")
            .field("pool", &self.inner.pool)
            .finish_non_exhaustive()
    }
}

/// A cluster without an mbuf. It first contains the bytes of its earlier use.
pub struct Cluster {
    at: NonNull<u8>,
    size: ClusterSize,
    from: Mbufs,
}

// SAFETY: plain memory that this handle owns.
unsafe impl Send for Cluster {}
// SAFETY: as above; shared, it is only read.
unsafe impl Sync for Cluster {}

impl AsRef<[u8]> for Cluster {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a cluster has that many bytes and is this handle's; zone memory is initialised.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.size.bytes()) }
    }
}

impl AsMut<[u8]> for Cluster {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.size.bytes()) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: it came from there and is not used again.
        unsafe { self.from.inner.free_cluster(self.at, self.size) };
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Allocates empty mbufs with room for `len` bytes. A page is taken instead of two clusters if there is one.
    pub(crate) fn getm(
        &self,
        how: How,
        len: usize,
        kind: Kind,
        flags: Flags,
    ) -> Result<Chain, NoBuffers> {
        let mut chain: Option<Chain> = None;
        let mut last = None::<Seg>;
        let mut left = len;
        loop {
            let header = match last {
                None => flags & Flags::PKTHDR,
                Some(_) => Flags::NONE,
            };
            let seg = if left > MCLBYTES {
                self.getjcl(How::NoWait, ClusterSize::Page, kind, header)
                    .or_else(|_| self.getcl(how, kind, header))
            } else if left >= MINCLSIZE {
                self.getcl(how, kind, header)
            } else {
                self.get(how, kind, header)
            }?;
            match last {
                None => chain = Some(Chain::new(seg)),
                Some(last) => last.set_next(Some(seg)),
            }
            last = Some(seg);
            left = left.saturating_sub(seg.size());
            if left == 0 {
                seg.set_flags(seg.flags() | flags & Flags::EOR);
                break;
            }
        }
        chain.ok_or_else(|| What::Mbuf.into()) // the loop made at least one
    }
}
