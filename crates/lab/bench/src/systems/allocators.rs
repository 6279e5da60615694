//! `glibc`, `jemalloc`, `tcmalloc`, `mimalloc`: malloc of any library; `mmap`: the kernel itself.

use std::ptr::NonNull;

use anyhow::{Context, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A library to preload, and how to get it.
#[derive(Debug, Clone, Copy)]
pub struct Preload {
    pub file: &'static str,
    pub get: &'static str,
}

const fn library(file: &'static str, get: &'static str) -> Option<Preload> {
    Some(Preload { file, get })
}

/// Whole allocators, ours first.
#[rustfmt::skip]
pub const MALLOCS: [(&str, Option<Preload>); 5] = [
    ("tranship-malloc", library("libtranship_malloc.so", "cargo build --release -p tranship-preload")),
    ("glibc", None),
    ("jemalloc", library("libjemalloc.so.2", "apt-get install libjemalloc2")),
    ("tcmalloc", library("libtcmalloc_minimal.so.4", "apt-get install libtcmalloc-minimal4")),
    ("mimalloc", library("libmimalloc.so.2", "apt-get install libmimalloc2.0")),
];

/// Memory that can be allocated and freed.
pub trait Allocator: Sized {
    type Held;

    fn open(bytes: usize) -> Result<Self>;
    fn alloc(&mut self) -> Result<Self::Held>;
    /// Where its bytes are.
    fn address(held: &mut Self::Held) -> *mut u8;
    fn free(&mut self, held: Self::Held) -> Result<()>;
}

/// Whichever malloc this process has.
pub struct Malloc(usize);

impl Allocator for Malloc {
    type Held = NonNull<libc::c_void>;

    fn open(bytes: usize) -> Result<Self> {
        Ok(Self(bytes))
    }

    #[inline]
    fn alloc(&mut self) -> Result<Self::Held> {
        // SAFETY: no precondition. The size is shown as unknown, or the compiler might drop the pair.
        let at = unsafe { libc::malloc(std::hint::black_box(self.0)) };
        NonNull::new(at).context("malloc: out of memory")
    }

    #[inline]
    fn address(held: &mut Self::Held) -> *mut u8 {
        held.as_ptr().cast()
    }

    #[inline]
    fn free(&mut self, held: Self::Held) -> Result<()> {
        // SAFETY: it came from `alloc`, and is given back once.
        unsafe { libc::free(held.as_ptr()) };
        Ok(())
    }
}

pub struct Mmap(usize);

impl Allocator for Mmap {
    type Held = *mut std::ffi::c_void;

    fn open(bytes: usize) -> Result<Self> {
        Ok(Self(bytes))
    }

    fn alloc(&mut self) -> Result<Self::Held> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel chooses replaces nothing.
        Ok(unsafe { mmap_anonymous(std::ptr::null_mut(), self.0, prot, MapFlags::PRIVATE)? })
    }

    fn address(held: &mut Self::Held) -> *mut u8 {
        held.cast()
    }

    fn free(&mut self, held: Self::Held) -> Result<()> {
        // SAFETY: a mapping from `alloc`, of that length, unmapped once.
        unsafe { munmap(held, self.0)? };
        Ok(())
    }
}
