//! Counts of calls of each routine, for each thread and without locked instructions.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

macro_rules! routines {
    ($($variant:ident = $name:literal,)*) => {
        /// The counted routines. Allocation of mbufs and packets is not among them: the zones count it themselves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Routine { $(#[doc = concat!("`", $name, "`")] $variant,)* }

        const NAMES: &[&str] = &[$($name),*];
        /// All of them.
        const ALL: &[Routine] = &[$(Routine::$variant),*];
    };
}

routines! {
    Clget = "m_clget",
    Prepend = "m_prepend",
    PrependCopied = "m_prepend with a new mbuf",
    Pullup = "m_pullup",
    PullupCopied = "m_pullup that copied",
    Copyup = "m_copyup",
    Pulldown = "m_pulldown",
    PulldownCopied = "m_pulldown that copied",
    Split = "m_split",
    Cat = "m_cat",
    Adj = "m_adj",
    Defrag = "m_defrag",
    Collapse = "m_collapse",
    Unshare = "m_unshare",
    Fragment = "m_fragment",
    Unmap = "mb_mapped_to_unmapped",
    Copydata = "m_copydata",
    Copyback = "m_copyback",
    Append = "m_append",
    Copym = "m_copym",
    Dup = "m_dup",
    Extadd = "m_extadd",
    Sent = "chains sent",
    Received = "chains received",
    SentCopiedBytes = "bytes copied to be sent",
    UnsharedBytes = "bytes copied to be written",
}

const COUNT: usize = ALL.len();
type Block = [AtomicU64; COUNT];

struct Blocks {
    living: Vec<Arc<Block>>,
    ended: [u64; COUNT],
}

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks {
    living: Vec::new(),
    ended: [0; COUNT],
});

thread_local! {
    static MINE: Cell<*const Block> = const { Cell::new(std::ptr::null()) };
    static OWNED: Owned = Owned::new();
}

struct Owned(Arc<Block>);

impl Owned {
    fn new() -> Owned {
        let block = Arc::new([const { AtomicU64::new(0) }; COUNT]);
        lock(|blocks| blocks.living.push(block.clone()));
        Owned(block)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        MINE.set(std::ptr::null());
        lock(|blocks| {
            blocks.living.retain(|block| !Arc::ptr_eq(block, &self.0));
            for (sum, count) in blocks.ended.iter_mut().zip(&*self.0) {
                *sum += count.load(Ordering::Relaxed);
            }
        });
    }
}

fn lock<R>(work: impl FnOnce(&mut Blocks) -> R) -> R {
    work(&mut BLOCKS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[inline]
pub(crate) fn count(routine: Routine) {
    add(routine, 1);
}

#[inline]
pub(crate) fn add(routine: Routine, by: u64) {
    let mine = MINE.get();
    // SAFETY: null, or this thread's block, which `OWNED` keeps and whose end sets it to null.
    if let Some(block) = unsafe { mine.as_ref() } {
        let word = &block[routine as usize];
        // There is one writer, so no read-modify-write is needed.
        word.store(word.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    } else {
        first(routine, by);
    }
}

#[cold]
fn first(routine: Routine, by: u64) {
    let known = OWNED.try_with(|owned| {
        MINE.set(Arc::as_ptr(&owned.0));
        owned.0[routine as usize].fetch_add(by, Ordering::Relaxed);
    });
    if known.is_err() {
        lock(|blocks| blocks.ended[routine as usize] += by); // the thread is ending
    }
}

/// Counts of calls of each routine in this process so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls([u64; COUNT]);

impl Calls {
    /// Returns the present counts.
    #[must_use]
    pub fn now() -> Calls {
        lock(|blocks| {
            let mut sums = blocks.ended;
            for block in &blocks.living {
                for (sum, count) in sums.iter_mut().zip(&**block) {
                    *sum += count.load(Ordering::Relaxed);
                }
            }
            Calls(sums)
        })
    }

    /// Returns the count of one routine.
    #[must_use]
    pub fn of(&self, routine: Routine) -> u64 {
        self.0[routine as usize]
    }

    /// Returns the calls since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Calls) -> Calls {
        Calls(std::array::from_fn(|i| {
            self.0[i].wrapping_sub(earlier.0[i])
        }))
    }

    /// Returns all counts, with their traditional names.
    pub fn iter(&self) -> impl Iterator<Item = (Routine, &'static str, u64)> + '_ {
        ALL.iter()
            .zip(NAMES)
            .zip(self.0)
            .map(|((routine, name), calls)| (*routine, *name, calls))
    }
}
