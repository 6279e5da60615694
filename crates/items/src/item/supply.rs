//! The layer between a zone's caches and its keg: initialising, and the limit.

use super::alarm::Notifier;
use super::debug::Debug;
use super::keg::ItemKeg;
use super::limit::Limit;
use super::object::Object;
use super::request::{AllocError, Wait};
use super::stats::ItemStats;
use std::sync::Arc;
use tranship_zone::Backend;
use tranship_zone::ZoneStats;
use tranship_zone::lock::Lock;
use tranship_zone::reaper;

/// Items that go to the keg under one lock.
const GIVEN_AT_ONCE: usize = 256;

/// The backend of an item zone.
pub(crate) struct Supply<O> {
    pub(crate) name: Box<str>,
    pub(crate) keg: Arc<ItemKeg>,
    pub(crate) object: O,
    pub(crate) limit: Limit,
    /// Whether the zone is under pressure because a thread sleeps.
    pub(crate) pressed: Lock<bool>,
    pub(crate) notifier: Notifier,
    pub(crate) debug: Option<Debug>,
}

impl<O: Object> Supply<O> {
    /// Imports one item that the limit has counted already; if there is none, the count is undone.
    pub(super) fn import_one(&self, wait: Wait, use_reserve: bool) -> Result<u32, AllocError> {
        let mut one = Vec::with_capacity(1);
        self.keg.take(&mut one, 1, use_reserve);
        let result = match one.pop() {
            None => Err(AllocError::NoMemory {
                bytes: self.keg.slab_bytes(),
            }),
            Some(item) if O::INITIALIZED => match self.object.init(self.keg.address(item), wait) {
                Ok(()) => Ok(item),
                Err(_) => {
                    self.keg.give(&[item]);
                    Err(AllocError::Init)
                }
            },
            Some(item) => Ok(item),
        };
        if result.is_err() {
            self.limit.give(1);
        }
        result
    }
}

impl<O> Supply<O> {
    /// Returns the zone's figures, those of its caches included.
    pub(super) fn stats(&self, zone: ZoneStats) -> ItemStats {
        let (limit, keg) = (&self.limit, &self.keg);
        ItemStats {
            zone,
            sleeps: limit.sleeps(),
            sleepers: limit.sleepers() as u64,
            items: limit.count(),
            max: limit.max(),
            item_bytes: keg.item_bytes(),
            keg_pages: keg.pages(),
        }
    }
}

impl<O: Object> Backend for Supply<O> {
    fn import(&self, out: &mut Vec<u32>, want: usize) {
        let before = out.len();
        let counted = self.limit.take(want as u64);
        let want = usize::try_from(counted).expect("at most what was wanted");
        self.keg.take(out, want, false);
        if O::INITIALIZED {
            let ready = out[before..]
                .iter()
                .position(|&item| self.object.init(self.keg.address(item), Wait::No).is_err());
            if let Some(ready) = ready {
                self.keg.give(&out[before + ready..]);
                out.truncate(before + ready);
            }
        }
        let got = (out.len() - before) as u64;
        if got < counted {
            self.limit.give(counted - got);
        }
    }

    fn release(&self, items: &[u32]) {
        if O::INITIALIZED {
            for &item in items {
                self.object.fini(self.keg.address(item));
            }
        }
        for some in items.chunks(GIVEN_AT_ONCE) {
            self.keg.give(some);
        }
        self.limit.give(items.len() as u64);
    }

    fn period(&self) -> bool {
        if self.limit.count() == 0 {
            self.keg.reap();
        }
        self.keg.period();
        self.keg.arena().period(reaper::now())
    }
}
