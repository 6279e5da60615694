//! The pools that can be received from.

use crate::domain::DomainCore;
use crate::error::{Error, ErrorKind};
use crate::link::descriptor::Reference;
use crate::link::shared::{Assigned, Assignment};
use crate::options::{ChannelOptions, PoolOptions};
use crate::pool::{ForeignPool, OwnPool, Pool};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tranship_proto::{PoolId, Trust};

/// Place of the pool at hand: first the one that was assigned first.
pub(super) const FIRST: usize = 0;

/// A pool that can be received from.
pub(super) struct In {
    pub(super) pool: PoolId,
    pub(super) assignment: Arc<Assignment>,
    /// Whether the sender is not the pool's writer: then its references are checked by generation.
    pub(super) forwarded: bool,
}

/// Data of a pool for the fast path, without a way through three structures.
#[derive(Clone, Copy)]
pub(super) struct AtHand {
    pub(super) pool: PoolId,
    pub(super) slots: u32,
    pub(super) forwarded: bool,
    /// Whether a buffer that is moved here may be written.
    pub(super) written: bool,
    pub(super) foreign: NonNull<ForeignPool>,
    pub(super) rcvd: NonNull<AtomicU32>,
}

// SAFETY: it points into an assignment that `ins` beside it keeps, and that is Send and Sync.
unsafe impl Send for AtHand {}

// SAFETY: as above.
unsafe impl Sync for AtHand {}

impl AtHand {
    pub(super) fn of(entry: &In) -> Option<AtHand> {
        let Assigned::Foreign(foreign) = &entry.assignment.side else {
            return None;
        };
        // A buffer of such a pool takes the long way.
        let noted = foreign.domain.leaks.is_some();
        if noted || matches!(foreign.shape.trust, Trust::Half | Trust::None) {
            return None;
        }
        let counts = entry.assignment.counts.counts();
        (counts.len() >= foreign.shape.slots as usize).then(|| AtHand {
            pool: entry.pool,
            slots: foreign.shape.slots,
            forwarded: entry.forwarded,
            written: foreign.shape.trust.all_write(),
            foreign: NonNull::from(&**foreign),
            rcvd: NonNull::from(counts).cast(),
        })
    }

    #[inline(always)]
    pub(super) fn foreign(&self) -> &ForeignPool {
        // SAFETY: `ins` keeps the assignment, which keeps the pool.
        unsafe { self.foreign.as_ref() }
    }

    /// Whether it is the pool of the named buffer, whose bytes are here.
    #[inline(always)]
    pub(super) fn has(&self, of: &Reference) -> bool {
        self.pool == of.id.pool()
            && of.id.slot() < self.slots
            && self.foreign().is_here(of.offset, of.length, of.serial)
    }
}

/// Returns the pool that the options name for copies.
pub(in crate::link) fn snapshots(
    domain: &DomainCore,
    options: &ChannelOptions,
) -> Result<Option<Pool>, Error> {
    let Some(pool) = options.snapshots else {
        return Ok(None);
    };
    let own = OwnPool::find(domain, pool);
    let missing = || {
        let text =
            format!("pool {pool}, which is to take copies, is not one of the domain that receives");
        Error::new(ErrorKind::BadArgument, text)
    };
    own.map(Pool::from_arc).map(Some).ok_or_else(missing)
}

/// Returns the channel's pool for arrivals: the one that the options name, else a new one of the options' shape, or of
/// `otherwise`'s.
pub(in crate::link) fn arrivals(
    domain: &DomainCore,
    options: &ChannelOptions,
    otherwise: Option<PoolOptions>,
) -> Result<Option<Pool>, Error> {
    if let Some(pool) = snapshots(domain, options)? {
        return Ok(Some(pool));
    }
    let make =
        |options: PoolOptions| domain.patiently(None, || Pool::create(domain, options.clone()));
    options.arrivals.clone().or(otherwise).map(make).transpose()
}

/// Whether buffers of the pool have to be copied.
pub(super) fn is_copied(pool: &ForeignPool) -> bool {
    pool.shape.trust == Trust::None
}
