//! Items and their constructors, and the kegs that they come from.

use super::calls::no_thread;
use super::types::{M_NOWAIT, M_WAITOK, UmaCtor, UmaFini, UmaInit, int};
use facade::zone::{Arena, ItemKeg, KegError, Object, Refused, Wait};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of addresses to try, one after the other, for the items of up to 254 kegs. The first is the most that all kegs
/// can need; the others are for a process whose addresses are limited.
const WINDOW_BYTES: [u64; 3] = [64 << 30, 8 << 30, 1 << 30];

/// The program's functions; what frees is in the zone, as it has an argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) ctor: UmaCtor,
    pub(super) uminit: UmaInit,
    pub(super) fini: UmaFini,
    pub(super) zeros: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    size: usize,
    shape: Shape,
}

impl Items {
    pub(super) fn new(size: usize, shape: Shape) -> Items {
        Items { size, shape }
    }

    fn int_size(&self) -> i32 {
        int(self.size as u64)
    }
}

fn refused(answer: i32) -> Result<(), Refused> {
    if answer == 0 { Ok(()) } else { Err(Refused) }
}

impl Object for Items {
    type Arg<'a> = (*mut c_void, i32);
    const INITIALIZED: bool = true;

    fn init(&self, item: NonNull<u8>, wait: Wait) -> Result<(), Refused> {
        if self.shape.zeros {
            // SAFETY: an item has `self.size` bytes, and nobody has it yet.
            unsafe { item.as_ptr().write_bytes(0, self.size) };
        }
        let Some(uminit) = self.shape.uminit else {
            return Ok(());
        };
        let flags = match wait {
            Wait::No => M_NOWAIT,
            _ => M_WAITOK,
        };
        // SAFETY: the program's function, called as it was promised.
        refused(unsafe { uminit(item.as_ptr().cast(), self.int_size(), flags) })
    }

    fn fini(&self, item: NonNull<u8>) {
        if let Some(fini) = self.shape.fini {
            // SAFETY: as above.
            unsafe { fini(item.as_ptr().cast(), self.int_size()) };
        }
    }

    #[inline]
    fn ctor(&self, item: NonNull<u8>, (arg, flags): (*mut c_void, i32)) -> Result<(), Refused> {
        match self.shape.ctor {
            Some(ctor) => {
                // SAFETY: as above.
                refused(unsafe { ctor(item.as_ptr().cast(), self.int_size(), arg, flags) })
            }
            None => Ok(()),
        }
    }
}

/// The shape of a keg's items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) size: usize,
    pub(super) align: u64,
    /// Whether each item has a counter of references.
    pub(super) counted: bool,
}

impl Cut {
    pub(super) fn keg(self, arena: &Arc<Arena>) -> Result<Arc<ItemKeg>, KegError> {
        match self.counted {
            true => ItemKeg::with_counters(arena, self.size as u64, self.align),
            false => ItemKeg::new(arena, self.size as u64, self.align),
        }
    }
}

/// A keg in the arena that was made last; in another one if that has as many as it can.
pub(super) fn keg(cut: Cut) -> Option<Arc<ItemKeg>> {
    static ARENA: Mutex<Option<Arc<Arena>>> = Mutex::new(None);
    no_thread();
    let mut arena = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(arena) = &*arena {
        match cut.keg(arena) {
            Err(KegError::Full) => {}
            other => return other.ok(),
        }
    }
    let mut windows = WINDOW_BYTES.iter();
    let fresh = Arc::new(windows.find_map(|bytes| Arena::private(*bytes).ok())?);
    let keg = cut.keg(&fresh).ok();
    *arena = Some(fresh);
    keg
}
