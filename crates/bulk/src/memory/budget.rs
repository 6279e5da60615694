//! How many mappings and descriptors pools may take, in the whole process.
//!
//! A buffer that is protected or sealed by itself is a mapping of its own, and one that is sealed a descriptor too. The
//! kernel has limits for both, and whoever meets one in the middle of a transfer can go neither on nor back. So a pool asks
//! before its first buffer travels, for all that it can ever need.

use crate::{Error, Kind};
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_region::Mappings;
use tranship_sys::process;

/// Out of four parts of a process's descriptors, for bulk pools; the rest is for everything else in it.
const DESCRIPTORS_OF_FOUR: u64 = 2;

static DESCRIPTORS: AtomicU64 = AtomicU64::new(0);

/// What a pool may take; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Budget {
    _mappings: Mappings,
    descriptors: u64,
}

impl Budget {
    /// Room for buffers that are each a mapping and, if `sealed`, a descriptor. [`Kind::Limit`] if there is none.
    pub(crate) fn take(buffers: u32, sealed: bool) -> Result<Budget, Error> {
        let descriptors = if sealed { u64::from(buffers) } else { 0 };
        let mut budget = Budget {
            _mappings: Mappings::take(buffers.into())?,
            descriptors: 0,
        };
        let most = process::nofile_soft() / 4 * DESCRIPTORS_OF_FOUR;
        // An error drops what there is of the budget.
        add(&DESCRIPTORS, descriptors, most)?;
        budget.descriptors = descriptors;
        Ok(budget)
    }
}

fn add(count: &AtomicU64, more: u64, most: u64) -> Result<(), Error> {
    // Ordering: relaxed; a count by itself.
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
        now.checked_add(more)
            .filter(|sum| more == 0 || *sum <= most)
    });
    added.map(|_| ()).map_err(|now| {
        let why = format!("{more} descriptors more than the {now} in use, of {most} for pools");
        Error::new(Kind::Limit, why)
    })
}

impl Drop for Budget {
    fn drop(&mut self) {
        // Ordering: relaxed; a count by itself.
        DESCRIPTORS.fetch_sub(self.descriptors, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused_and_leaves_nothing() {
        let count = AtomicU64::new(0);
        assert_eq!(add(&count, 10, 10), Ok(()));
        assert_eq!(add(&count, 1, 10), Err(Kind::Limit.into()));
        assert_eq!(add(&count, 0, 5), Ok(()));
        assert_eq!(add(&count, u64::MAX, u64::MAX), Err(Kind::Limit.into()));
        assert_eq!(count.into_inner(), 10);
        assert_eq!(
            Budget::take(u32::MAX, false).map(drop),
            Err(Kind::Limit.into())
        );
        let descriptors = u32::try_from(process::nofile_soft()).unwrap_or(u32::MAX);
        let many = Budget::take(descriptors / 4 * 3, true);
        assert_eq!(many.map(drop), Err(Kind::Limit.into()));
        assert_eq!(Budget::take(1, true).map(drop), Ok(()));
    }
}
