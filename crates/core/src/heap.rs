//! Memory of one's own that the manager admits by the byte: a pool without chunks, for whoever brings an allocator.

use crate::domain::{DomainCore, lock};
use crate::error::{self, Error};
use crate::options::HeapOptions;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tranship_proto::{Event, PoolId, Request};

/// Private memory of this domain, charged to it like its pools. What the bytes are is the owner's business (anonymous
/// memory under an allocator, say): this only asks before they are used and says when they were given to the kernel.
/// Threads may share it.
///
/// Nothing enforces it: who does not ask is not charged. After a restart of the manager the domain says by itself how
/// much it holds. Dropped, everything is given back.
pub struct Heap {
    domain: DomainCore,
    own: Arc<OwnHeap>,
}

/// What the domain's register knows of a heap.
pub(crate) struct OwnHeap {
    /// In this process, for ever.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) max_bytes: u64,
    books: Mutex<Books>,
    quota_bytes: AtomicU64,
    /// What the manager wants it to come down to; `u64::MAX`: nothing.
    target_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Books {
    /// Under the present manager.
    id: PoolId,
    /// What the owner has.
    held: u64,
    /// What the manager knows of. Less, if it was away and came back to a fuller machine.
    admitted: u64,
}

impl Heap {
    pub(crate) fn create(domain: &DomainCore, options: HeapOptions) -> Result<Heap, Error> {
        let (name, max_bytes) = (options.name, options.max_bytes);
        let make = |req| Request::CreateHeap {
            req,
            name: name.clone(),
            max_bytes,
            held_bytes: 0,
        };
        let created = domain.call(make, &[], None)?.0;
        let Event::HeapCreated {
            heap, quota_bytes, ..
        } = created
        else {
            return Err(error::protocol(format!(
                "{created:?} where a heap was asked for"
            )));
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = Arc::new(OwnHeap {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            max_bytes,
            books: Mutex::new(Books {
                id: heap,
                held: 0,
                admitted: 0,
            }),
            quota_bytes: AtomicU64::new(quota_bytes),
            target_bytes: AtomicU64::new(u64::MAX),
        });
        lock(&domain.heaps).push(own.clone());
        Ok(Heap {
            domain: domain.clone(),
            own,
        })
    }

    /// Its id, counted together with those of pools. It changes when the manager is restarted.
    pub fn id(&self) -> PoolId {
        self.own.id()
    }

    /// Asks for `bytes` more, or at least for `least_bytes` (not 0); says how many were admitted. Asks the manager, so
    /// it is for large steps.
    ///
    /// # Errors
    /// `Quota` if not even `least_bytes` are to be had now; `ManagerAway`.
    pub fn admit(&self, least_bytes: u64, bytes: u64) -> Result<u64, Error> {
        let before = *lock(&self.own.books);
        let debt = before.held.saturating_sub(before.admitted);
        let make = |req| Request::Admit {
            req,
            heap: before.id,
            bytes: bytes.saturating_add(debt),
            least_bytes: least_bytes.saturating_add(debt),
        };
        let answer = self.domain.call_if_prompt(make, &[], None)?.0;
        let Event::Admitted { bytes: got, .. } = answer else {
            return Err(error::protocol(format!(
                "{answer:?} where memory was asked for"
            )));
        };
        let mut books = lock(&self.own.books);
        // Another manager came between: it was told what was held before, and the rest is owed.
        if books.id == before.id {
            books.admitted += got;
        }
        let more = got.saturating_sub(debt);
        books.held += more;
        Ok(more)
    }

    /// Says that `bytes` were given to the kernel (more than are held are not counted).
    pub fn give_back(&self, bytes: u64) {
        let (heap, surplus) = {
            let mut books = lock(&self.own.books);
            books.held = books.held.saturating_sub(bytes);
            let surplus = books.admitted.saturating_sub(books.held);
            books.admitted -= surplus;
            (books.id, surplus)
        };
        if surplus > 0 {
            let bytes = surplus;
            // A manager that is away will be told what is held then.
            let _ = self.domain.tell(&Request::GiveBack { heap, bytes }, &[]);
        }
        if self.held_bytes() <= self.own.target_bytes.load(Ordering::Relaxed) {
            self.own.target_bytes.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Says how it does: bytes that are allocated in it, and bytes that are free and kept. Who does, four times a second at most, takes part in
    /// memory scheduling: what is allocated is not taken from under it, and what it was refused counts as wanted.
    pub fn report(&self, live_bytes: u64, cached_bytes: u64) {
        let heap = self.id();
        let figures = Request::HeapFigures {
            heap,
            live_bytes,
            cached_bytes,
        };
        // A manager that is away will hear of it the next time.
        let _ = self.domain.tell(&figures, &[]);
    }

    /// Bytes that were admitted and not given back.
    pub fn held_bytes(&self) -> u64 {
        lock(&self.own.books).held
    }

    /// What it may have now, bytes.
    pub fn quota_bytes(&self) -> u64 {
        self.own.quota_bytes.load(Ordering::Relaxed)
    }

    /// What the manager wants it to come down to, bytes, if it does. It is told in [`turn`](crate::Domain::turn).
    pub fn pressure(&self) -> Option<u64> {
        let target = self.own.target_bytes.load(Ordering::Relaxed);
        (target < self.held_bytes()).then_some(target)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.domain.check_fork().is_ok() {
            lock(&self.domain.heaps).retain(|heap| !Arc::ptr_eq(heap, &self.own));
            let heap = self.id();
            let _ = self.domain.tell(&Request::DestroyHeap { heap }, &[]);
            self.domain.let_go();
        }
    }
}

impl OwnHeap {
    pub(crate) fn id(&self) -> PoolId {
        lock(&self.books).id
    }

    /// What is to be said to a new manager.
    pub(crate) fn held(&self) -> u64 {
        lock(&self.books).held
    }

    /// A new manager has admitted it, under a new id; all of it or a part.
    pub(crate) fn resume(&self, id: PoolId, admitted: u64, quota_bytes: u64) {
        let mut books = lock(&self.books);
        (books.id, books.admitted) = (id, admitted);
        self.set_quota(quota_bytes);
    }

    pub(crate) fn set_quota(&self, quota_bytes: u64) {
        self.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        // Who was to have less, and may have more, may keep it.
        self.target_bytes.fetch_max(quota_bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_target(&self, target_bytes: u64) {
        self.target_bytes.store(target_bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap")
            .field("name", &self.own.name)
            .field("books", &*lock(&self.own.books))
            .finish_non_exhaustive()
    }
}
