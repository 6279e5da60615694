//! Segmented LRU: a new item is on probation; an item that is used again is protected, up to four fifths of the bytes.
//! So a scan of keys that are asked for once drives out no item that is asked for often.

use super::entry::{Entry, Links, NONE};

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

impl Default for List {
    fn default() -> List {
        List {
            newest: NONE,
            oldest: NONE,
            bytes: 0,
        }
    }
}

/// The two segments.
#[derive(Debug, Default)]
pub(super) struct Lists {
    probation: List,
    protected: List,
}

/// Seconds for which an entry stays where it is however often it is used, as memcached's ITEM_UPDATE_INTERVAL.
const STAYS: u32 = 60;

type Entries = [Option<Entry>];

fn links(entries: &mut Entries, index: u32) -> &mut Links {
    &mut entries[index as usize].as_mut().expect("in use").links
}

impl Lists {
    pub(super) fn add(&mut self, entries: &mut Entries, index: u32, cost: u64) {
        links(entries, index).protected = false;
        self.probation.push(entries, index, cost);
    }

    pub(super) fn take(&mut self, entries: &mut Entries, index: u32, cost: u64) {
        if links(entries, index).protected {
            self.protected.unlink(entries, index, cost);
        } else {
            self.probation.unlink(entries, index, cost);
        }
    }

    /// Notes that an item was used. An item that came to the front of the protected ones a short while ago stays where
    /// it is. Moving it would touch its neighbours, which nobody asked for and whose memory is far away.
    pub(super) fn touch(&mut self, entries: &mut Entries, index: u32, now: u32) {
        let own = links(entries, index);
        if own.protected && now.wrapping_sub(own.since) < STAYS {
            return;
        }
        own.since = now;
        let cost = entries[index as usize].as_ref().expect("in use").cost();
        self.take(entries, index, cost);
        links(entries, index).protected = true;
        self.protected.push(entries, index, cost);
        while self.protected.bytes > (self.protected.bytes + self.probation.bytes) / 5 * 4
            && self.protected.oldest != index
        {
            let oldest = self.protected.oldest;
            let cost = entries[oldest as usize].as_ref().expect("in use").cost();
            self.protected.unlink(entries, oldest, cost);
            links(entries, oldest).protected = false;
            self.probation.push(entries, oldest, cost);
        }
    }

    pub(super) fn recount(&mut self, entries: &Entries, index: u32, before: u64, after: u64) {
        let entry = entries[index as usize].as_ref().expect("in use");
        let list = if entry.links.protected {
            &mut self.protected
        } else {
            &mut self.probation
        };
        list.bytes = list.bytes + after - before;
    }

    /// Returns all entries; the one that is evicted first comes first.
    pub(super) fn in_order(&self, entries: &Entries) -> impl Iterator<Item = u32> {
        let some = |index: u32| (index != NONE).then_some(index);
        let newer = move |&index: &u32| {
            let entry = entries[index as usize].as_ref();
            some(entry.expect("in use").links.newer)
        };
        [self.probation.oldest, self.protected.oldest]
            .into_iter()
            .flat_map(move |oldest| std::iter::successors(some(oldest), newer))
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        [self.probation.oldest, self.protected.oldest]
            .into_iter()
            .find(|&index| index != NONE)
    }
}

impl List {
    fn push(&mut self, entries: &mut Entries, index: u32, cost: u64) {
        let before = self.newest;
        let own = links(entries, index);
        (own.newer, own.older) = (NONE, before);
        match before {
            NONE => self.oldest = index,
            before => links(entries, before).newer = index,
        }
        self.newest = index;
        self.bytes += cost;
    }

    fn unlink(&mut self, entries: &mut Entries, index: u32, cost: u64) {
        let Links { newer, older, .. } = *links(entries, index);
        match newer {
            NONE => self.newest = older,
            newer => links(entries, newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => links(entries, older).newer = newer,
        }
        self.bytes -= cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_zcopy::Arena;

    #[test]
    fn what_is_used_often_moves_to_the_front_once_a_minute() {
        let arena = Arena::new().expect("an arena");
        let entry = |number: u64| {
            let value = arena.copy(b"value").expect("a value");
            Some(Entry::new(b"key", number, value, 0, 0, number, 2))
        };
        let mut entries: Vec<_> = (0..10).map(entry).collect();
        let mut lists = Lists::default();
        let cost = entries[0].as_ref().expect("there").cost();
        (0..10).for_each(|index| lists.add(&mut entries, index, cost));
        (0..8).for_each(|index| lists.touch(&mut entries, index, 100));
        assert_eq!((lists.protected.oldest, lists.protected.newest), (0, 7));
        lists.touch(&mut entries, 0, 100 + STAYS - 1);
        assert_eq!((lists.protected.oldest, lists.protected.newest), (0, 7));
        lists.touch(&mut entries, 0, 100 + STAYS);
        assert_eq!((lists.protected.oldest, lists.protected.newest), (1, 0));
        // On probation no item waits for a minute: these are evicted first.
        lists.touch(&mut entries, 9, 101);
        assert_eq!(lists.protected.newest, 9);
    }
}
