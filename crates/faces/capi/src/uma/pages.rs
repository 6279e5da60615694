//! Pages that the program allocates for a zone by itself.

use super::alarm::Callbacks;
use super::types::{M_NOWAIT, UmaAlloc, UmaFree, Zone};
use facade::zone::{Memory, OwnPages};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses below and above the first run in which the other runs have to lie.
const BELOW: usize = 4 << 30;
const WINDOW_BYTES: u64 = 64 << 30;
const ALIGN: usize = 2 << 20;
const PAGE: usize = 4096;

/// A run of pages, and what the program said of it.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: usize,
    bytes: u64,
    flag: u8,
}

/// The program's functions as the memory of an arena.
#[derive(Debug)]
pub(super) struct Pages {
    base: NonNull<u8>,
    alloc: unsafe extern "C" fn(*mut Zone, usize, i32, *mut u8, i32) -> *mut std::ffi::c_void,
    callbacks: Arc<Callbacks>,
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    used: Vec<Run>,
    /// Runs for which there is no function that takes them back: for the next call.
    kept: Vec<Run>,
}

// SAFETY: `base` is only an address, and the program promises that any thread may call its functions.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Asks for a first run of `bytes`, around which the others have to lie. `None`: there is none.
    pub(super) fn begin(alloc: UmaAlloc, callbacks: &Arc<Callbacks>, bytes: u64) -> Option<Pages> {
        let alloc = alloc?;
        let mut pages = Pages {
            base: NonNull::dangling(),
            alloc,
            callbacks: callbacks.clone(),
            runs: Mutex::default(),
        };
        let first = pages.ask(bytes)?;
        let base = first.first.saturating_sub(BELOW).max(ALIGN) & !(ALIGN - 1);
        pages.base = NonNull::new(std::ptr::with_exposed_provenance_mut(base))?;
        pages.runs().kept.push(first);
        (first.first % PAGE == 0).then_some(pages)
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, bytes: u64) -> Option<Run> {
        let size = usize::try_from(bytes).ok()?;
        let mut flag = 0;
        // SAFETY: the program's function, called as it was promised.
        let first =
            unsafe { (self.alloc)(self.callbacks.zone(), size, 0, &raw mut flag, M_NOWAIT) };
        (!first.is_null()).then(|| Run {
            first: first.expose_provenance(),
            bytes,
            flag,
        })
    }

    fn give(free: UmaFree, run: Run) {
        if let (Some(free), Ok(size)) = (free, usize::try_from(run.bytes)) {
            let first = std::ptr::with_exposed_provenance_mut(run.first);
            // SAFETY: the program's function, called as it was promised.
            unsafe { free(first, size, run.flag) };
        }
    }
}

// SAFETY: nothing but the program's runs is used. The program promises that they may be read and written until they are
// given back.
unsafe impl Memory for Pages {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> u64 {
        WINDOW_BYTES
    }

    fn commit(&self, _range: Range<u64>) -> bool {
        false
    }

    fn decommit(&self, _range: Range<u64>) {}

    fn own_pages(&self) -> Option<&dyn OwnPages> {
        Some(self)
    }
}

// SAFETY: as above.
unsafe impl OwnPages for Pages {
    fn alloc(&self, bytes: u64) -> Option<NonNull<u8>> {
        let kept = {
            let mut runs = self.runs();
            let at = runs.kept.iter().position(|run| run.bytes == bytes);
            at.map(|at| runs.kept.swap_remove(at))
        };
        let run = kept.or_else(|| self.ask(bytes))?;
        self.runs().used.push(run);
        NonNull::new(std::ptr::with_exposed_provenance_mut(run.first))
    }

    fn free(&self, first: NonNull<u8>, _bytes: u64) {
        let free = self.callbacks.free();
        let mut runs = self.runs();
        let at = runs
            .used
            .iter()
            .position(|run| run.first == first.addr().get());
        let Some(run) = at.map(|at| runs.used.swap_remove(at)) else {
            return;
        };
        if free.is_none() {
            runs.kept.push(run);
        }
        drop(runs);
        Self::give(free, run);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let free = self.callbacks.free();
        let kept = std::mem::take(&mut self.runs().kept);
        kept.into_iter().for_each(|run| Self::give(free, run));
    }
}
