//! The debug mode of a zone: catches double frees, uses after a free, overruns, and frees to the wrong zone, and names
//! the code that did it.
//!
//! Nothing is cached: each allocation and each free comes here. Freed items are filled with a pattern, or summed if
//! they keep the state that `init` made. They rest in a quarantine before they go to the keg. A change meanwhile is a
//! use after the free. The bytes between one item's end and the next one's beginning, if the keg left any, hold a
//! pattern that an overrun changes. All records are outside of the items. Wrong use panics with a message that says
//! what happened, where, and which code allocated and freed the item.

use super::keg::ItemKeg;
use crate::arena::UNIT;
use std::backtrace::Backtrace;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::ptr::NonNull;
use tranship_zone::lock::Lock;

const FREED: u8 = 0xdf;
const REDZONE: u8 = 0xbb;

/// Options of a zone's debug mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebugOptions {
    /// Freed items that rest before they can be used again.
    pub quarantine: usize,
    /// Whether to record a backtrace of each allocation and free: some microseconds each.
    pub backtraces: bool,
}

impl Default for DebugOptions {
    fn default() -> Self {
        Self {
            quarantine: 256,
            backtraces: true,
        }
    }
}

struct Record {
    allocated: Option<Backtrace>,
    freed: Option<Freed>,
}

struct Freed {
    by: Option<Backtrace>,
    sum: u64,
}

#[derive(Default)]
struct State {
    /// Items that are out or in quarantine.
    records: HashMap<u32, Record>,
    quarantine: VecDeque<u32>,
}

/// A zone's records.
pub(crate) struct Debug {
    options: DebugOptions,
    /// Freed items must keep their bytes.
    keeps: bool,
    state: Lock<State>,
}

impl Debug {
    pub(super) fn new(options: DebugOptions, keeps: bool) -> Self {
        Self {
            options,
            keeps,
            state: Lock::default(),
        }
    }

    pub(super) fn lock(&self) -> &Lock<impl Sized> {
        &self.state
    }

    fn who(&self) -> Option<Backtrace> {
        self.options.backtraces.then(Backtrace::force_capture)
    }

    /// Records that an item goes to a user.
    pub(super) fn on_alloc(&self, keg: &ItemKeg, item: u32) {
        fill(slack(keg, item), REDZONE);
        let record = Record {
            allocated: self.who(),
            freed: None,
        };
        let before = self.state.lock().records.insert(item, record);
        debug_assert!(before.is_none(), "the keg gives an item to one user");
    }

    /// Checks a free of `item`, before its destructor.
    ///
    /// # Panics
    /// If the free is wrong.
    pub(super) fn check_free(&self, name: &str, keg: &ItemKeg, address: NonNull<u8>) {
        let item = keg
            .is_item(address.as_ptr())
            .then(|| keg.number(address))
            .flatten();
        let Some(item) = item else {
            panic!(
                "zone {name}: free of {address:p}, which is no item of its keg: wrong zone or wrong address"
            );
        };
        let freed = Freed {
            by: self.who(),
            sum: 0,
        };
        let mut state = self.state.lock();
        match state.records.get_mut(&item) {
            None => panic!(
                "zone {name}: free of {address:p}, which was not allocated from it: another zone's, or freed long ago"
            ),
            Some(record) if record.freed.is_some() => panic!(
                "zone {name}: double free of {address:p}\n{}",
                record.story()
            ),
            Some(record) => {
                if let Some(at) = changed(slack(keg, item), REDZONE) {
                    panic!(
                        "zone {name}: overrun of {address:p} ({} bytes): the byte at {at} past its end was written\n{}",
                        keg.item_bytes(),
                        record.story()
                    );
                }
                record.freed = Some(freed);
            }
        }
    }

    /// Puts a checked item to rest; returns items that have rested long enough.
    ///
    /// # Panics
    /// If one of the returned items was used meanwhile.
    pub(super) fn on_free(&self, name: &str, keg: &ItemKeg, item: u32, keep: bool) -> Vec<u32> {
        if !self.keeps {
            fill(body(keg, item), FREED);
        }
        let sum = sum(body(keg, item));
        let mut state = self.state.lock();
        if let Some(freed) = state
            .records
            .get_mut(&item)
            .and_then(|record| record.freed.as_mut())
        {
            freed.sum = sum;
        }
        state.quarantine.push_back(item);
        let most = if keep { self.options.quarantine } else { 0 };
        state.leave(name, keg, most)
    }

    /// Takes all resting items.
    ///
    /// # Panics
    /// Like [`on_free`](Self::on_free).
    pub(super) fn flush(&self, name: &str, keg: &ItemKeg) -> Vec<u32> {
        self.state.lock().leave(name, keg, 0)
    }

    /// Returns the items in use, each with its holder.
    pub(super) fn holders(&self, keg: &ItemKeg) -> Vec<(NonNull<u8>, String)> {
        let state = self.state.lock();
        let out = state
            .records
            .iter()
            .filter(|(_, record)| record.freed.is_none());
        out.map(|(&item, record)| (keg.address(item), record.story()))
            .collect()
    }
}

impl State {
    fn leave(&mut self, name: &str, keg: &ItemKeg, most: usize) -> Vec<u32> {
        let mut out = Vec::new();
        while self.quarantine.len() > most
            && let Some(item) = self.quarantine.pop_front()
        {
            let record = self.records.remove(&item);
            if let Some(record) = record
                && let Some(freed) = &record.freed
                && freed.sum != sum(body(keg, item))
            {
                panic!(
                    "zone {name}: use after free: {:p} was written after it was freed\n{}",
                    keg.address(item),
                    record.story()
                );
            }
            out.push(item);
        }
        out
    }
}

impl Record {
    fn story(&self) -> String {
        let mut text = String::new();
        let freed = self.freed.as_ref().and_then(|freed| freed.by.as_ref());
        for (what, who) in [("allocated", self.allocated.as_ref()), ("freed", freed)] {
            if let Some(who) = who {
                // Writing to a string cannot fail.
                let _ = write!(text, "{what} by:\n{who}");
            }
        }
        text
    }
}

/// Returns an item's bytes.
fn body(keg: &ItemKeg, item: u32) -> (NonNull<u8>, usize) {
    (keg.address(item), len(keg.item_bytes()))
}

/// Returns the bytes between an item and the next one.
fn slack(keg: &ItemKeg, item: u32) -> (NonNull<u8>, usize) {
    let bytes = keg.item_bytes();
    let end = u64::from(item) * UNIT + bytes;
    (keg.arena().at(end), len(keg.stride() - bytes))
}

fn len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("an item fits into memory")
}

fn fill((start, len): (NonNull<u8>, usize), pattern: u8) {
    // SAFETY: inside an item's place, which has no user at the moment, or behind its end.
    unsafe { start.as_ptr().write_bytes(pattern, len) };
}

/// Finds the first byte that differs from the pattern.
fn changed((start, len): (NonNull<u8>, usize), pattern: u8) -> Option<usize> {
    // SAFETY: as in `fill`; a concurrent write there is the error that is searched for, so reads are volatile.
    (0..len).find(|&at| unsafe { start.as_ptr().add(at).read_volatile() } != pattern)
}

/// Returns a checksum of bytes that depends on their order (FNV-1a).
fn sum((start, len): (NonNull<u8>, usize)) -> u64 {
    (0..len).fold(0xcbf2_9ce4_8422_2325, |sum: u64, at| {
        // SAFETY: as in `changed`.
        let byte = unsafe { start.as_ptr().add(at).read_volatile() };
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
