//! A cache in front of a store: whole blocks with their checksums, bounded in bytes, written through.
//!
//! The block to throw out is chosen by CLOCK (Corbato 1968): a hand goes round and takes the first block that was not
//! used since it last passed. A program in a domain has the blocks charged to the domain ([`Cache::charge_to`]). Then
//! only the blocks that the manager admits are kept, and memory that it wants back is given back. A block is kept only
//! if no write through here met it since it was read: two counters for each of many groups of blocks tell. A write of
//! another client to the store ends its [`Lease`], and every block here with it.

use crate::lease::Lease;
use crate::slots::Slots;
use crate::{BLOCK_BYTES, Data, Done, Extent, Fault, Info, Job, Op, Request, Store, sum};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{Account, Domain, Error, ErrorKind};

/// Blocks that go at a time where memory is wanted back; a thread that waits for the cache has its turn in between.
const AT_ONCE: u64 = 64;
/// The most that a heap may have; no cache comes near it.
const MOST_BYTES: u64 = 1 << 40;
/// Groups of blocks that share a counter of writes.
const GROUPS: usize = 4096;

/// The blocks; shared by all stores that lead to the same server.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use tranship::block::{BLOCK_BYTES, Blocking, Cache, Cached, Disk, DiskOptions};
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
    most_bytes: u64,
    /// Account; none in it: the manager gave no heap, and nothing is kept.
    account: OnceLock<Option<Account>>,
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
    /// Version of the lease under which all known blocks were read.
    version: u64,
    places: HashMap<u64, usize>,
    slots: Slots,
    writes: Box<[Writes]>,
}

/// Permission of a request to leave blocks here when it is done. It leaves no block that another write met at any time
/// in between.
#[derive(Debug)]
struct Ticket {
    version: u64,
    /// Number of writes of each block that must have begun when it is done. None of them is under way now but the
    /// request itself.
    writes: Vec<Option<u64>>,
}

impl Cache {
    /// Creates a cache of at most `bytes` bytes. It takes memory as blocks come.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Cache> {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK_BYTES;
        Arc::new(Cache {
            blocks: Mutex::new(Blocks {
                version: 0,
                places: HashMap::new(),
                slots: Slots::new(most),
                writes: vec![Writes::default(); GROUPS].into(),
            }),
            most_bytes: bytes,
            account: OnceLock::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// Returns the reads that were answered from here, and those that were not.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        // Ordering: relaxed; counts.
        let both = [&self.hits, &self.misses].map(|count| count.load(Ordering::Relaxed));
        (both[0], both[1])
    }

    /// Returns the bytes of the blocks that it has memory for.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        (self.lock().slots.present() * BLOCK_BYTES) as u64
    }

    /// Charges the cache's memory to this domain from now on, as its heap `block cache`. The manager admits the memory,
    /// and gets it back when it wants it: in [`Domain::turn`]. Where the manager refuses, fewer blocks are kept. Only
    /// the first call counts: a cache that is charged already stays so.
    ///
    /// The domain does not end before the cache does. Asks the manager.
    ///
    /// # Errors
    /// As [`Heap::create`]. Where the manager refused (its limits, its rules) nothing is kept from now on; else
    /// nothing has changed, and it can be tried again.
    pub fn charge_to(self: &Arc<Cache>, domain: &Domain) -> Result<(), Error> {
        if self.account.get().is_some() || self.most_bytes < BLOCK_BYTES as u64 {
            return Ok(());
        }
        let heap = HeapOptions::new(self.most_bytes.min(MOST_BYTES)).name("block cache");
        let account = Heap::create(domain, heap).map(Account::new);
        if let Ok(account) = &account {
            account.ensure_some(self.held_bytes()); // memory that is not admitted goes, below
        }
        let (account, refused) = match account {
            Ok(account) => (Some(account), None),
            Err(error) if is_nothing_said(error.kind()) => return Err(error),
            Err(error) => (None, Some(error)),
        };
        // Blocks that are here already are charged too: no block comes before the account is there.
        let mut known = self.lock();
        if let Some(account) = &account {
            account.charge_anyway((known.slots.present() * BLOCK_BYTES) as u64);
        }
        let is_first = self.account.set(account).is_ok();
        if let Some(refused) = refused.filter(|_| is_first) {
            while known.shed() {}
            return Err(refused);
        }
        drop(known);
        if let Some(account) = self.account().filter(|_| is_first) {
            let cache: Weak<Cache> = Arc::downgrade(self);
            let come_down = move || {
                if let Some(cache) = cache.upgrade() {
                    cache.come_down();
                }
            };
            account.heap().on_turn(come_down);
            self.come_down();
        }
        Ok(())
    }

    fn account(&self) -> Option<&Account> {
        self.account.get()?.as_ref()
    }

    /// Gives back the memory that the manager wants. In each turn.
    fn come_down(&self) {
        let Some(account) = self.account() else {
            return;
        };
        account.settle();
        loop {
            let wanted = account.excess().div_ceil(BLOCK_BYTES as u64);
            let mut known = self.lock();
            let shed = (0..wanted.min(AT_ONCE))
                .take_while(|_| known.shed())
                .count();
            drop(known);
            if shed == 0 {
                return;
            }
            account.discharge((shed * BLOCK_BYTES) as u64);
        }
    }

    /// Asks the manager to admit memory for `bytes` bytes of blocks, if it is not admitted yet. If the manager refuses,
    /// the blocks are not kept, or they take the place of others.
    fn ask_for_room(&self, bytes: usize) {
        if let Some(account) = self.account() {
            let lacks = self.lock().slots.lacks(bytes / BLOCK_BYTES);
            if lacks > 0 {
                account.ensure((lacks * BLOCK_BYTES) as u64);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all of a request, if all of it is here and may be used; otherwise the permission to keep its blocks when
    /// it was read.
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

    /// Begins a write of these blocks: their old content is not known any more. The new one may be kept, if `kept`.
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

    /// Notes that a write is over, or has failed; after a failure the block's content is not known.
    fn end_write(
        &self,
        lease: &Lease,
        blocks: &Range<u64>,
        left: Option<(&Request, &[u8], &Ticket)>,
    ) {
        if let Some((_, bytes, _)) = left {
            self.ask_for_room(bytes.len());
        }
        let mut known = self.lock();
        // If several writes were under way together, the last one to end removes the blocks of the others here.
        known.forget_all(blocks);
        known.count(blocks, |writes| writes.ended += 1);
        if let Some((request, bytes, ticket)) = left
            && known.look(lease)
        {
            known.keep(&self.account, request, bytes, &request.sums, ticket);
        }
    }

    /// Keeps the whole blocks of a read.
    fn keep(&self, lease: &Lease, request: &Request, bytes: &[u8], sums: &[u32], ticket: &Ticket) {
        self.ask_for_room(bytes.len());
        let mut known = self.lock();
        if known.look(lease) {
            known.keep(&self.account, request, bytes, sums, ticket);
        }
    }
}

/// Returns whether the manager has refused nothing.
fn is_nothing_said(kind: ErrorKind) -> bool {
    use ErrorKind::{CutOff, Forked, ManagerAway, System, TimedOut};
    [CutOff, Forked, ManagerAway, System, TimedOut].contains(&kind)
}

/// Returns the group of a block. Neighbours are in different groups, so that a long write moves each by one only.
fn group(block: u64) -> usize {
    usize::try_from(block % GROUPS as u64).unwrap_or(0)
}

impl Blocks {
    /// Removes everything if it may be stale. Returns whether the cache may be used.
    fn look(&mut self, lease: &Lease) -> bool {
        // Read under the lock: the version never goes back to an earlier one.
        let standing = lease.standing();
        if standing.version != self.version {
            for (_, place) in self.places.drain() {
                self.slots.empty(place);
            }
            self.version = standing.version;
        }
        standing.holds
    }

    fn count(&mut self, blocks: &Range<u64>, count: impl Fn(&mut Writes)) {
        for block in blocks.clone().take(GROUPS) {
            count(&mut self.writes[group(block)]);
        }
    }

    /// Returns how many writes of the block's group have begun, if only this many of them are under way.
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
            let (whole, sum) = self.slots.read(place);
            let from = usize::try_from((offset + at as u64) % BLOCK_BYTES as u64).ok()?;
            let bytes = &whole[from..from + piece];
            data.write(at, bytes).ok()?;
            sums.push(match piece {
                BLOCK_BYTES => sum,
                _ => crc32c::crc32c(bytes),
            });
        }
        Some(sums)
    }

    fn keep(
        &mut self,
        account: &OnceLock<Option<Account>>,
        request: &Request,
        bytes: &[u8],
        sums: &[u32],
        ticket: &Ticket,
    ) {
        let account = match account.get() {
            Some(None) => return,
            Some(account) => account.as_ref(),
            None => None,
        };
        if ticket.version != self.version {
            return;
        }
        let pieces = sum::pieces(request.offset, bytes.len()).zip(sums);
        for (((at, piece), sum), (block, writes)) in pieces.zip(blocks(request).zip(&ticket.writes))
        {
            let quiet = writes.is_some() && self.quiet(block, 0) == *writes;
            if piece == BLOCK_BYTES && quiet {
                self.insert(account, block, *sum, &bytes[at..at + piece]);
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
            self.slots.empty(place);
        }
    }

    fn insert(&mut self, account: Option<&Account>, block: u64, sum: u32, bytes: &[u8]) {
        let known = self.places.get(&block).copied();
        let place = known.or_else(|| {
            let taken = self.slots.take(account)?;
            self.gone(taken.gone);
            Some(taken.place)
        });
        if let Some(place) = place {
            self.slots.write(place, block, sum, bytes);
            self.places.insert(block, place);
        }
    }

    fn gone(&mut self, block: Option<u64>) {
        if let Some(block) = block {
            self.places.remove(&block);
        }
    }

    /// Gives the memory of a block to the kernel; false if there is none.
    fn shed(&mut self) -> bool {
        let shed = self.slots.shed();
        let any = shed.is_some();
        self.gone(shed.and_then(|shed| shed.gone));
        any
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
    /// Creates a store with blocks of this cache, which must be those of the same store. A server's store must be one
    /// that asks for leases ([`Remote::leased`](crate::Remote::leased)), else nothing is kept.
    pub fn new(cache: &Arc<Cache>, below: S) -> Cached<S> {
        Cached {
            cache: Arc::clone(cache),
            lease: below.lease(),
            below,
        }
    }

    /// Returns the store behind the cache.
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
        // A copy: when the buffer comes back its content is not known. Only of the bytes that are there: a client
        // chooses the length.
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

/// Returns the bytes of a write, if they match their checksums.
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

    fn extents(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        self.below.extents(offset, len, most)
    }

    fn submit(&self, job: Job) {
        let request = &job.request;
        let inside = request.offset.checked_add(request.len.into()).is_some();
        let has_room = request.len > 0 && request.len as usize <= job.data.len();
        match request.op {
            Op::Read if inside && has_room => self.read(job.request, job.data, job.done),
            op if inside && op.writes() => self.write(job.request, job.data, job.done),
            // The request is refused, or there is nothing to do.
            _ => self.below.submit(job),
        }
    }

    fn kick(&self) {
        self.below.kick();
    }
}
