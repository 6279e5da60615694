//! Memory of this process that requests use one after the other: to get it from the system page by page, and cleared,
//! costs more than to fill it from the page cache.
//!
//! Memory that was kept once is charged to a domain while there is one ([`charge_to`]), in use or not. It is charged to
//! the first domain, because one store serves all of the process. Memory that a domain is not admitted goes to the
//! system.

use crate::limits::BLOCK_BYTES;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tranship_core::heap::{self, HeapOptions};
use tranship_core::{Account, Domain};

/// Bytes that are kept for later requests; further memory that comes back goes to the system.
const KEPT_BYTES: usize = 16 << 20;
/// The sizes that are kept: 4 KiB, 8 KiB, ..., 1 MiB.
const SIZES: usize = 9;

static KEPT: Mutex<Kept> = Mutex::new(Kept::new());

#[derive(Debug)]
struct Kept {
    bytes: usize,
    by_size: [Vec<Vec<u8>>; SIZES],
    account: Weak<Account>,
}

/// Mark that a domain has the account while this is there.
#[derive(Debug)]
pub(crate) struct Charged {
    _account: Arc<Account>,
}

impl Drop for Charged {
    fn drop(&mut self) {
        // No thread drops the account under the lock: that would call the manager.
        Kept::lock().account = Weak::new();
    }
}

/// Charges kept memory to this domain, as its heap `block requests`, from now on. None if another domain has it, or if
/// the manager gives no heap.
pub(crate) fn charge_to(domain: &Domain) -> Option<Charged> {
    if Kept::lock().account.strong_count() > 0 {
        return None;
    }
    let heap = HeapOptions::new(KEPT_BYTES as u64).name("block requests");
    let heap = heap::Heap::create(domain, heap).inspect_err(|error| {
        tracing::warn!(%error, "what is kept for requests is not charged");
    });
    let heap = heap.ok()?;
    let account = Arc::new(Account::new(heap));
    let before = Kept::lock().bytes as u64;
    account.ensure_some(before); // memory that is not admitted goes, below
    let mut kept = Kept::lock();
    if kept.account.strong_count() > 0 {
        return None;
    }
    account.charge_anyway(kept.bytes as u64);
    kept.account = Arc::downgrade(&account);
    drop(kept);
    let own = Arc::downgrade(&account);
    account.heap().on_turn(move || {
        if let Some(account) = own.upgrade() {
            come_down(&account);
        }
    });
    come_down(&account);
    Some(Charged { _account: account })
}

/// Gives back the memory that the manager wants.
fn come_down(account: &Account) {
    account.settle();
    while account.excess() > 0 {
        let memory = Kept::lock().take_any();
        let Some(memory) = memory else { break };
        let bytes = memory.len() as u64;
        drop(memory);
        account.discharge(bytes);
    }
}

impl Kept {
    const fn new() -> Kept {
        Kept {
            bytes: 0,
            by_size: [const { Vec::new() }; SIZES],
            account: Weak::new(),
        }
    }

    fn lock() -> MutexGuard<'static, Kept> {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory that came back last: the processor's caches know it best.
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let memory = self.by_size.get_mut(size)?.pop()?;
        self.bytes -= memory.len();
        Some(memory)
    }

    fn take_any(&mut self) -> Option<Vec<u8>> {
        (0..SIZES).rev().find_map(|size| self.take(size))
    }

    /// Keeps memory; returns it if it is not kept.
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

/// Returns the size class for `len` bytes. There are more classes than are kept.
fn size(len: usize) -> usize {
    len.div_ceil(BLOCK_BYTES).next_power_of_two().ilog2() as usize
}

/// Memory that begins at a page, as direct input and output wants it. Kept for others when it is dropped.
#[derive(Debug)]
pub struct Heap {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    /// Account that pays for it.
    charged: Weak<Account>,
}

impl Heap {
    /// Returns zeroed memory.
    pub(crate) fn zeroed(len: usize) -> Heap {
        Heap::new(vec![0; (BLOCK_BYTES << size(len)) + BLOCK_BYTES], len)
    }

    /// Returns memory with the bytes that an earlier request left in it, for a caller that fills all that it uses.
    pub(crate) fn used(len: usize) -> Heap {
        let mut kept = Kept::lock();
        let found = kept.take(size(len));
        let found = found.map(|memory| (memory, Weak::clone(&kept.account)));
        drop(kept);
        found.map_or_else(
            || Heap::zeroed(len),
            |(memory, charged)| {
                let mut heap = Heap::new(memory, len);
                heap.charged = charged;
                heap
            },
        )
    }

    fn new(memory: Vec<u8>, len: usize) -> Heap {
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        Heap {
            memory,
            start,
            len,
            charged: Weak::new(),
        }
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
        let bytes = memory.len() as u64;
        let account = Kept::lock().account.upgrade();
        if let Some(account) = &account {
            let charged = self.charged.as_ptr() == Arc::as_ptr(account);
            let is_paid = charged || account.ensure(bytes) && account.charge(bytes);
            if !is_paid {
                return;
            }
        }
        // Memory is not freed while others wait for the lock.
        let rest = match account.as_ref().is_some_and(|account| account.excess() > 0) {
            true => Some(memory),
            false => Kept::lock().keep(memory),
        };
        if let (Some(_), Some(account)) = (&rest, &account) {
            account.discharge(bytes);
        }
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
