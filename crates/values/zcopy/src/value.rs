//! Values: filled once and sent many times.

use crate::arena::{Freed, Inner, Options, Stats, ValuePlace};
use crate::error::Error;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use tranship_core::heap::Heap;

/// The twin allocator (ZCopy, section 3.2.1): memory for values that are sent many times, beside the program's heap.
///
/// Cheap to clone; all clones are one arena. Its memory goes back when the last value and the last clone are gone.
///
/// ```
/// # mod tranship { pub use tranship_zcopy as zcopy; }
/// use tranship::zcopy::Arena;
///
/// let arena = Arena::new()?;
/// let mut page = arena.alloc(4096)?;
/// page.fill(b'.');
/// page[..5].copy_from_slice(b"hello");
/// let page = page.freeze(); // from here on nobody writes it
/// assert_eq!(&page.clone()[..6], b"hello.");
/// # Ok::<(), tranship_zcopy::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Arena {
    pub(crate) inner: Arc<Inner>,
}

impl Arena {
    /// Creates an arena with defaults: as much memory as the machine has, taken when it is needed.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses addresses or a descriptor.
    pub fn new() -> Result<Arena, Error> {
        Arena::with(&Options::default())
    }

    /// Creates an arena.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn with(options: &Options) -> Result<Arena, Error> {
        Inner::new(options).map(|inner| Arena { inner })
    }

    /// Allocates memory for a value of `len` bytes. Its content is not specified (nothing of another process).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] at the arena's limit, [`Error::Forked`] in a forked child. [`Error::NotAdmitted`] if the
    /// arena is charged to a domain ([`Options::charge_to`]) and the manager refuses. Only such an arena may block: it
    /// waits for the manager at most 100 ms, and after a refusal not again for a second.
    pub fn alloc(&self, len: usize) -> Result<ValueMut, Error> {
        self.inner.alloc(len).map(|at| self.to_fill(at, len))
    }

    /// Allocates a value from memory that the manager has admitted already, for a caller that holds a lock for which
    /// others wait. Never blocks.
    ///
    /// # Errors
    /// As [`Arena::alloc`]; after [`Error::NotAdmitted`] that may be asked for more.
    pub fn alloc_admitted(&self, len: usize) -> Result<ValueMut, Error> {
        let at = self.inner.alloc_admitted(len);
        at.map(|at| self.to_fill(at, len))
    }

    fn to_fill(&self, at: NonNull<u8>, len: usize) -> ValueMut {
        // The value will be filled, unlike memory that a program may ask for.
        self.inner.populate(at, len);
        ValueMut {
            owned: Some(Owned {
                arena: Arc::clone(&self.inner),
                at,
                len,
                filling: true,
            }),
        }
    }

    /// Makes a value that is a copy of `bytes`.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    pub fn copy(&self, bytes: &[u8]) -> Result<Value, Error> {
        let mut value = self.alloc(bytes.len())?;
        value.copy_from_slice(bytes);
        Ok(value.freeze())
    }

    /// Allocates memory for C: a value that the program may write whenever it likes, also after it was sent. Bytes that
    /// were sent stay.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    pub fn alloc_raw(&self, len: usize) -> Result<NonNull<u8>, Error> {
        let at = self.inner.alloc(len)?;
        // The end of filling is not announced: a page that is written after its block was frozen is found at each send.
        self.inner.filled(at, true);
        Ok(at)
    }

    /// Allocates zeros, otherwise like [`Arena::alloc_raw`]. Memory that the kernel gives anew is not touched.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    pub fn alloc_raw_zeroed(&self, len: usize) -> Result<NonNull<u8>, Error> {
        let at = self.inner.alloc_zeroed(len)?;
        self.inner.filled(at, true);
        Ok(at)
    }

    /// Gives back empty pageblocks that are kept with their pages for later values; false if there are none.
    pub fn trim(&self) -> bool {
        self.inner.trim()
    }

    /// Frees memory of [`Arena::alloc_raw`].
    ///
    /// # Safety
    /// It came from `alloc_raw` of this arena, was not freed since, and nobody uses it.
    ///
    /// # Panics
    /// If no value begins there.
    pub unsafe fn free_raw(&self, at: NonNull<u8>) {
        // SAFETY: passed on.
        unsafe { self.inner.free(at, Freed::Raw) };
    }

    /// Returns the longest length of the value that begins at an address, in bytes; `None` if no value of this arena
    /// begins there.
    #[must_use]
    pub fn usable(&self, at: NonNull<u8>) -> Option<usize> {
        self.inner.len_of(at)
    }

    /// Returns whether the address is one of this arena's.
    #[must_use]
    pub fn owns(&self, at: *const u8) -> bool {
        self.inner.owns(at)
    }

    /// Returns the numbers of protected pageblocks that hold few values: the emptiest `count` of those with at most
    /// half their slots in use, in ascending order. A caller that moves the remaining values ([`Value::block`]) gets
    /// the memory of the blocks back. Checks every block.
    #[must_use]
    #[doc(hidden)]
    pub fn sparse(&self, count: usize) -> Vec<u32> {
        self.inner.sparse(count)
    }

    /// Protects full pageblocks now. Sends do it by themselves where it pays.
    pub fn protect(&self) {
        self.inner.freeze_queued();
    }

    /// Was this process forked from the one that made it? Then it can be read and sent from, and nothing can be added.
    #[must_use]
    #[doc(hidden)]
    pub fn is_inherited(&self) -> bool {
        self.inner.is_inherited()
    }

    /// Returns its file's descriptor. A program that closes it can allocate as before, and its values are copied when
    /// sent.
    #[must_use]
    #[doc(hidden)]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.file().0
    }

    /// Gives the file away: this process writes no byte of it any more, and gives nothing of it back, while another one
    /// goes on with it ([`Arena::adopt`]). No thread uses the arena meanwhile. [`Arena::take_back`] ends that, if the
    /// other one does not come to it.
    #[doc(hidden)]
    pub fn give_away(&self) {
        self.inner.give_away(true);
    }

    /// Takes the arena back for this process, if no other process has continued with it.
    #[doc(hidden)]
    pub fn take_back(&self) {
        self.inner.give_away(false);
    }

    /// Goes on with another process's arena: its file, and places of values in it ([`Value::place`]). Neither is
    /// believed: of each place says whether a value can be there. All values are protected. Nothing is written before
    /// [`Arena::begin`].
    ///
    /// # Errors
    /// [`Error::System`] if the file is none that an arena of these options makes, or the kernel refuses addresses.
    #[doc(hidden)]
    pub fn adopt(
        file: OwnedFd,
        options: &Options,
        places: &[ValuePlace],
    ) -> Result<(Arena, Vec<Option<Value>>), Error> {
        let (inner, found) = Inner::adopt(file, options, places)?;
        let value = |(place, found): (&ValuePlace, bool)| {
            let offset = usize::try_from(place.offset).ok()?;
            let len = usize::try_from(place.len).ok()?;
            found.then(|| {
                Value::of(Owned {
                    at: inner.at(offset),
                    arena: Arc::clone(&inner),
                    len,
                    filling: false,
                })
            })
        };
        let values = places.iter().zip(found).map(value).collect();
        Ok((Arena { inner }, values))
    }

    /// Begins the use after [`Arena::adopt`]. Call it when the process that had the file writes it no more, and before
    /// anything is allocated: it gives back memory in none of the values' pageblocks.
    ///
    /// # Errors
    /// If the kernel refuses; then nothing may be allocated.
    #[doc(hidden)]
    pub fn begin(&self) -> io::Result<()> {
        self.inner.replace_rest()
    }

    /// Returns the heap in which its memory is admitted, where it is charged to a domain ([`Options::charge_to`]).
    #[must_use]
    pub fn heap(&self) -> Option<&Heap> {
        self.inner.heap()
    }

    /// Returns the bytes that the manager wants back or has not admitted, after all free memory has gone; for an arena
    /// that is charged to a domain ([`Options::charge_to`]). The caller then frees values, whole pageblocks of them,
    /// until it returns 0. Call it now and then, for example four times a second. It asks the manager if something was
    /// not admitted.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.inner.excess()
    }

    /// Returns its counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

#[derive(Debug)]
struct Owned {
    arena: Arc<Inner>,
    at: NonNull<u8>,
    len: usize,
    filling: bool,
}

// SAFETY: memory that no other handle names; the arena is shared by `Arc` and does its own locking.
unsafe impl Send for Owned {}
// SAFETY: shared handles only read.
unsafe impl Sync for Owned {}

impl Owned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: this value's own memory, mapped as long as it lives; nobody else writes it, and `freeze` ended our
        // writing.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let what = if self.filling {
            Freed::Unfilled
        } else {
            Freed::Value
        };
        // SAFETY: allocated there, and this was the last handle.
        unsafe { self.arena.free(self.at, what) };
    }
}

/// A value that is being filled.
pub struct ValueMut {
    /// Memory; always there except while it turns into a [`Value`].
    owned: Option<Owned>,
}

impl ValueMut {
    /// Ends the filling: from here on the value cannot be written, and it can be shared and sent.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn freeze(mut self) -> Value {
        let mut owned = self.owned.take().expect("still there");
        owned.filling = false;
        owned.arena.filled(owned.at, false);
        Value::of(owned)
    }

    /// Returns the number of the pageblock in which it begins.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn block(&self) -> u32 {
        let owned = self.owned.as_ref().expect("still there");
        owned.arena.block_of(owned.at)
    }

    /// Makes it shorter; longer lengths change nothing.
    pub fn truncate(&mut self, len: usize) {
        let owned = self.owned.as_mut().expect("still there");
        owned.len = owned.len.min(len);
    }
}

impl Deref for ValueMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.owned.as_ref().expect("still there").bytes()
    }
}

impl DerefMut for ValueMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let owned = self.owned.as_mut().expect("still there");
        // SAFETY: as in `Owned::bytes`, and this is the only handle.
        unsafe { std::slice::from_raw_parts_mut(owned.at.as_ptr(), owned.len) }
    }
}

impl fmt::Debug for ValueMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueMut")
            .field("len", &self.len())
            .finish()
    }
}

/// A value: shared, and read only. Its memory goes back with the last clone, also while it is still on its way to a
/// receiver.
#[derive(Clone)]
pub struct Value {
    /// Address of its bytes, kept here as well as in their owner. A program that sends values that nobody has touched
    /// for long thus fetches one cache line less for each.
    at: NonNull<u8>,
    len: usize,
    owned: Arc<Owned>,
}

// SAFETY: a shared handle of memory that only it and its clones name, and that is only read.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn of(owned: Owned) -> Value {
        Value {
            at: owned.at,
            len: owned.len,
            owned: Arc::new(owned),
        }
    }

    pub(crate) fn arena(&self) -> &Arc<Inner> {
        &self.owned.arena
    }

    /// Prefetches the handle into the caches.
    pub(crate) fn prefetch(&self) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        // The handle may lie on two cache lines.
        tranship_sync::prefetch_read(start);
        tranship_sync::prefetch_read(start.wrapping_add(size_of::<Value>() - 1));
    }

    /// Returns [`Value::arena`], and reads nothing of it if it is the known one.
    pub(crate) fn arena_or<'a>(&'a self, known: Option<&'a Arc<Inner>>) -> &'a Arc<Inner> {
        known
            .filter(|known| known.owns(self.at.as_ptr()))
            .unwrap_or_else(|| self.arena())
    }

    /// Returns the number of the pageblock in which it begins.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.owned.arena.block_of(self.at)
    }

    /// Returns whether it has pages of its own, which go back with it. Otherwise they go back with its pageblock, when
    /// all that lies there is gone.
    #[must_use]
    #[doc(hidden)]
    pub fn is_alone(&self) -> bool {
        self.owned.arena.own_pages(self.at).is_some()
    }

    /// Returns whether there is another clone of it.
    #[must_use]
    #[doc(hidden)]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.owned) > 1
    }

    /// Returns the bytes that go back with it, or with its pageblock.
    #[must_use]
    #[doc(hidden)]
    pub fn memory_bytes(&self) -> u64 {
        let arena = &self.owned.arena;
        let own = arena.own_pages(self.at);
        own.unwrap_or(arena.block_bytes()) as u64
    }

    /// Returns its place in the arena's file, for [`Arena::adopt`]; none if the file does not have it (a fork came
    /// while it was filled).
    #[must_use]
    #[doc(hidden)]
    pub fn place(&self) -> Option<ValuePlace> {
        self.owned.arena.place_of(self.at, self.len)
    }

    /// Returns whether it will be sent without copying: from when its pageblock is protected.
    #[must_use]
    #[doc(hidden)]
    pub fn is_protected(&self) -> bool {
        let arena = self.arena();
        arena.frozen(self.at.as_ptr(), self.len).is_some()
    }
}

/// Tells a value from all others, and whether it is still there, without keeping it.
#[derive(Clone, Debug)]
pub struct Mark(Weak<Owned>);

impl Value {
    /// Returns a mark by which it can be recognised.
    #[must_use]
    #[doc(hidden)]
    pub fn mark(&self) -> Mark {
        Mark(Arc::downgrade(&self.owned))
    }
}

impl Mark {
    /// Returns whether it is of this value.
    #[must_use]
    pub fn is_of(&self, value: &Value) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&value.owned))
    }

    /// Returns whether the value's last handle is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `Owned::bytes`; `owned` keeps it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value")
            .field("len", &self.len())
            .field("protected", &self.is_protected())
            .finish()
    }
}
