//! Runs of pages out of chunks that come and go.
//!
//! A pool's window has room for a number of chunks; each that is present is cut into pages of 4 KiB. A run of up to one
//! chunk lies inside one chunk. A longer run begins at a chunk's start and takes the following chunks; other runs can
//! use the rest of the last one. Among the chunks in which a run fits, the fullest is taken, so that the others become
//! empty and can be given back.

use crate::bits::Bits;
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a page, the unit of runs.
pub const PAGE: u64 = 4096;

/// Consecutive pages; page 0 is the window's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// Number of the first page in the window.
    pub first_page: u32,
    /// How many pages.
    pub pages: u32,
}

impl Run {
    /// Returns the run's offset from the window's start, bytes.
    #[must_use]
    pub fn offset(self) -> u64 {
        u64::from(self.first_page) * PAGE
    }

    /// Returns the length, bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.pages) * PAGE
    }
}

#[derive(Debug)]
struct Chunk {
    used: Bits,
    free: u32,
    longest: u32,
    draining: bool,
}

/// An allocator of runs of pages. Not synchronised: the owner locks it.
#[derive(Debug)]
pub struct RunAllocator {
    chunk_pages: u32,
    chunks: Vec<Option<Chunk>>,
    /// `by_hole[k]`: chunks whose longest hole is `2^k .. 2^(k+1)` pages, as (free pages, index).
    by_hole: Vec<BTreeSet<(u32, u32)>>,
    /// Clear bits stand for present, free chunks that do not drain: long runs may go there.
    occupied: Bits,
    present: u32,
    used: u64,
    /// Chunks that are partly in use, and the most of them since the last query.
    busy: u32,
    most_busy: u32,
}

impl RunAllocator {
    /// Makes a window of `chunk_count` places for chunks of `chunk_bytes` each, all absent.
    ///
    /// # Panics
    /// If `chunk_bytes` is not a power of two of at least 64 KiB, or the window has 2^32 pages or more.
    #[must_use]
    pub fn new(chunk_count: u32, chunk_bytes: u64) -> Self {
        assert!(
            chunk_bytes.is_power_of_two() && chunk_bytes >= 64 << 10,
            "chunk of {chunk_bytes} bytes"
        );
        let total = u64::from(chunk_count).saturating_mul(chunk_bytes / PAGE);
        assert!(total < 1 << 32, "window of {total} pages");
        let chunk_pages =
            u32::try_from(chunk_bytes / PAGE).expect("a chunk of fewer than 2^32 pages");
        Self {
            chunk_pages,
            chunks: std::iter::repeat_with(|| None)
                .take(chunk_count as usize)
                .collect(),
            by_hole: vec![BTreeSet::new(); chunk_pages.ilog2() as usize + 1],
            occupied: Bits::full(chunk_count as usize),
            present: 0,
            used: 0,
            busy: 0,
            most_busy: 0,
        }
    }

    /// Returns the pages of one chunk.
    #[must_use]
    pub fn chunk_pages(&self) -> u32 {
        self.chunk_pages
    }

    /// Returns the number of present chunks.
    #[must_use]
    pub fn present(&self) -> u32 {
        self.present
    }

    /// Returns the number of pages in use in all chunks.
    #[must_use]
    pub fn total_used_pages(&self) -> u64 {
        self.used
    }

    /// Returns the number of chunks that are partly in use.
    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Returns the most chunks that were in use at once, in whole or in part, since the last call.
    pub fn take_most_busy(&mut self) -> u32 {
        std::mem::replace(&mut self.most_busy, self.busy)
    }

    /// Says whether chunk `index` is present.
    #[must_use]
    pub fn has_chunk(&self, index: u32) -> bool {
        self.chunk(index).is_some()
    }

    /// Returns the chunks that a run touches.
    #[must_use]
    pub fn chunks_of(&self, run: Run) -> Range<u32> {
        let first = run.first_page / self.chunk_pages;
        first..first + run.pages.div_ceil(self.chunk_pages).max(1)
    }

    /// Returns the pages of chunk `index`.
    #[must_use]
    pub fn pages_of(&self, index: u32) -> Range<u32> {
        index * self.chunk_pages..(index + 1) * self.chunk_pages
    }

    /// Adds a chunk; returns `false` if its place is taken or outside of the window.
    pub fn add_chunk(&mut self, index: u32) -> bool {
        let pages = self.chunk_pages;
        match self.chunks.get_mut(index as usize) {
            Some(place @ None) => {
                let used = Bits::clear(pages as usize);
                *place = Some(Chunk {
                    used,
                    free: pages,
                    longest: pages,
                    draining: false,
                });
            }
            _ => return false,
        }
        self.present += 1;
        self.enlist(index);
        true
    }

    /// Removes a free chunk. Returns `false`, and changes nothing, if it is absent or in use.
    pub fn take_chunk(&mut self, index: u32) -> bool {
        if self
            .chunk(index)
            .is_none_or(|chunk| chunk.free < self.chunk_pages)
        {
            return false;
        }
        self.delist(index);
        self.chunks[index as usize] = None;
        self.present -= 1;
        true
    }

    /// Returns the free chunks, draining ones included.
    pub fn free_chunks(&self) -> impl Iterator<Item = u32> + '_ {
        self.present_chunks()
            .filter(|(_, chunk)| chunk.free == self.chunk_pages)
            .map(|(index, _)| index)
    }

    /// Sets whether the chunk drains: then it gives no new runs (a private mark of the writer). Absent chunks ignore
    /// it.
    pub fn set_draining(&mut self, index: u32, draining: bool) {
        if self.chunk(index).is_none() {
            return;
        }
        self.delist(index);
        if let Some(chunk) = self.chunks[index as usize].as_mut() {
            chunk.draining = draining;
        }
        self.enlist(index);
    }

    /// Says whether the chunk is draining.
    #[must_use]
    pub fn is_draining(&self, index: u32) -> bool {
        self.chunk(index).is_some_and(|chunk| chunk.draining)
    }

    /// Returns the pages in use in a chunk; 0 if it is absent.
    #[must_use]
    pub fn used_pages(&self, index: u32) -> u32 {
        self.chunk(index)
            .map_or(0, |chunk| self.chunk_pages - chunk.free)
    }

    /// Returns the chunk with the fewest used pages that does not drain (the highest such index): the one to drain
    /// next.
    #[must_use]
    pub fn emptiest(&self) -> Option<u32> {
        self.present_chunks()
            .filter(|(_, c)| !c.draining)
            .max_by_key(|&(i, c)| (c.free, i))
            .map(|(i, _)| i)
    }

    /// Allocates a run of `pages`, or returns `None` if no hole is long enough.
    pub fn alloc(&mut self, pages: u32) -> Option<Run> {
        if pages == 0 {
            return None;
        }
        let first_page = if pages <= self.chunk_pages {
            let index = self.chunk_for(pages)?;
            let hole = self.chunk(index)?.used.find_hole(0, pages as usize)?;
            index * self.chunk_pages + u32::try_from(hole.start).ok()?
        } else {
            let count = pages.div_ceil(self.chunk_pages) as usize;
            let hole = self.occupied.find_hole(0, count)?;
            u32::try_from(hole.start).ok()? * self.chunk_pages
        };
        let run = Run { first_page, pages };
        self.change(run, true);
        Some(run)
    }

    /// Takes a whole chunk, if it is present and free.
    pub fn alloc_chunk(&mut self, index: u32) -> Option<Run> {
        let free = self.chunk(index)?.free == self.chunk_pages;
        let run = Run {
            first_page: index * self.chunk_pages,
            pages: self.chunk_pages,
        };
        free.then(|| self.change(run, true)).map(|()| run)
    }

    /// Finds adjacent places for `count` absent chunks: the highest, so that the others remain for growth chunk by
    /// chunk.
    #[must_use]
    pub fn plan_absent(&self, count: u32) -> Option<Range<u32>> {
        let mut length = 0;
        for index in (0..u32::try_from(self.chunks.len()).ok()?).rev() {
            length = match self.has_chunk(index) {
                true => 0,
                false => length + 1,
            };
            if length == count {
                return Some(index..index + count);
            }
        }
        None
    }

    /// Takes a run back.
    ///
    /// # Panics
    /// If part of it is not in use: a page must never have two owners.
    pub fn free(&mut self, run: Run) {
        self.change(run, false);
    }

    /// Finds the chunks to add so that `alloc(pages)` succeeds. There are none if it does already. Otherwise they are
    /// the places with the fewest absent chunks, and the lowest of those. Returns `None` if the window cannot hold the
    /// run now.
    #[must_use]
    pub fn plan_growth(&self, pages: u32) -> Option<Vec<u32>> {
        if pages == 0 {
            return None;
        }
        if pages <= self.chunk_pages {
            if self.chunk_for(pages).is_some() {
                return Some(Vec::new());
            }
            return (0..)
                .zip(&self.chunks)
                .find(|(_, chunk)| chunk.is_none())
                .map(|(index, _)| vec![index]);
        }
        let count = pages.div_ceil(self.chunk_pages);
        let absent = |index: u32| self.chunk(index).is_none();
        let usable = |index: u32| absent(index) || !self.occupied.get(index as usize);
        let (mut length, mut missing) = (0, 0);
        let mut best: Option<(u32, u32)> = None;
        for index in 0..u32::try_from(self.chunks.len()).ok()? {
            if !usable(index) {
                (length, missing) = (0, 0);
                continue;
            }
            length += 1;
            missing += u32::from(absent(index));
            if length > count {
                missing -= u32::from(absent(index - count));
            }
            if length >= count && best.is_none_or(|(fewest, _)| missing < fewest) {
                best = Some((missing, index + 1 - count));
            }
        }
        best.map(|(_, first)| {
            (first..first + count)
                .filter(|&index| absent(index))
                .collect()
        })
    }

    fn chunk(&self, index: u32) -> Option<&Chunk> {
        self.chunks.get(index as usize)?.as_ref()
    }

    fn present_chunks(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        (0..)
            .zip(&self.chunks)
            .filter_map(|(index, chunk)| Some((index, chunk.as_ref()?)))
    }

    /// Returns the fullest chunk with a hole of `pages`.
    fn chunk_for(&self, pages: u32) -> Option<u32> {
        let level = pages.ilog2() as usize;
        // In the higher levels every chunk fits; in this level some do.
        let above = self.by_hole[level + 1..]
            .iter()
            .filter_map(|set| set.first())
            .min()
            .copied();
        let here = self.by_hole[level]
            .iter()
            .take_while(|entry| above.is_none_or(|other| **entry < other))
            .find(|&&(_, index)| {
                self.chunk(index)
                    .is_some_and(|chunk| chunk.longest >= pages)
            });
        here.copied().or(above).map(|(_, index)| index)
    }

    /// Marks the pages of a run as used or as free.
    fn change(&mut self, run: Run, used: bool) {
        let end = run.first_page + run.pages;
        let mut page = run.first_page;
        while page < end {
            let index = page / self.chunk_pages;
            let low = page % self.chunk_pages;
            let count = (end - page).min(self.chunk_pages - low);
            self.delist(index);
            let chunk = self.chunks[index as usize]
                .as_mut()
                .expect("a run lies in chunks that are present");
            let range = low as usize..(low + count) as usize;
            let was_free = chunk.free == self.chunk_pages;
            if used {
                chunk.mark_used(range);
            } else {
                assert!(
                    chunk.used.all_set(range.clone()),
                    "run {run:?} was not in use"
                );
                chunk.mark_free(range);
            }
            match (was_free, chunk.free == self.chunk_pages) {
                (true, false) => self.busy += 1,
                (false, true) => self.busy -= 1,
                _ => {}
            }
            self.most_busy = self.most_busy.max(self.busy);
            self.enlist(index);
            page += count;
        }
        let pages = u64::from(run.pages);
        self.used = if used {
            self.used + pages
        } else {
            self.used - pages
        };
    }

    fn delist(&mut self, index: u32) {
        if let Some(chunk) = self.chunks[index as usize].as_ref()
            && chunk.longest > 0
        {
            self.by_hole[chunk.longest.ilog2() as usize].remove(&(chunk.free, index));
        }
        self.occupied.set(index as usize..index as usize + 1);
    }

    fn enlist(&mut self, index: u32) {
        let Some(chunk) = self.chunks[index as usize]
            .as_ref()
            .filter(|chunk| !chunk.draining)
        else {
            return;
        };
        if chunk.longest > 0 {
            self.by_hole[chunk.longest.ilog2() as usize].insert((chunk.free, index));
        }
        if chunk.free == self.chunk_pages {
            self.occupied.unset(index as usize..index as usize + 1);
        }
    }
}

impl Chunk {
    fn mark_used(&mut self, range: Range<usize>) {
        let hole = self.used.hole_around(range.start);
        debug_assert!(range.end <= hole.end);
        self.free -= pages(range.len());
        self.used.set(range);
        if pages(hole.len()) == self.longest {
            self.longest = pages(self.used.longest_hole());
        }
    }

    fn mark_free(&mut self, range: Range<usize>) {
        self.free += pages(range.len());
        let start = range.start;
        self.used.unset(range);
        self.longest = self.longest.max(pages(self.used.hole_around(start).len()));
    }
}

/// A count of pages inside one chunk.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a chunk has fewer than 2^32 pages, checked in new"
)]
fn pages(count: usize) -> u32 {
    count as u32
}
