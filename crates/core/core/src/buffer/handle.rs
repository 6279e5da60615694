//! The common part of both kinds of buffers: the place of the bytes, and their pool.

use super::reference::Reference;
use crate::domain::DomainCore;
use crate::pool::{ForeignPool, OwnPool, RawBuf, Tag};
use std::io;
use std::ptr::NonNull;
use tranship_proto::{BufferId, PoolId, Trust};
use tranship_region::View;
use tranship_zone::CachePlace;

/// Most bytes that `write_to` copies at a time.
const PART: usize = 64 << 10;

/// The bits of a pool's address that are a cache's place.
const PLACES: usize = 127;
const _: () = assert!(align_of::<OwnPool>() > PLACES && align_of::<ForeignPool>() > PLACES);

/// The pool of a buffer.
#[derive(Clone, Copy)]
pub(crate) enum Home {
    /// A pool of this domain: the local reference is private.
    Own(NonNull<OwnPool>),
    /// A pool of another domain: the reference is counted in this domain's `ref` page.
    Foreign(NonNull<ForeignPool>),
}

/// The address of the bytes and the pool that they are of, in whole words (`tag.rs`). Both kinds of buffers consist of
/// it, and add what happens at their end.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) len: usize,
    /// An `OwnPool`, or a `ForeignPool` if the tag says so. Pools are aligned: in the bits below an own one has the
    /// place of the thread's cache for the buffer. It is not in the tag: the tag is known only when the slot is, and a
    /// thread that soon frees the buffer would wait for that.
    pool: NonNull<()>,
    pub(crate) tag: Tag,
}

impl Handle {
    #[inline(always)]
    pub(super) fn own(pool: &OwnPool, raw: RawBuf) -> Handle {
        let RawBuf {
            ptr,
            len,
            place,
            tag,
        } = raw;
        debug_assert!(!tag.has(Tag::FOREIGN));
        let pool = NonNull::from(pool).cast::<()>();
        let pool = pool.map_addr(|at| at | usize::from(place.number()));
        Handle {
            ptr,
            len,
            pool,
            tag,
        }
    }

    #[inline(always)]
    pub(super) fn foreign(
        ptr: NonNull<u8>,
        len: usize,
        pool: NonNull<ForeignPool>,
        tag: Tag,
    ) -> Handle {
        debug_assert!(tag.has(Tag::FOREIGN));
        let pool = pool.cast();
        Handle {
            ptr,
            len,
            pool,
            tag,
        }
    }

    #[inline(always)]
    pub(crate) fn home(self) -> Home {
        if self.tag.has(Tag::FOREIGN) {
            Home::Foreign(self.pool().cast())
        } else {
            Home::Own(self.pool().cast())
        }
    }

    #[inline(always)]
    pub(super) fn with_tag(self, tag: Tag) -> Handle {
        Handle { tag, ..self }
    }

    /// Returns a value that no other pool has.
    #[inline(always)]
    pub(crate) fn home_key(self) -> *const () {
        self.pool().as_ptr()
    }

    #[inline(always)]
    fn pool(self) -> NonNull<()> {
        let pool = self.pool.as_ptr().map_addr(|at| at & !PLACES);
        // SAFETY: a pool's address, which was not null before it got a place.
        unsafe { NonNull::new_unchecked(pool) }
    }

    /// Returns the place of the thread's cache for an own buffer.
    #[inline(always)]
    pub(super) fn cache_place(self) -> CachePlace {
        #[allow(clippy::cast_possible_truncation)] // below 128
        CachePlace::numbered((self.pool.addr().get() & PLACES) as u8)
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.tag.slot()
    }

    /// Whether this process forked after it got the buffer.
    pub(super) fn is_inherited(self) -> bool {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.domain().fork.is_child(),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.domain.fork.is_child(),
        }
    }

    /// Whether its pool is this domain's, or one that this domain reads.
    pub(crate) fn is_of(self, domain: &DomainCore) -> bool {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.domain().is(domain),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.domain.is(domain),
        }
    }

    /// Returns the trust level of its pool.
    pub(super) fn trust(self) -> Trust {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.trust(),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.trust(),
        }
    }

    /// Returns the system-wide id. In a forked child, which cannot see the pool, it names no buffer.
    pub(super) fn id(self) -> BufferId {
        if self.is_inherited() {
            return BufferId::new(PoolId(0), self.slot(), self.tag.generation());
        }
        self.wire_id()
    }

    /// Returns the buffer as a message names it.
    #[inline]
    pub(crate) fn reference(self) -> Reference {
        let (offset, serial) = self.place();
        Reference {
            id: self.wire_id(),
            offset,
            length: self.len as u64,
            serial,
        }
    }

    /// Returns the id, for a process that did not inherit the buffer.
    #[inline]
    pub(crate) fn wire_id(self) -> BufferId {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.id_of(self.slot()),
            // SAFETY: as above.
            Home::Foreign(pool) => BufferId::new(
                unsafe { pool.as_ref() }.pool_id(),
                self.slot(),
                self.tag.generation(),
            ),
        }
    }

    /// Returns the window offset of the first byte, and the serial of the buffer's chunks.
    pub(crate) fn place(self) -> (u64, u32) {
        match self.home() {
            Home::Own(pool) => {
                // SAFETY: pools outlive their outstanding slots.
                let pool = unsafe { pool.as_ref() };
                let offset = pool.offset_of(self.ptr);
                (offset, pool.serial_of(offset, self.len as u64))
            }
            Home::Foreign(pool) => {
                // SAFETY: as above.
                let pool = unsafe { pool.as_ref() };
                let offset = pool.offset_of(self.ptr);
                (offset, pool.serial_of(offset, self.len as u64))
            }
        }
    }

    /// Returns the bytes, if a slice of them is allowed.
    ///
    /// # Safety
    /// The handle is not let go before `'a` ends, and it writes nothing until then.
    #[inline(always)]
    pub(super) unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        if !self.tag.has(Tag::TRUSTED) {
            return None;
        }
        // SAFETY: in an own pool only this domain writes (the kernel says so), and a frozen buffer is written by
        // nobody until the last handle is gone, a writable one by its only handle; in a trusted pool the user vouched for the same
        // (`trust_writer`). The range was checked against the window when the handle was made, and the window stays mapped.
        Some(unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) })
    }

    /// # Safety
    /// The handle is not let go before `'a` ends.
    #[inline(always)]
    pub(super) unsafe fn view<'a>(self) -> View<'a> {
        // SAFETY: inside the pool's window, which stays mapped while the handle lives; others may write it, which a view allows.
        unsafe { View::new(self.ptr.as_ptr(), self.len) }
    }

    /// # Safety
    /// The handle is not let go meanwhile, and it writes nothing.
    pub(super) unsafe fn write_to(self, to: &mut impl io::Write) -> io::Result<()> {
        // SAFETY: as the caller says.
        let (bytes, view) = unsafe { (self.bytes(), self.view()) };
        if let Some(bytes) = bytes {
            return to.write_all(bytes);
        }
        let mut part = vec![0; self.len.min(PART)];
        for at in (0..self.len).step_by(PART) {
            let n = PART.min(self.len - at);
            let _ = view.copy_to_slice(at, &mut part[..n]); // inside the view
            to.write_all(&part[..n])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Domain, PoolOptions};

    #[test]
    fn the_place_in_a_pools_address_is_the_classes_and_the_pool_is_found() {
        let _dog = tranship_testkit::Watchdog::new();
        let domain = Domain::embedded().expect("a domain");
        let pool = || {
            domain
                .create_pool(PoolOptions::new(8 << 20))
                .expect("a pool")
        };
        for pool in [pool(), pool()] {
            let own = pool.own_arc();
            for len in [1, 65, 1000, 5000, 50_000] {
                let handle = pool.alloc(len).expect("a buffer").freeze().handle();
                let place = handle.cache_place();
                assert_eq!(place, own.place_of_class(handle.tag.class()), "{len}");
                let found = (handle.home(), handle.home_key());
                assert!(matches!(found.0, Home::Own(own) if own == NonNull::from(pool.own_ref())));
                assert_eq!(found.1, std::ptr::from_ref(pool.own_ref()).cast());
            }
        }
    }
}
