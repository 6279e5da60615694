//! Holds on large buffers of other domains at level `none`. No domain can write them, so they are read as plain slices,
//! which must not change. Their chunks therefore stay mapped as long as there is a handle, whatever their writer says.
//!
//! An honest writer says that a chunk is gone only when no domain has a reference to its bytes, so nothing is ever put
//! off.

use std::collections::HashMap;
use std::ops::RangeInclusive;

#[derive(Debug)]
struct Pin {
    chunks: RangeInclusive<usize>,
    handles: u64,
}

/// Pins by slot. Handles of a liar's slot may name different chunks: all between them are kept.
#[derive(Debug, Default)]
pub(super) struct Pins {
    by_slot: HashMap<u32, Pin>,
    /// Chunks that the writer has returned and that are still pinned: index and serial.
    put_off: Vec<(u32, u32)>,
}

impl Pins {
    /// Counts one more handle of the slot, in these chunks.
    pub(super) fn add(&mut self, slot: u32, (first, last): (usize, usize)) {
        let pin = self.by_slot.entry(slot).or_insert(Pin {
            chunks: first..=last,
            handles: 0,
        });
        let (from, to) = (*pin.chunks.start(), *pin.chunks.end());
        pin.chunks = from.min(first)..=to.max(last);
        pin.handles += 1;
    }

    /// Counts a copy of a handle that has a pin.
    pub(super) fn add_again(&mut self, slot: u32) {
        if let Some(pin) = self.by_slot.get_mut(&slot) {
            pin.handles += 1;
        }
    }

    /// Counts a dropped handle. Returns the chunks that were put off and that no handle keeps any more.
    pub(super) fn remove(&mut self, slot: u32) -> Vec<(u32, u32)> {
        let Some(pin) = self.by_slot.get_mut(&slot) else {
            return Vec::new();
        };
        pin.handles -= 1;
        if pin.handles > 0 {
            return Vec::new();
        }
        self.by_slot.remove(&slot);
        let put_off = std::mem::take(&mut self.put_off);
        let (kept, gone) = put_off
            .into_iter()
            .partition(|(index, _)| self.keeps(*index));
        self.put_off = kept;
        gone
    }

    /// Whether a handle lies in the chunk.
    pub(super) fn keeps(&self, index: u32) -> bool {
        let mut all = self.by_slot.values();
        all.any(|pin| pin.chunks.contains(&(index as usize)))
    }

    /// Puts off the end of a chunk until no handle keeps it.
    pub(super) fn put_off(&mut self, index: u32, serial: u32) {
        if !self.put_off.contains(&(index, serial)) {
            self.put_off.push((index, serial)); // a new manager says it again
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pins;

    #[test]
    fn a_chunk_goes_with_the_last_handle_in_it() {
        let mut pins = Pins::default();
        pins.add(1, (2, 4));
        pins.add_again(1);
        pins.add(2, (4, 4));
        assert!(pins.keeps(2) && pins.keeps(3) && !pins.keeps(5));
        pins.put_off(3, 7);
        pins.put_off(4, 8);
        assert_eq!(pins.remove(1), []);
        assert_eq!(pins.remove(1), [(3, 7)]);
        assert!(!pins.keeps(3) && pins.keeps(4));
        assert_eq!(pins.remove(2), [(4, 8)]);
        assert_eq!(pins.remove(2), []);
        // Two ranges of one slot: all between them is kept.
        pins.add(3, (6, 6));
        pins.add(3, (1, 1));
        assert!(pins.keeps(4) && !pins.keeps(0));
    }
}
