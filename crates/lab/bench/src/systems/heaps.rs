//! What threads can take memory from and give it back to: our item zones, malloc, and (`raw`) a stack of pointers in
//! each thread, which shows what the machine itself does on two cores.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::Result;
use tranship_zone::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};

use super::allocators::{Glibc, Jemalloc, Mimalloc, Ours, Tcmalloc, Whose};
use crate::alloc::Preload;

/// A heap of items of one size.
pub trait Heap: Sync {
    fn take(&self) -> Option<NonNull<u8>>;
    /// # Safety
    /// It came from `take`, of any thread, and is given back once.
    unsafe fn give(&self, item: NonNull<u8>);
    /// Takes and gives back, `count` times in all, `held` at once.
    fn pairs(&self, count: usize, held: usize);
}

/// A heap in the list of all.
#[derive(Clone, Copy)]
pub struct HeapEntry {
    pub name: &'static str,
    pub preload: Option<Preload>,
    pub open: fn(usize) -> Result<Box<dyn Heap>>,
}

pub fn all() -> Vec<HeapEntry> {
    vec![
        HeapEntry {
            name: "tranship",
            preload: None,
            open: |bytes| Ok(Box::new(Zone::open(bytes)?)),
        },
        malloc::<Glibc>(),
        malloc::<Jemalloc>(),
        malloc::<Tcmalloc>(),
        malloc::<Mimalloc>(),
        HeapEntry {
            name: "raw",
            preload: None,
            open: |bytes| Ok(raw(bytes)),
        },
    ]
}

/// A stack in each thread.
pub fn raw(bytes: usize) -> Box<dyn Heap> {
    Box::new(Stack { bytes })
}

/// Whole allocators, ours too, each preloaded.
pub fn mallocs() -> Vec<HeapEntry> {
    vec![
        malloc::<Ours>(),
        malloc::<Glibc>(),
        malloc::<Jemalloc>(),
        malloc::<Tcmalloc>(),
        malloc::<Mimalloc>(),
    ]
}

fn malloc<W: Whose>() -> HeapEntry {
    HeapEntry {
        name: W::NAME,
        preload: W::PRELOAD,
        open: |bytes| Ok(Box::new(Malloc { bytes })),
    }
}

/// The loop, monomorphic, so that a system is called as directly as programs call it.
#[inline(always)]
fn pairs(count: usize, held: usize, take: impl Fn() -> NonNull<u8>, give: impl Fn(NonNull<u8>)) {
    if held == 1 {
        for _ in 0..count {
            give(std::hint::black_box(take()));
        }
        return;
    }
    let mut items = [NonNull::dangling(); 64];
    let items = &mut items[..held.min(64)];
    for _ in 0..count / items.len() {
        for item in items.iter_mut() {
            *item = std::hint::black_box(take());
        }
        for item in items.iter() {
            give(*item);
        }
    }
}

struct Zone {
    zone: ItemZone<Bytes>,
}

impl Zone {
    fn open(bytes: usize) -> Result<Self> {
        let arena = Arc::new(Arena::private(4 << 30)?);
        let keg = ItemKeg::new(&arena, bytes as u64, 16)?;
        let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("bench"));
        Ok(Self { zone })
    }
}

impl Heap for Zone {
    fn take(&self) -> Option<NonNull<u8>> {
        self.zone.alloc(())
    }

    unsafe fn give(&self, item: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { self.zone.free(item) };
    }

    fn pairs(&self, count: usize, held: usize) {
        let zone = std::hint::black_box(&self.zone);
        let take = || zone.alloc(()).expect("4 GiB are enough for 64 items");
        // SAFETY: `pairs` gives each back once.
        pairs(count, held, take, |item| unsafe { zone.free(item) });
    }
}

struct Malloc {
    bytes: usize,
}

impl Heap for Malloc {
    fn take(&self) -> Option<NonNull<u8>> {
        // SAFETY: no precondition. The size is shown as unknown, or the compiler might drop the pair.
        NonNull::new(unsafe { libc::malloc(std::hint::black_box(self.bytes)) }.cast())
    }

    unsafe fn give(&self, item: NonNull<u8>) {
        // SAFETY: it came from `take`; passed on to the caller.
        unsafe { libc::free(item.as_ptr().cast()) };
    }

    fn pairs(&self, count: usize, held: usize) {
        let take = || self.take().expect("malloc: out of memory");
        // SAFETY: `pairs` gives each back once.
        pairs(count, held, take, |item| unsafe { self.give(item) });
    }
}

thread_local! {
    static FREE: RefCell<Vec<NonNull<u8>>> = const { RefCell::new(Vec::new()) };
}

struct Stack {
    bytes: usize,
}

impl Heap for Stack {
    fn take(&self) -> Option<NonNull<u8>> {
        let free = FREE.with(|free| free.borrow_mut().pop());
        free.or_else(|| Malloc { bytes: self.bytes }.take())
    }

    unsafe fn give(&self, item: NonNull<u8>) {
        FREE.with(|free| free.borrow_mut().push(item));
    }

    fn pairs(&self, count: usize, held: usize) {
        // Long enough to share no line with another thread's, whoever the heap is.
        FREE.with(|free| {
            let mut free = free.borrow_mut();
            if free.capacity() == 0 {
                free.reserve(1024);
            }
        });
        let take = || self.take().expect("malloc: out of memory");
        // SAFETY: `pairs` gives each back once.
        pairs(count, held, take, |item| unsafe { self.give(item) });
    }
}
