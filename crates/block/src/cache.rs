//! A cache in front of a store: whole blocks with their checksums, bounded in bytes, written through.
//!
//! What is thrown out is chosen by CLOCK (Corbato 1968): a hand goes round, takes the first block that was not used
//! since it last passed. A block is kept only if no write through here met it since it was read: two counters for each of
//! many groups of blocks say so. What others write to the store ends its [`Lease`], and everything that is here with it.

use crate::lease::Lease;
use crate::{BLOCK_BYTES, Data, Done, Fault, Info, Job, Op, Request, Store, sum};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Groups of blocks that share a counter of writes.
const GROUPS: usize = 4096;

/// The blocks; shared by all stores that lead to the same server.
///
/// ```
/// use tranship_block::{BLOCK_BYTES, Blocking, Cache, Cached, Disk, DiskOptions};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// let disk = Disk::open(&path, &DiskOptions { size: Some(1 << 20), ..DiskOptions::default() })?;
/// let cache = Cache::new(64 << 10);
/// let blocks = Blocking(Cached::new(&cache, disk)); // or a `Remote::leased` instead of the disk
/// let mut block = [0; BLOCK_BYTES];
/// blocks.read_at(0, &mut block)?;
/// blocks.read_at(0, &mut block)?;
/// assert_eq!(cache.hits_and_misses(), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cache {
    blocks: Mutex<Blocks>,
    capacity: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Writes of a group of blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    begun: u64,
    ended: u64,
}

#[derive(Debug)]
struct Blocks {
    /// All that is known was read under this version of the lease.
    version: u64,
    places: HashMap<u64, usize>,
    slots: Vec<Slot>,
    hand: usize,
    empty: Vec<usize>,
    writes: Box<[Writes]>,
}

#[derive(Debug)]
struct Slot {
    block: u64,
    sum: u32,
    used: bool,
    bytes: Box<[u8]>,
}

/// What a request may leave here when it is done: of each block, nothing if another write was under way at any time between.
#[derive(Debug)]
struct Ticket {
    version: u64,
    /// For each block: how many writes must have begun when it is done; none of them under way now but the request itself.
    writes: Vec<Option<u64>>,
}

impl Cache {
    /// Of at most so many bytes. Memory is taken as blocks come.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Cache> {
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK_BYTES;
        Arc::new(Cache {
            blocks: Mutex::new(Blocks {
                version: 0,
                places: HashMap::new(),
                slots: Vec::new(),
                hand: 0,
                empty: Vec::new(),
                writes: vec![Writes::default(); GROUPS].into(),
            }),
            capacity,
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

    /// All of a request, if all of it is here and may be used; else what may be kept of it when it was read.
    fn find(&self, lease: &Lease, request: &Request, data: &mut Data) -> Result<Vec<u32>, Ticket> {
        let mut known = self.lock();
        let holds = known.look(lease);
        match known.copy(request, data).filter(|_| holds) {
            Some(sums) => Ok(sums),
            None => Err(Ticket {
                version: known.version,
                writes: blocks(request).map(|block| known.quiet(block, 0)).collect(),
            }),
        }
    }

    /// A write of these blocks begins: what is known about them is not any more. What it leaves may be kept, if `kept`.
    fn begin_write(&self, lease: &Lease, blocks: &Range<u64>, kept: bool) -> Option<Ticket> {
        let mut known = self.lock();
        known.look(lease);
        known.forget_all(blocks);
        known.count(blocks, |writes| writes.begun += 1);
        kept.then(|| Ticket {
            version: known.version,
            writes: blocks.clone().map(|block| known.quiet(block, 1)).collect(),
        })
    }

    /// It is over, or has failed; nobody knows then what it left.
    fn end_write(
        &self,
        lease: &Lease,
        blocks: &Range<u64>,
        left: Option<(&Request, &[u8], &Ticket)>,
    ) {
        let mut known = self.lock();
        // Of those that were under way with it, the last to end leaves nothing of the others here.
        known.forget_all(blocks);
        known.count(blocks, |writes| writes.ended += 1);
        if let Some((request, bytes, ticket)) = left
            && known.look(lease)
        {
            known.keep(self.capacity, request, bytes, &request.sums, ticket);
        }
    }

    /// Keeps the whole blocks of what was read.
    fn keep(&self, lease: &Lease, request: &Request, bytes: &[u8], sums: &[u32], ticket: &Ticket) {
        let mut known = self.lock();
        if known.look(lease) {
            known.keep(self.capacity, request, bytes, sums, ticket);
        }
    }
}

/// The group of a block. Neighbours are in different ones, so that a long write moves each by one only.
fn group(block: u64) -> usize {
    usize::try_from(block % GROUPS as u64).unwrap_or(0)
}

impl Blocks {
    /// Forgets everything if it may be something else now. May it be used?
    fn look(&mut self, lease: &Lease) -> bool {
        // With the lock: it never goes back to an earlier version.
        let standing = lease.standing();
        if standing.version != self.version {
            let places = self.places.drain().map(|(_, place)| place);
            self.empty.extend(places);
            self.version = standing.version;
        }
        standing.holds
    }

    fn count(&mut self, blocks: &Range<u64>, count: impl Fn(&mut Writes)) {
        for block in blocks.clone().take(GROUPS) {
            count(&mut self.writes[group(block)]);
        }
    }

    /// How many writes of its group have begun, if only so many of them are under way.
    fn quiet(&self, block: u64, under_way: u64) -> Option<u64> {
        let writes = self.writes[group(block)];
        (writes.begun - writes.ended == under_way).then_some(writes.begun)
    }

    fn copy(&mut self, request: &Request, data: &mut Data) -> Option<Vec<u32>> {
        let (offset, len) = (request.offset, request.len as usize);
        let places: Option<Vec<usize>> = blocks(request)
            .map(|block| self.places.get(&block).copied())
            .collect();
        let mut sums = Vec::new();
        for ((at, piece), place) in sum::pieces(offset, len).zip(places?) {
            let slot = &mut self.slots[place];
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

    fn keep(
        &mut self,
        capacity: usize,
        request: &Request,
        bytes: &[u8],
        sums: &[u32],
        ticket: &Ticket,
    ) {
        if ticket.version != self.version {
            return;
        }
        let pieces = sum::pieces(request.offset, bytes.len()).zip(sums);
        for (((at, piece), sum), (block, writes)) in pieces.zip(blocks(request).zip(&ticket.writes))
        {
            let quiet = writes.is_some() && self.quiet(block, 0) == *writes;
            if piece == BLOCK_BYTES && quiet {
                self.insert(capacity, block, *sum, &bytes[at..at + piece]);
            }
        }
    }

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
    lease: Lease,
    below: S,
}

impl<S: Store> Cached<S> {
    /// With blocks of this cache, which must be those of the same store. A server's store must be one that asks for leases
    /// ([`Remote::leased`](crate::Remote::leased)), else nothing is kept.
    pub fn new(cache: &Arc<Cache>, below: S) -> Cached<S> {
        Cached {
            cache: Arc::clone(cache),
            lease: below.lease(),
            below,
        }
    }

    /// What is behind.
    pub fn below(&self) -> &S {
        &self.below
    }

    fn read(&self, request: Request, mut data: Data, done: Done) {
        let ticket = match self.cache.find(&self.lease, &request, &mut data) {
            Ok(sums) => {
                // Ordering: relaxed; a count.
                self.cache.hits.fetch_add(1, Ordering::Relaxed);
                return done(data, Ok(sums));
            }
            Err(ticket) => ticket,
        };
        // Ordering: relaxed; a count.
        self.cache.misses.fetch_add(1, Ordering::Relaxed);
        let (cache, lease) = (Arc::clone(&self.cache), self.lease.clone());
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
                    cache.keep(&lease, &asked, &bytes, sums, &ticket);
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
        // A copy: when the buffer comes back nobody says what is in it. Only of what is there: a client says the length.
        let bytes = match request.op {
            Op::Write if !request.sums.is_empty() => copy_of(&request, &data),
            _ => None,
        };
        let ticket = self
            .cache
            .begin_write(&self.lease, &touched, bytes.is_some());
        let left = bytes.zip(ticket).map(|left| (request.clone(), left));
        let (cache, lease) = (Arc::clone(&self.cache), self.lease.clone());
        let then: Done = Box::new(move |data, result| {
            let left = left.as_ref().filter(|_| result.is_ok());
            let left = left.map(|(request, (bytes, ticket))| (request, &bytes[..], ticket));
            cache.end_write(&lease, &touched, left);
            done(data, result);
        });
        self.below.submit(Job {
            request,
            data,
            done: then,
        });
    }
}

/// What a write brings, if it is what its checksums say.
fn copy_of(request: &Request, data: &Data) -> Option<Vec<u8>> {
    let len = request.len as usize;
    let mut bytes = (len <= data.len()).then(|| vec![0; len])?;
    data.read(0, &mut bytes).ok()?;
    sum::check(request.offset, &bytes, &request.sums).ok()?;
    Some(bytes)
}

impl<S: Store> Store for Cached<S> {
    fn info(&self) -> Result<Info, Fault> {
        self.below.info()
    }

    fn is_checked(&self) -> bool {
        self.below.is_checked()
    }

    fn lease(&self) -> Lease {
        self.lease.clone()
    }

    fn data(&self, op: Op, len: usize) -> Result<Data, Fault> {
        self.below.data(op, len)
    }

    fn piece(&self, len: usize) -> usize {
        self.below.piece(len)
    }

    fn submit(&self, job: Job) {
        let request = &job.request;
        let inside = request.offset.checked_add(request.len.into()).is_some();
        let has_room = request.len > 0 && request.len as usize <= job.data.len();
        match request.op {
            Op::Read if inside && has_room => self.read(job.request, job.data, job.done),
            op if inside && op.writes() => self.write(job.request, job.data, job.done),
            // It is refused, or nothing is to be done.
            _ => self.below.submit(job),
        }
    }

    fn kick(&self) {
        self.below.kick();
    }
}
