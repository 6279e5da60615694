//! Memory of this process that requests use one after the other: to get it from the system page by page, and cleared,
//! costs more than to fill it from the page cache.

use crate::limits::BLOCK_BYTES;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are kept for later requests; what comes back beyond them goes to the system.
const KEPT_BYTES: usize = 16 << 20;
/// The sizes that are kept: 4 KiB, 8 KiB, ..., 1 MiB.
const SIZES: usize = 9;

static KEPT: Mutex<Kept> = Mutex::new(Kept::new());

#[derive(Debug)]
struct Kept {
    bytes: usize,
    by_size: [Vec<Vec<u8>>; SIZES],
}

impl Kept {
    const fn new() -> Kept {
        Kept {
            bytes: 0,
            by_size: [const { Vec::new() }; SIZES],
        }
    }

    fn lock() -> MutexGuard<'static, Kept> {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last that came back first: the processor's caches know it best.
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let memory = self.by_size.get_mut(size)?.pop()?;
        self.bytes -= memory.len();
        Some(memory)
    }

    /// Gives back what is not kept.
    fn keep(&mut self, memory: Vec<u8>) -> Option<Vec<u8>> {
        let size = size(memory.len().saturating_sub(BLOCK_BYTES));
        let fits = self.bytes + memory.len() <= KEPT_BYTES;
        match self.by_size.get_mut(size) {
            Some(same) if fits => {
                self.bytes += memory.len();
                same.push(memory);
                None
            }
            _ => Some(memory),
        }
    }
}

/// Which of the sizes holds so many bytes; there are more than are kept.
fn size(len: usize) -> usize {
    len.div_ceil(BLOCK_BYTES).next_power_of_two().ilog2() as usize
}

/// Memory that begins at a page, as direct input and output wants it. Kept for others when it is dropped.
#[derive(Debug)]
pub struct Heap {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Heap {
    /// Zeroes.
    pub(crate) fn zeroed(len: usize) -> Heap {
        Heap::new(vec![0; (BLOCK_BYTES << size(len)) + BLOCK_BYTES], len)
    }

    /// With whatever an earlier request left in it: for those who fill all that they use.
    pub(crate) fn used(len: usize) -> Heap {
        let kept = Kept::lock().take(size(len));
        kept.map_or_else(|| Heap::zeroed(len), |memory| Heap::new(memory, len))
    }

    fn new(memory: Vec<u8>, len: usize) -> Heap {
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        Heap { memory, start, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        // Not freed while the others wait.
        let rest = Kept::lock().keep(memory);
        drop(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_page_has_its_length_and_is_zeroed_where_that_is_said() {
        for len in [0, 1, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1] {
            let mut heap = Heap::used(len);
            assert_eq!(heap.bytes().as_ptr().align_offset(BLOCK_BYTES), 0);
            assert_eq!(heap.bytes().len(), len);
            heap.bytes_mut().fill(7);
            drop(heap);
            assert!(Heap::zeroed(len).bytes().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn no_more_is_kept_than_is_said_and_it_is_used_again() {
        let memory = |len: usize| vec![0; len + BLOCK_BYTES];
        let mut kept = Kept::new();
        assert!(kept.keep(memory(2 << 20)).is_some(), "too long");
        let mut count = 0;
        while kept.keep(memory(1 << 20)).is_none() {
            count += 1;
        }
        assert_eq!(count, KEPT_BYTES / ((1 << 20) + BLOCK_BYTES));
        assert_eq!(kept.take(size(BLOCK_BYTES)), None);
        assert_eq!(
            kept.take(size(1 << 20)).map(|memory| memory.len()),
            Some((1 << 20) + BLOCK_BYTES)
        );
        assert_eq!(kept.bytes, (count - 1) * ((1 << 20) + BLOCK_BYTES));
    }
}
