//! The calling thread's caches: a table by zone index.
//!
//! The fast path reads one word of thread-local storage that needs no initialisation and no destructor (for zones of a
//! high index, three more); the owner of the caches is another thread-local, touched in slow paths only, whose
//! destructor gives everything back.

use crate::cache::Cache;
use crate::direct::{self, CachePlace, ZONES};
use crate::front::{Front, OwnFront};
use crate::own_work::OwnWork;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

thread_local! {
    static TABLE: Cell<(*const *const Front, usize)> = const { Cell::new((ptr::null(), 0)) };
    static OWNED: Owned = const { Owned { caches: RefCell::new(Caches { owned: Vec::new(), table: Vec::new(), shut: None }) } };
}

thread_local! {
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// While this value lives, the calling thread gets no new caches: items that it frees while it gives memory back go to
/// the backend.
pub(crate) struct Reclaiming {
    before: bool,
}

impl Reclaiming {
    pub(crate) fn begin() -> Self {
        Self {
            before: RECLAIMING.replace(true),
        }
    }

    /// Says whether the calling thread is giving memory back.
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
    /// Their fronts as plain pointers, for the fast path.
    table: Vec<*const Front>,
    /// The front that lay in the last direct place before zones of a high index were used. All threads without a cache
    /// write to [`NOBODYS`](crate::front::NOBODYS), and with these zones there would be too many of them.
    shut: Option<OwnFront>,
}

/// Returns this thread's front at `place`, or one that is always shut. It may belong to a zone that is gone: its `seen`
/// is then no current zone's control word. Do not keep the pointer: slow paths replace the front.
#[inline(always)]
pub(crate) fn front(place: CachePlace) -> *const Front {
    direct::get(place)
}

/// Returns this thread's front for a zone of a high index. Returns `None` if there is none, or the zone has a place of
/// its own.
pub(crate) fn far_front(index: usize) -> Option<*const Front> {
    let (table, len) = TABLE.get();
    if index < ZONES || index >= len {
        return None;
    }
    // SAFETY: `TABLE` is the pointer and length of `OWNED`'s table, updated whenever that changes and emptied before
    // it goes; `index` is below the length.
    let front = unsafe { *table.add(index) };
    (!front.is_null()).then_some(front)
}

/// Returns this thread's cache at `index`, whichever zone it belongs to.
pub(crate) fn get(index: usize) -> Option<Arc<Cache>> {
    OWNED
        .try_with(|owned| owned.caches.borrow().owned.get(index)?.clone())
        .ok()?
}

/// Returns the address of this thread's front at `index`, or of one without an owner. Allocates nothing.
pub(crate) fn peek(index: usize) -> *const Front {
    far_front(index).unwrap_or_else(|| front(CachePlace::of(index)))
}

/// Puts a cache into this thread's table; `false` if the thread is ending and can have none.
pub(crate) fn set(index: usize, cache: Arc<Cache>) -> bool {
    // The table may grow, and an allocator that consists of zones would come back here.
    let _work = OwnWork::begin();
    let replaced = OWNED.try_with(|owned| {
        let mut caches = owned.caches.borrow_mut();
        let caches = &mut *caches;
        if caches.table.len() <= index {
            caches.owned.resize(index + 1, None);
            caches.table.resize(index + 1, ptr::null());
        }
        caches.table[index] = cache.front();
        let replaced = caches.owned[index].replace(cache);
        TABLE.set((caches.table.as_ptr(), caches.table.len()));
        let own = match index {
            ..ZONES => caches.table[index],
            _ => &raw const **caches.shut.get_or_insert_with(OwnFront::new),
        };
        direct::set(CachePlace::of(index), own);
        replaced
    });
    replaced.is_ok()
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _work = OwnWork::begin();
        TABLE.set((ptr::null(), 0));
        direct::reset();
        let caches = std::mem::take(&mut self.caches.get_mut().owned);
        for cache in caches.into_iter().flatten() {
            if let Some(home) = cache.home.upgrade() {
                home.thread_exit(&cache);
            }
        }
    }
}
