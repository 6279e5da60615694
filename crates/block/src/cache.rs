//! A cache in front of a store: whole blocks with their checksums, bounded in bytes, written through.
//!
//! What is thrown out is chosen by CLOCK (Corbato 1968): a hand goes round, takes the first block that was not used
//! since it last passed. A block is kept only if no write met it since it was read or written: a counter for each of
//! many groups of blocks says so.
//!
//! The cache knows nothing of writes that reach the server by another way: of its blocks, this must be the only writer.

use crate::{BLOCK_BYTES, Data, Done, Fault, Info, Job, Op, Request, Store, sum};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Groups of blocks that share a counter of writes.
const GROUPS: usize = 4096;

/// The blocks; shared by all stores that lead to the same server.
#[derive(Debug)]
pub struct Cache {
    blocks: Mutex<Blocks>,
    capacity: usize,
    writes: Box<[AtomicU64]>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Blocks {
    places: HashMap<u64, usize>,
    slots: Vec<Slot>,
    hand: usize,
    empty: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    block: u64,
    sum: u32,
    used: bool,
    bytes: Box<[u8]>,
}

impl Cache {
    /// Of at most so many bytes. Memory is taken as blocks come.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Cache> {
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK_BYTES;
        Arc::new(Cache {
            blocks: Mutex::default(),
            capacity,
            writes: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// Reads that were answered from here, and those that were not.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        // Ordering: relaxed; counts.
        let both = [&self.hits, &self.misses].map(|count| count.load(Ordering::Relaxed));
        (both[0], both[1])
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group(&self, block: u64) -> &AtomicU64 {
        // Neighbours have different counters, so that a long write moves each by one only.
        &self.writes[usize::try_from(block % GROUPS as u64).unwrap_or(0)]
    }

    /// The counters of a request's blocks.
    fn counts(&self, blocks: &Range<u64>) -> Vec<u64> {
        // Ordering: acquire, partner: `count_write`.
        let count = |block| self.group(block).load(Ordering::Acquire);
        blocks.clone().map(count).collect()
    }

    /// A write of these blocks begins: what is known about them is not any more. Gives their counters.
    fn begin_write(&self, blocks: &Range<u64>) -> Vec<u64> {
        let mut known = self.lock();
        known.forget_all(blocks);
        self.count_write(blocks);
        self.counts(blocks)
    }

    /// A write is over. What it left is known if no other met it; reads that are under way keep nothing, as they may
    /// have seen what was there before.
    fn end_write(&self, blocks: &Range<u64>, counts: &[u64], kept: Option<(&Request, &[u8])>) {
        let mut known = self.lock();
        known.forget_all(blocks);
        if let Some((request, bytes)) = kept {
            self.keep_in(&mut known, request, bytes, &request.sums, counts);
        }
        self.count_write(blocks);
    }

    /// The lock is held.
    fn count_write(&self, blocks: &Range<u64>) {
        for block in blocks.clone().take(GROUPS) {
            // Ordering: release, partner: `counts`.
            self.group(block).fetch_add(1, Ordering::Release);
        }
    }

    /// All of a request, if all of it is here.
    fn find(&self, request: &Request, data: &mut Data) -> Option<Vec<u32>> {
        let (offset, len) = (request.offset, request.len as usize);
        let mut known = self.lock();
        let places: Option<Vec<usize>> = blocks(request)
            .map(|block| known.places.get(&block).copied())
            .collect();
        let mut sums = Vec::new();
        for ((at, piece), place) in sum::pieces(offset, len).zip(places?) {
            let slot = &mut known.slots[place];
            slot.used = true;
            let from =
                usize::try_from(offset + at as u64 - slot.block * BLOCK_BYTES as u64).ok()?;
            let bytes = &slot.bytes[from..from + piece];
            data.write(at, bytes).ok()?;
            sums.push(match piece {
                BLOCK_BYTES => slot.sum,
                _ => crc32c::crc32c(bytes),
            });
        }
        Some(sums)
    }

    /// Keeps the whole blocks of a request, if nothing was written there since the counters were so.
    fn keep(&self, request: &Request, bytes: &[u8], sums: &[u32], counts: &[u64]) {
        self.keep_in(&mut self.lock(), request, bytes, sums, counts);
    }

    fn keep_in(
        &self,
        known: &mut Blocks,
        request: &Request,
        bytes: &[u8],
        sums: &[u32],
        counts: &[u64],
    ) {
        let pieces = sum::pieces(request.offset, bytes.len()).zip(sums);
        for (((at, piece), sum), (block, count)) in pieces.zip(blocks(request).zip(counts)) {
            // Ordering: acquire, partner: `count_write`; it happens under the lock, too.
            let same = self.group(block).load(Ordering::Acquire) == *count;
            if piece == BLOCK_BYTES && same {
                known.insert(self.capacity, block, *sum, &bytes[at..at + piece]);
            }
        }
    }
}

impl Blocks {
    fn forget_all(&mut self, blocks: &Range<u64>) {
        if blocks.end - blocks.start > self.places.len() as u64 {
            let all: Vec<u64> = self.places.keys().copied().collect();
            let inside = all.into_iter().filter(|block| blocks.contains(block));
            inside.for_each(|block| self.forget(block));
        } else {
            blocks.clone().for_each(|block| self.forget(block));
        }
    }

    fn forget(&mut self, block: u64) {
        if let Some(place) = self.places.remove(&block) {
            self.empty.push(place);
        }
    }

    fn insert(&mut self, capacity: usize, block: u64, sum: u32, bytes: &[u8]) {
        let place = match self
            .places
            .get(&block)
            .copied()
            .or_else(|| self.empty.pop())
        {
            Some(place) => place,
            None if self.slots.len() < capacity => {
                self.slots.push(Slot {
                    block,
                    sum,
                    used: false,
                    bytes: vec![0; BLOCK_BYTES].into(),
                });
                self.slots.len() - 1
            }
            None => match self.victim() {
                Some(place) => place,
                None => return,
            },
        };
        let slot = &mut self.slots[place];
        (slot.block, slot.sum, slot.used) = (block, sum, false);
        slot.bytes.copy_from_slice(bytes);
        self.places.insert(block, place);
    }

    fn victim(&mut self) -> Option<usize> {
        // Twice round: the first time takes all marks away at the worst.
        for _ in 0..self.slots.len() * 2 {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[place];
            if !std::mem::take(&mut slot.used) {
                let block = slot.block;
                self.places.remove(&block);
                return Some(place);
            }
        }
        None
    }
}

fn blocks(request: &Request) -> Range<u64> {
    let block = BLOCK_BYTES as u64;
    let end = request.offset + u64::from(request.len);
    request.offset / block..end.div_ceil(block)
}

/// A store with a cache in front.
#[derive(Debug)]
pub struct Cached<S> {
    cache: Arc<Cache>,
    below: S,
}

impl<S: Store> Cached<S> {
    /// With blocks of this cache, which must be those of the same store.
    pub fn new(cache: &Arc<Cache>, below: S) -> Cached<S> {
        Cached {
            cache: Arc::clone(cache),
            below,
        }
    }

    /// What is behind.
    pub fn below(&self) -> &S {
        &self.below
    }

    fn read(&self, request: Request, mut data: Data, done: Done) {
        if request.len as usize > data.len() || request.len == 0 {
            return self.below.submit(Job {
                request,
                data,
                done,
            });
        }
        if let Some(sums) = self.cache.find(&request, &mut data) {
            // Ordering: relaxed; a count.
            self.cache.hits.fetch_add(1, Ordering::Relaxed);
            return done(data, Ok(sums));
        }
        // Ordering: relaxed; a count.
        self.cache.misses.fetch_add(1, Ordering::Relaxed);
        let cache = Arc::clone(&self.cache);
        let counts = cache.counts(&blocks(&request));
        let asked = request.clone();
        let checked = self.below.is_checked();
        let then: Done = Box::new(move |data, mut result| {
            if let Ok(sums) = &mut result {
                let mut bytes = vec![0; asked.len as usize];
                let read = data.read(0, &mut bytes).is_ok();
                if !checked {
                    *sums = sum::sums(asked.offset, &bytes);
                }
                // Checked here too: a block that was damaged on its way would stay damaged.
                if read && (!checked || sum::check(asked.offset, &bytes, sums).is_ok()) {
                    cache.keep(&asked, &bytes, sums, &counts);
                }
            }
            done(data, result);
        });
        self.below.submit(Job {
            request,
            data,
            done: then,
        });
    }

    fn write(&self, request: Request, data: Data, done: Done) {
        let touched = blocks(&request);
        let len = request.len as usize;
        // A copy: when the buffer comes back nobody says what is in it.
        let mut bytes = vec![0; len];
        let keep = request.op == Op::Write
            && !request.sums.is_empty()
            && data.read(0, &mut bytes).is_ok()
            && sum::check(request.offset, &bytes, &request.sums).is_ok();
        let counts = self.cache.begin_write(&touched);
        let cache = Arc::clone(&self.cache);
        let asked = request.clone();
        let then: Done = Box::new(move |data, result| {
            let kept = (keep && result.is_ok()).then_some((&asked, &bytes[..]));
            cache.end_write(&touched, &counts, kept);
            done(data, result);
        });
        self.below.submit(Job {
            request,
            data,
            done: then,
        });
    }
}

impl<S: Store> Store for Cached<S> {
    fn info(&self) -> Result<Info, Fault> {
        self.below.info()
    }

    fn is_checked(&self) -> bool {
        self.below.is_checked()
    }

    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        self.below.data(op, len)
    }

    fn piece(&self, len: usize) -> usize {
        self.below.piece(len)
    }

    fn submit(&self, job: Job) {
        let Job {
            request,
            data,
            done,
        } = job;
        let fine = request.offset.checked_add(u64::from(request.len)).is_some();
        match request.op {
            Op::Read if fine => self.read(request, data, done),
            Op::Write | Op::Trim | Op::Zero { .. } if fine => self.write(request, data, done),
            _ => self.below.submit(Job {
                request,
                data,
                done,
            }),
        }
    }

    fn kick(&self) {
        self.below.kick();
    }
}
