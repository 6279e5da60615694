//! The number of mappings that separately protected buffers of this process may take.
//!
//! A buffer that is protected by itself is a mapping of its own. The kernel limits the number of mappings of a process.
//! A transfer that meets the limit halfway can neither continue nor be undone. A pool therefore reserves in advance all
//! the mappings that it can ever need.

use std::sync::atomic::{AtomicU64, Ordering};
use tranship_sys::limits;

/// The share of a process's mappings that buffers may take, in quarters; the rest is for everything else.
const OF_FOUR: u64 = 3;

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// More mappings were asked for than the process may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{asked} mappings are needed for separately protected buffers; {taken} of {most} are taken (three quarters of vm.max_map_count)"
)]
pub struct NoMappings {
    pub asked: u64,
    pub taken: u64,
    pub most: u64,
}

/// Reserved mappings; dropping the value gives them back.
#[derive(Debug)]
pub struct Mappings(u64);

impl Mappings {
    /// Reserves a number of mappings.
    pub fn take(asked: u64) -> Result<Mappings, NoMappings> {
        let most = limits::max_mappings() / 4 * OF_FOUR;
        add(&TAKEN, asked, most).map(|()| Mappings(asked))
    }
}

fn add(count: &AtomicU64, asked: u64, most: u64) -> Result<(), NoMappings> {
    // Ordering: relaxed; the count orders nothing else.
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
        now.checked_add(asked)
            .filter(|sum| asked == 0 || *sum <= most)
    });
    let refused = |taken| NoMappings { asked, taken, most };
    added.map(drop).map_err(refused)
}

impl Drop for Mappings {
    fn drop(&mut self) {
        // Ordering: relaxed; the count orders nothing else.
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_are_is_refused_and_leaves_nothing() {
        let count = AtomicU64::new(0);
        assert_eq!(add(&count, 10, 10), Ok(()));
        let none = |asked, most| NoMappings {
            asked,
            taken: 10,
            most,
        };
        assert_eq!(add(&count, 1, 10), Err(none(1, 10)));
        assert_eq!(add(&count, 0, 5), Ok(()));
        let all = u64::MAX;
        assert_eq!(add(&count, all, all), Err(none(all, all)));
        assert_eq!(count.into_inner(), 10);
        let before = TAKEN.load(Ordering::Relaxed);
        assert!(Mappings::take(u64::MAX / 2).is_err());
        assert!(Mappings::take(1).is_ok());
        assert_eq!(TAKEN.load(Ordering::Relaxed), before);
    }
}
