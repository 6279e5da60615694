//! Which pages of a window are in use, free with memory, and free without.
//!
//! A freed page keeps its memory until it has been free through one whole period (two calls of [`Pages::age`]).
//! Frequent freeing and reuse therefore cost no system calls.

use std::collections::VecDeque;
use std::ops::Range;
use tranship_zone::{PAGE, Run, RunAllocator};

const ABSENT: u8 = 0;
const USED: u8 = 1;
const FRESH: u8 = 2;
const OLD: u8 = 3;

/// Runs of pages with their memory. The arena locks it.
pub(super) struct Pages {
    runs: RunAllocator,
    /// The state of each page up to the last that was ever in use.
    state: Vec<u8>,
    /// Runs that were freed in this period, and in the one before. They may have been used again.
    fresh: VecDeque<Run>,
    old: VecDeque<Run>,
    used: u64,
    committed: u64,
}

impl Pages {
    pub(super) fn new(chunks: u32, chunk_bytes: u64) -> Self {
        Self {
            runs: RunAllocator::new(chunks, chunk_bytes),
            state: Vec::new(),
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            used: 0,
            committed: 0,
        }
    }

    /// Returns the numbers of pages in use, and of pages with memory.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.used, self.committed)
    }

    /// Allocates a run of `pages` with memory, which `commit` gives; `None` if the window is full or `commit` refuses.
    pub(super) fn alloc(
        &mut self,
        pages: u32,
        mut commit: impl FnMut(Range<u64>) -> bool,
        decommit: impl FnMut(Range<u64>),
    ) -> Option<Run> {
        let run = match self.runs.alloc(pages) {
            Some(run) => run,
            None => {
                for chunk in self.runs.plan_growth(pages)? {
                    self.runs.add_chunk(chunk);
                }
                self.runs.alloc(pages)?
            }
        };
        let known = self.state.len().max(range_of(run).end);
        self.state.resize(known, ABSENT);
        let absent: Vec<Run> = self.pieces(run, |state| state == ABSENT).collect();
        for (done, piece) in absent.iter().enumerate() {
            if !commit(bytes_of(*piece)) {
                absent[..done]
                    .iter()
                    .map(|piece| bytes_of(*piece))
                    .for_each(decommit);
                self.runs.free(run);
                return None;
            }
        }
        let fresh: u64 = absent.iter().map(|piece| u64::from(piece.pages)).sum();
        self.committed += fresh;
        self.used += u64::from(run.pages);
        self.mark(run, USED);
        Some(run)
    }

    /// Counts pages of the memory's own allocator.
    pub(super) fn took_own(&mut self, pages: u32) {
        self.used += u64::from(pages);
        self.committed += u64::from(pages);
    }

    /// Counts pages that went back to the memory's own allocator.
    pub(super) fn gave_own(&mut self, pages: u32) {
        self.used -= u64::from(pages);
        self.committed -= u64::from(pages);
    }

    /// Takes a run back; its memory stays for a while.
    pub(super) fn free(&mut self, run: Run) {
        self.runs.free(run);
        self.used -= u64::from(run.pages);
        self.mark(run, FRESH);
        self.fresh.push_back(run);
    }

    /// Ends a period: takes the memory of pages that were free all through the period before.
    pub(super) fn age(&mut self, decommit: impl FnMut(Range<u64>)) -> u64 {
        let old = std::mem::take(&mut self.old);
        self.fresh.shrink_to_fit();
        let given = self.give(old.into(), |state| state == OLD, decommit);
        self.old = std::mem::take(&mut self.fresh);
        for at in 0..self.old.len() {
            let run = self.old[at];
            for state in &mut self.state[range_of(run)] {
                if *state == FRESH {
                    *state = OLD;
                }
            }
        }
        given
    }

    /// Takes the memory of all free pages; returns how many they were.
    pub(super) fn purge(&mut self, decommit: impl FnMut(Range<u64>)) -> u64 {
        let mut all = std::mem::take(&mut self.old);
        all.append(&mut self.fresh);
        self.give(all.into(), |state| state == OLD || state == FRESH, decommit)
    }

    /// Takes the memory of free pages, the longest free first, until at most `keep` have some; returns the number of
    /// pages.
    pub(super) fn trim(&mut self, keep: u64, decommit: impl FnMut(Range<u64>)) -> u64 {
        let mut surplus = (self.committed - self.used).saturating_sub(keep);
        let mut first = Vec::new();
        let free = |state| state == OLD || state == FRESH;
        for age in [0, 1] {
            let runs = if age == 0 { &self.old } else { &self.fresh };
            let mut taken = 0;
            for run in runs {
                if surplus == 0 {
                    break;
                }
                // A run may have been used again since, or be in the list twice; then it counts too often, and less is
                // taken.
                let pages: u32 = self.pieces(*run, free).map(|piece| piece.pages).sum();
                surplus = surplus.saturating_sub(u64::from(pages));
                taken += 1;
            }
            let runs = if age == 0 {
                &mut self.old
            } else {
                &mut self.fresh
            };
            first.extend(runs.drain(..taken));
        }
        self.give(first, free, decommit)
    }

    fn give(
        &mut self,
        mut runs: Vec<Run>,
        which: impl Fn(u8) -> bool,
        mut decommit: impl FnMut(Range<u64>),
    ) -> u64 {
        runs.sort_unstable();
        let mut given = 0;
        let mut last: Option<Run> = None;
        for run in runs {
            let pieces: Vec<Run> = self.pieces(run, &which).collect();
            for piece in pieces {
                self.mark(piece, ABSENT);
                given += u64::from(piece.pages);
                last = match last {
                    Some(last) if last.first_page + last.pages == piece.first_page => Some(Run {
                        first_page: last.first_page,
                        pages: last.pages + piece.pages,
                    }),
                    other => {
                        if let Some(run) = other {
                            decommit(bytes_of(run));
                        }
                        Some(piece)
                    }
                };
            }
        }
        if let Some(run) = last {
            decommit(bytes_of(run));
        }
        self.committed -= given;
        given
    }

    fn mark(&mut self, run: Run, state: u8) {
        self.state[range_of(run)].fill(state);
    }

    /// Finds the longest parts of a run whose pages are all in one state.
    fn pieces(&self, run: Run, which: impl Fn(u8) -> bool) -> impl Iterator<Item = Run> {
        let end = run.first_page + run.pages;
        let mut at = run.first_page;
        // Nearly always all are alike, which is found out many at a time.
        let states = &self.state[range_of(run)];
        let alike = states
            .iter()
            .fold(true, |alike, state| alike & (*state == states[0]));
        if alike && !which(states[0]) {
            at = end;
        }
        std::iter::from_fn(move || {
            if alike && at < end {
                at = end;
                return Some(run);
            }
            let is = |page: u32| which(self.state[page as usize]);
            let first_page = (at..end).find(|&page| is(page))?;
            let stop = (first_page..end).find(|&page| !is(page)).unwrap_or(end);
            at = stop;
            Some(Run {
                first_page,
                pages: stop - first_page,
            })
        })
    }
}

fn range_of(run: Run) -> Range<usize> {
    run.first_page as usize..(run.first_page + run.pages) as usize
}

fn bytes_of(run: Run) -> Range<u64> {
    run.offset()..run.offset() + u64::from(run.pages) * PAGE
}
