//! The calling thread's caches: a table by zone index.
//!
//! The fast path reads one word of thread-local storage (three for zones of a high index) that needs no
//! initialisation and no destructor; the owner of the caches is another thread-local, touched in slow paths only, whose
//! destructor gives everything back.

use crate::cache::Cache;
use crate::own_work::OwnWork;
use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::ptr;
use std::sync::Arc;

/// Zones whose caches are found without reading where the table is.
const DIRECT_ZONES: usize = 128;

thread_local! {
    static DIRECT: [Cell<*const Cache>; DIRECT_ZONES] = const { [const { Cell::new(ptr::null()) }; DIRECT_ZONES] };
    static TABLE: Cell<(*const *const Cache, usize)> = const { Cell::new((ptr::null(), 0)) };
    static OWNED: Owned = const { Owned { caches: RefCell::new(Caches { owned: Vec::new(), table: Vec::new() }) } };
}

thread_local! {
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// As long as this lives the calling thread gets no new caches: what it frees while it gives back goes straight back.
pub(crate) struct Reclaiming {
    before: bool,
}

impl Reclaiming {
    pub(crate) fn begin() -> Self {
        Self {
            before: RECLAIMING.replace(true),
        }
    }

    /// Whether the calling thread is in it.
    pub(crate) fn is_on() -> bool {
        RECLAIMING.get()
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        RECLAIMING.set(self.before);
    }
}

struct Owned {
    caches: RefCell<Caches>,
}

struct Caches {
    owned: Vec<Option<Arc<Cache>>>,
    /// The same as plain pointers, for the fast path.
    table: Vec<*const Cache>,
}

/// Calls `work` with this thread's cache at `index`, or with `None`. It may belong to a zone that is gone: its `seen`
/// is then no current zone's control word.
#[inline(always)]
pub(crate) fn with<R>(index: usize, work: impl FnOnce(Option<&Cache>) -> R) -> R {
    let cache = if index < DIRECT_ZONES {
        DIRECT.with(|direct| direct[index].get())
    } else {
        cold_path();
        let (table, len) = TABLE.get();
        if index >= len {
            return work(None);
        }
        // SAFETY: `TABLE` is the pointer and length of `OWNED`'s table, updated whenever that changes and emptied before
        // it goes; `index` is below the length.
        unsafe { *table.add(index) }
    };
    // SAFETY: the pointer is null or points into an `Arc` in `owned`, which only this thread's slow path replaces, and
    // `work` is a fast path and does not get there.
    work(unsafe { cache.as_ref() })
}

/// This thread's cache at `index`, whoever's it is.
pub(crate) fn get(index: usize) -> Option<Arc<Cache>> {
    OWNED
        .try_with(|owned| owned.caches.borrow().owned.get(index)?.clone())
        .ok()?
}

/// The address of this thread's cache at `index`, or null. Allocates nothing.
pub(crate) fn peek(index: usize) -> *const Cache {
    with(index, |cache| cache.map_or(ptr::null(), ptr::from_ref))
}

/// Puts a cache into this thread's table; `false` if the thread is ending and can have none.
pub(crate) fn set(index: usize, cache: Arc<Cache>) -> bool {
    // The table may grow, and an allocator that is made of zones would come back here.
    let _work = OwnWork::begin();
    let replaced = OWNED.try_with(|owned| {
        let mut caches = owned.caches.borrow_mut();
        let caches = &mut *caches;
        if caches.table.len() <= index {
            caches.owned.resize(index + 1, None);
            caches.table.resize(index + 1, ptr::null());
        }
        caches.table[index] = Arc::as_ptr(&cache);
        let replaced = caches.owned[index].replace(cache);
        TABLE.set((caches.table.as_ptr(), caches.table.len()));
        if index < DIRECT_ZONES {
            DIRECT.with(|direct| direct[index].set(caches.table[index]));
        }
        replaced
    });
    replaced.is_ok()
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _work = OwnWork::begin();
        TABLE.set((ptr::null(), 0));
        DIRECT.with(|direct| direct.iter().for_each(|cache| cache.set(ptr::null())));
        let caches = std::mem::take(&mut self.caches.get_mut().owned);
        for cache in caches.into_iter().flatten() {
            if let Some(home) = cache.home.upgrade() {
                home.thread_exit(&cache);
            }
        }
    }
}
