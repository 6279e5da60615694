//! A bucket: a stack of items of a fixed size.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// Buckets of two threads share no cache line, nor two lines that the processor fetches together.
const ALIGN: usize = 128;

/// Items, the most recently freed on top. All zeros: an empty bucket without room.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The position of the next item.
    next: *mut u32,
    first: *mut u32,
    end: *mut u32,
}

// SAFETY: it owns its memory.
unsafe impl Send for Bucket {}
// SAFETY: shared, it is only read.
unsafe impl Sync for Bucket {}

impl Bucket {
    /// Makes an empty bucket for no items.
    pub(crate) const fn none() -> Self {
        let null = ptr::null_mut();
        Self {
            next: null,
            first: null,
            end: null,
        }
    }

    /// Makes an empty bucket for `capacity` items.
    pub(crate) fn new(capacity: usize) -> Self {
        if capacity == 0 {
            return Self::none();
        }
        let layout = layout(capacity);
        // SAFETY: the layout is not empty.
        let first = unsafe { alloc(layout) }.cast::<u32>();
        if first.is_null() {
            handle_alloc_error(layout);
        }
        Self {
            next: first,
            first,
            // SAFETY: one past the last.
            end: unsafe { first.add(capacity) },
        }
    }

    /// Returns the position of the next item, the first one, and the end.
    pub(crate) fn into_parts(self) -> [*mut u32; 3] {
        let parts = ManuallyDrop::new(self);
        [parts.next, parts.first, parts.end]
    }

    /// Makes a bucket of such parts.
    ///
    /// # Safety
    /// The parts are those of a bucket that was taken apart, used once. `next` may be elsewhere in it, if only items
    /// are below it.
    pub(crate) unsafe fn from_parts(next: *mut u32, first: *mut u32, end: *mut u32) -> Self {
        Self { next, first, end }
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.next == self.first {
            return None;
        }
        // SAFETY: there is an item below `next`, which `push` wrote.
        unsafe {
            self.next = self.next.sub(1);
            Some(self.next.read())
        }
    }

    /// Pushes an item; returns whether there was room.
    pub(crate) fn push(&mut self, item: u32) -> bool {
        // SAFETY: up to the end, of its own memory.
        let pushed = unsafe { push_many(self.next, self.end, &[item]) };
        self.next = self.next.wrapping_add(usize::from(pushed));
        pushed
    }

    /// Pushes all items, in order. Returns false, and does nothing, if there is no room for all.
    pub(crate) fn push_all(&mut self, items: &[u32]) -> bool {
        // SAFETY: as in `push`.
        let pushed = unsafe { push_many(self.next, self.end, items) };
        if pushed {
            self.next = self.next.wrapping_add(items.len());
        }
        pushed
    }

    /// Takes all items of a bucket that fits into the room left.
    pub(crate) fn take_all(&mut self, from: &mut Bucket) {
        for &item in from.items() {
            let pushed = self.push(item);
            debug_assert!(pushed, "there is room");
        }
        from.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.items().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.first
    }

    pub(crate) fn capacity(&self) -> usize {
        (self.end.addr() - self.first.addr()) / size_of::<u32>()
    }

    pub(crate) fn items(&self) -> &[u32] {
        let first = NonNull::new(self.first).unwrap_or(NonNull::dangling());
        let len = (self.next.addr() - self.first.addr()) / size_of::<u32>();
        // SAFETY: `len` items were pushed, from the first on.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }

    pub(crate) fn clear(&mut self) {
        self.next = self.first;
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self::none()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: allocated in `new`, with this layout.
            unsafe { dealloc(self.first.cast(), layout(self.capacity())) };
        }
    }
}

/// Pushes all items, in order, from the position of a bucket's next item. Returns false, and does nothing, if there is
/// no room for all.
///
/// # Safety
/// The next item goes to `next`, the bucket ends at `end`, and no other code has its memory.
#[inline(always)]
pub(crate) unsafe fn push_many(next: *mut u32, end: *mut u32, items: &[u32]) -> bool {
    if end.addr() - next.addr() < size_of_val(items) {
        return false;
    }
    // SAFETY: below the end, as there is room. Of a number that is known where this is compiled into it is a move or
    // two.
    unsafe { next.copy_from_nonoverlapping(items.as_ptr(), items.len()) };
    true
}

fn layout(capacity: usize) -> Layout {
    let bytes = (capacity * size_of::<u32>()).next_multiple_of(ALIGN);
    Layout::from_size_align(bytes, ALIGN).expect("a few kilobytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_first_out_up_to_its_capacity() {
        let mut bucket = Bucket::new(3);
        assert_eq!((bucket.pop(), bucket.capacity()), (None, 3));
        assert!((7..10).all(|item| bucket.push(item)));
        assert!(!bucket.push(10));
        assert_eq!((bucket.items(), bucket.len()), (&[7, 8, 9][..], 3));
        assert_eq!(bucket.pop(), Some(9));
        bucket.clear();
        assert!(bucket.is_empty() && bucket.pop().is_none());
        let mut none = Bucket::none();
        assert!(!none.push(1) && none.pop().is_none() && none.items().is_empty());
    }

    #[test]
    fn several_are_pushed_if_there_is_room_for_all() {
        let mut bucket = Bucket::new(3);
        assert!(bucket.push_all(&[1, 2]) && !bucket.push_all(&[3, 4]));
        assert!(bucket.push_all(&[5]) && !bucket.push_all(&[6]) && bucket.push_all(&[]));
        assert_eq!(bucket.items(), [1, 2, 5]);
        assert!(!Bucket::none().push_all(&[1]));
    }
}
