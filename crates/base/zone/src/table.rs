//! A growing table whose empty parts give their memory back.
//!
//! After a peak a few entries with high numbers may remain. A plain vector would keep the memory of all entries below
//! them.

/// Entries of a segment: large enough that the system's allocator maps a full one by itself, and so gives it back.
const SEGMENT: usize = 2048;

/// Entries numbered from 0. An entry that was vacated must not be looked at until it is set again.
#[derive(Debug)]
pub(crate) struct Table<T> {
    segments: Vec<Segment<T>>,
    len: usize,
}

#[derive(Debug)]
struct Segment<T> {
    entries: Vec<Option<T>>,
    live: usize,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Self {
        Self {
            segments: Vec::new(),
            len: 0,
        }
    }

    /// Returns one more than the highest number ever set.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        let segment = self.segments.get(number / SEGMENT)?;
        segment.entries.get(number % SEGMENT)?.as_ref()
    }

    /// Gives a vacant number an entry.
    pub(crate) fn set(&mut self, number: u32, entry: T) {
        let number = number as usize;
        let (which, at) = (number / SEGMENT, number % SEGMENT);
        while self.segments.len() <= which {
            self.segments.push(Segment {
                entries: Vec::new(),
                live: 0,
            });
        }
        let segment = &mut self.segments[which];
        if segment.entries.len() <= at {
            segment.entries.resize_with(at + 1, || None);
        }
        assert!(
            segment.entries[at].replace(entry).is_none(),
            "entry {number} was in use"
        );
        segment.live += 1;
        self.len = self.len.max(number + 1);
    }

    /// Takes an entry out.
    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        let segment = self.segments.get_mut(number as usize / SEGMENT)?;
        let entry = segment.entries.get_mut(number as usize % SEGMENT)?.take()?;
        segment.live -= 1;
        if segment.live == 0 {
            segment.entries = Vec::new();
        }
        Some(entry)
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        self.get(number).expect("the entry is in use")
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        self.segments[number / SEGMENT].entries[number % SEGMENT]
            .as_mut()
            .expect("the entry is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_and_empty_segments_have_no_memory() {
        let mut table = Table::new();
        for number in 0..5000 {
            table.set(number, number);
        }
        for number in 0..4999 {
            assert_eq!(table.take(number), Some(number));
            assert_eq!(table.take(number), None);
        }
        assert_eq!(table.segments[0].entries.capacity(), 0);
        assert_eq!((table.get(3), table[4999], table.len()), (None, 4999, 5000));
        table.set(7, 70);
        table[7] += 1;
        assert_eq!((table[7], table.get(6)), (71, None));
    }
}
