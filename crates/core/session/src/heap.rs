//! The domain's own record of a heap.

use crate::base::lock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use tranship_proto::PoolId;

/// The owner of a heap, called in each turn.
type Owner = Box<dyn Fn() + Send + Sync>;

/// A heap of this domain, whichever component has its handle.
pub struct OwnHeap {
    /// A number that never changes in this process.
    pub number: u32,
    pub name: String,
    pub max_bytes: u64,
    books: Mutex<Books>,
    quota_bytes: AtomicU64,
    /// The size to which the manager wants the heap to come down; `u64::MAX`: no wish.
    target_bytes: AtomicU64,
    owner: OnceLock<Owner>,
}

#[derive(Clone, Copy, Debug)]
pub struct Books {
    /// The id under the present manager.
    pub id: PoolId,
    /// The owner's bytes.
    pub held: u64,
    /// The bytes that the manager knows of. They are fewer if the manager was away and came back to a fuller machine.
    admitted: u64,
    /// No manager has the heap: the last one is gone, and no other was told of it yet.
    alone: bool,
}

impl Books {
    /// Returns the owner's bytes that the manager does not know of.
    pub fn debt(&self) -> u64 {
        self.held.saturating_sub(self.admitted)
    }

    /// Says whether no manager has the heap: then no bytes can be admitted.
    pub fn is_alone(&self) -> bool {
        self.alone
    }
}

impl OwnHeap {
    pub fn new(name: String, max_bytes: u64, id: PoolId, quota_bytes: u64) -> OwnHeap {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        OwnHeap {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            max_bytes,
            books: Mutex::new(Books {
                id,
                held: 0,
                admitted: 0,
                alone: false,
            }),
            quota_bytes: AtomicU64::new(quota_bytes),
            target_bytes: AtomicU64::new(u64::MAX),
            owner: OnceLock::new(),
        }
    }

    pub fn books(&self) -> Books {
        *lock(&self.books)
    }

    pub fn id(&self) -> PoolId {
        self.books().id
    }

    /// Returns the bytes to report to a new manager.
    pub fn held(&self) -> u64 {
        self.books().held
    }

    /// Records that `got` bytes were admitted for the owner of the earlier books. Returns how many more there are now.
    pub fn admit(&self, before: Books, got: u64) -> u64 {
        let mut books = lock(&self.books);
        // Another manager came between: it was told of the earlier bytes, and the rest is owed.
        if books.id == before.id {
            books.admitted += got;
        }
        let more = got.saturating_sub(before.debt());
        books.held += more;
        more
    }

    /// Records that bytes went back to the kernel. Returns the report to the manager, and the id for it.
    pub fn give_back(&self, bytes: u64) -> (PoolId, u64) {
        let mut books = lock(&self.books);
        books.held = books.held.saturating_sub(bytes);
        let surplus = books.admitted.saturating_sub(books.held);
        books.admitted -= surplus;
        (books.id, surplus)
    }

    /// Records that a new manager has admitted the heap, under a new id, completely or in part.
    pub(super) fn resume(&self, id: PoolId, admitted: u64, quota_bytes: u64) {
        let mut books = lock(&self.books);
        (books.id, books.admitted, books.alone) = (id, admitted, false);
        self.set_quota(quota_bytes);
    }

    /// Records that the manager is gone, with everything that it admitted and wanted.
    pub(super) fn stand_alone(&self) {
        let mut books = lock(&self.books);
        (books.admitted, books.alone) = (0, true);
        self.clear_target();
    }

    /// Records that the owner has at least `bytes`, while no manager has the heap; never more than the heap's limit.
    pub fn hold_alone(&self, bytes: u64) {
        let mut books = lock(&self.books);
        if books.alone {
            books.held = books.held.max(bytes.min(self.max_bytes));
        }
    }

    pub fn quota_bytes(&self) -> u64 {
        self.quota_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_quota(&self, quota_bytes: u64) {
        self.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        // An owner that was to have less, and may now have more, may keep its memory.
        self.target_bytes.fetch_max(quota_bytes, Ordering::Relaxed);
    }

    pub fn target_bytes(&self) -> u64 {
        self.target_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_target(&self, target_bytes: u64) {
        self.target_bytes.store(target_bytes, Ordering::Relaxed);
    }

    /// Ends the manager's wish: the heap has come down to it.
    pub fn clear_target(&self) {
        self.set_target(u64::MAX);
    }

    /// Makes each turn call `owner` from now on. A later call changes nothing.
    pub fn on_turn(&self, owner: Owner) {
        let _ = self.owner.set(owner);
    }

    /// Calls the owner, in a turn, without a lock.
    pub(super) fn tend(&self) {
        if let Some(owner) = self.owner.get() {
            owner();
        }
    }
}
