//! A bucket: a stack of items of a fixed size.

/// Items, the most recently freed on top.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    items: Box<[u32]>,
    len: usize,
}

impl Bucket {
    /// An empty bucket for `capacity` items.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            items: vec![0; capacity].into(),
            len: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let last = self.len.checked_sub(1)?;
        debug_assert!(last < self.items.len());
        // SAFETY: `len` is never more than there are items: `new`, `push` and `clear` see to that.
        let item = unsafe { *self.items.get_unchecked(last) };
        self.len = last;
        Some(item)
    }

    /// Whether there was room.
    #[inline]
    pub(crate) fn push(&mut self, item: u32) -> bool {
        let Some(place) = self.items.get_mut(self.len) else {
            return false;
        };
        *place = item;
        self.len += 1;
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn capacity(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn items(&self) -> &[u32] {
        &self.items[..self.len]
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}
