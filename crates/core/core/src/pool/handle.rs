//! The public handle of an own pool.

use super::own::OwnPool;
use crate::domain::DomainCore;
use crate::error::{Error, ErrorKind};
use crate::options::PoolOptions;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tranship_proto::{ALL_READERS, DomainId, PoolId, Request, Trust};

/// A pool that this domain writes. Clone it freely; threads may share it. When the last handle is gone the
/// pool is taken down as soon as nobody holds a buffer of it.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, ErrorKind, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20).name("frames"))?;
/// let mut frame = pool.alloc(4096)?;
/// frame[..5].copy_from_slice(b"hello");
/// let frame = frame.freeze(); // read-only from here on
/// assert_eq!(&frame.to_vec()[..5], b"hello");
/// assert_eq!(pool.try_alloc(2 << 20).unwrap_err().kind(), ErrorKind::TooLarge);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool {
    own: Arc<OwnPool>,
}

/// Figures of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStats {
    /// Buffers handed out so far, of all sizes.
    pub allocs: u64,
    /// Buffers that came back so far: dropped without being sent, or collected.
    pub frees: u64,
    /// Buffers of this process's caches.
    pub cached: u64,
    /// Bytes of chunks present.
    pub chunk_bytes_present: u64,
    /// The quota: the bytes that the pool may have now.
    pub quota_bytes: u64,
    /// Sent buffers found dead so far.
    pub collected: u64,
    /// Collections so far, but for those of a few buffers that senders make.
    pub collections: u64,
    /// Time spent in them, ns: of those that take one allocation a fraction of a microsecond one in 16 is timed.
    pub collect_ns: u64,
    /// Time callers spent blocked, ns.
    pub blocked_ns: u64,
    /// Callers waiting now.
    pub waiting: usize,
}

impl Pool {
    pub(crate) fn create(domain: &DomainCore, options: PoolOptions) -> Result<Pool, Error> {
        let pool = Pool {
            own: OwnPool::create(domain, options)?,
        };
        pool.own.preallocate()?;
        if pool.own.options().readers_forward {
            pool.give_right(ALL_READERS)?;
        }
        Ok(pool)
    }

    pub(crate) fn from_arc(own: Arc<OwnPool>) -> Pool {
        own.handles.fetch_add(1, Ordering::Relaxed);
        Pool { own }
    }

    #[inline(always)]
    pub(crate) fn own_ref(&self) -> &OwnPool {
        &self.own
    }

    pub(crate) fn own_arc(&self) -> Arc<OwnPool> {
        self.own.clone()
    }

    /// The system-wide id.
    pub fn id(&self) -> PoolId {
        self.own.id()
    }

    /// The largest size, bytes.
    pub fn max_bytes(&self) -> u64 {
        self.own.max_bytes()
    }

    /// Returns the level of trust: which domains can write the pool.
    pub fn trust(&self) -> Trust {
        self.own.trust()
    }

    /// Gives the right to forward: another domain may assign this pool to channels of its own, and so send on the
    /// buffers that it got. [`PoolOptions::allow_forward`] gives the right to all readers.
    ///
    /// Asks the manager and waits for its answer, as long as the [`manager_timeout`](crate::DomainBuilder::manager_timeout) says; while it is away,
    /// 5 s at most for it to come back.
    ///
    /// # Errors
    /// `Access` by its rules; `Stale` where it knows no such domain; `TimedOut` when it does not answer, which may give the right later; `ManagerAway`, `CutOff`; `Forked`.
    pub fn allow_forward(&self, domain: DomainId) -> Result<(), Error> {
        if domain == ALL_READERS {
            let text = format!(
                "there is no domain {domain}: PoolOptions::allow_forward lets all readers forward"
            );
            return Err(Error::new(ErrorKind::Stale, text));
        }
        self.give_right(domain)
    }

    /// Gives the right to forward. [`ALL_READERS`]: to all readers.
    fn give_right(&self, domain: DomainId) -> Result<(), Error> {
        let pool = self.own.id();
        // Crash: on record first, so that a manager that dies after its answer does not take the right with it.
        self.own.domain().register.add_right(pool, domain);
        let make = |req| Request::AllowForward { req, pool, domain };
        let core = self.own.domain();
        core.patiently(None, || core.call(make, &[]).map(|_| ()))
    }

    /// Returns the number of buffers that any domain holds, after a collection: for a program that waits until all came
    /// back. While the manager has news of readers, the number may be too high, never too low.
    pub fn in_use(&self) -> u64 {
        if self.own.domain().fork.is_child() {
            return 0;
        }
        let _ = self.own.collector.collect_idle(&self.own.memory); // what is missed counts as used
        let stats = self.stats();
        stats.allocs.saturating_sub(stats.frees)
    }

    /// Returns the pool's figures.
    pub fn stats(&self) -> PoolStats {
        let own = &*self.own;
        if own.domain().fork.is_child() {
            return PoolStats::default();
        }
        let (counts, counters) = (own.memory.counts(), &own.collector.counters);
        PoolStats {
            allocs: counts.allocs,
            frees: counts.frees,
            cached: counts.cached,
            chunk_bytes_present: own.memory.bytes_present(),
            quota_bytes: own.quota_bytes(),
            collected: counters.collected.load(Ordering::Relaxed),
            collections: counters.collections.load(Ordering::Relaxed),
            collect_ns: counters.collect_ns.load(Ordering::Relaxed),
            blocked_ns: own.waiters.blocked_ns(),
            waiting: own.waiters.count(),
        }
    }
}

impl Clone for Pool {
    fn clone(&self) -> Pool {
        Pool::from_arc(self.own.clone())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.own.handles.fetch_sub(1, Ordering::AcqRel) == 1
            && !self.own.domain().fork.is_child()
        {
            self.own.tend();
            self.own.domain().let_go();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("id", &self.id())
            .field("max_bytes", &self.max_bytes())
            .finish_non_exhaustive()
    }
}
