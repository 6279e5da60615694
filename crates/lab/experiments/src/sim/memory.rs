//! A pool's pages: in use, dead, free.

/// The cost of a collection, and of each page that it looks at (the shape of the paper's figure 7).
const COLLECT_NS: u64 = 2_000;
const COLLECT_PAGE_NS: u64 = 50;

#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub quota: u64,
    pub live: u64,
    pub free: u64,
    pub garbage: u64,
    pub peak: u64,
    pub waiting: u64,
    pub blocked_ns: u64,
    pub collect_ns: u64,
    pub collections: u64,
    pub allocs: u64,
}

impl Memory {
    pub fn resident(&self) -> u64 {
        self.live + self.free + self.garbage
    }

    /// Allocates a page: collected if necessary, new if allowed. `room` is the amount by which all pools together may
    /// still grow.
    pub fn alloc(&mut self, room: &mut u64) -> bool {
        if self.live >= self.quota {
            return false;
        }
        if self.free == 0 && self.garbage > 0 {
            self.collect_ns += COLLECT_NS + COLLECT_PAGE_NS * (self.live + self.garbage);
            self.collections += 1;
            self.free = std::mem::take(&mut self.garbage);
        }
        match self.free {
            0 if *room > 0 && self.resident() < self.quota => *room -= 1,
            0 => return false,
            _ => self.free -= 1,
        }
        self.live += 1;
        self.allocs += 1;
        self.peak = self.peak.max(self.live);
        true
    }

    /// Records that pages which were in use are dead.
    pub fn release(&mut self, pages: u64) {
        self.live -= pages;
        self.garbage += pages;
    }

    /// Gives back memory that is beyond the quota and not in use, and unused memory as far as others need it.
    pub fn give_back(&mut self, wanted: u64) -> u64 {
        let over = self.resident().saturating_sub(self.quota).max(wanted);
        let free = self.free.min(over);
        self.free -= free;
        let dead = self.garbage.min(over - free);
        self.garbage -= dead;
        free + dead
    }
}
