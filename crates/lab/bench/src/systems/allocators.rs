//! `glibc`, `jemalloc`, `tcmalloc`, `mimalloc`: malloc, whosever it is; `mmap`: the kernel itself.

use std::ptr::NonNull;

use anyhow::{Context, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::alloc::{AllocEntry, Allocator, Preload, entry};

pub fn all() -> Vec<AllocEntry> {
    vec![
        entry::<super::tranship::Zones>(),
        entry::<Malloc<Glibc>>(),
        entry::<Malloc<Jemalloc>>(),
        entry::<Malloc<Tcmalloc>>(),
        entry::<Malloc<Mimalloc>>(),
        entry::<Mmap>(),
    ]
}

/// Which malloc a process runs with.
pub trait Whose {
    const NAME: &'static str;
    const PRELOAD: Option<Preload>;
}

macro_rules! whose {
    ($type:ident, $name:literal, $preload:expr) => {
        pub struct $type;
        impl Whose for $type {
            const NAME: &'static str = $name;
            const PRELOAD: Option<Preload> = $preload;
        }
    };
}

const fn library(file: &'static str, get: &'static str) -> Option<Preload> {
    Some(Preload { file, get })
}

whose!(Glibc, "glibc", None);
whose!(
    Jemalloc,
    "jemalloc",
    library("libjemalloc.so.2", "apt-get install libjemalloc2")
);
whose!(
    Tcmalloc,
    "tcmalloc",
    library(
        "libtcmalloc_minimal.so.4",
        "apt-get install libtcmalloc-minimal4"
    )
);
whose!(
    Mimalloc,
    "mimalloc",
    library("libmimalloc.so.2", "apt-get install libmimalloc2.0")
);

whose!(
    Ours,
    "tranship",
    library(
        "libtranship_malloc.so",
        "cargo build --release -p tranship-preload"
    )
);

/// Whole allocators, ours among them.
pub const MALLOCS: [(&str, Option<Preload>); 5] = [
    (Ours::NAME, Ours::PRELOAD),
    (Glibc::NAME, Glibc::PRELOAD),
    (Jemalloc::NAME, Jemalloc::PRELOAD),
    (Tcmalloc::NAME, Tcmalloc::PRELOAD),
    (Mimalloc::NAME, Mimalloc::PRELOAD),
];

pub struct Malloc<W> {
    bytes: usize,
    whose: std::marker::PhantomData<W>,
}

impl<W: Whose> Allocator for Malloc<W> {
    const NAME: &'static str = W::NAME;
    const PRELOAD: Option<Preload> = W::PRELOAD;
    type Held = NonNull<libc::c_void>;

    fn open(bytes: usize) -> Result<Self> {
        Ok(Self {
            bytes,
            whose: std::marker::PhantomData,
        })
    }

    #[inline]
    fn alloc(&mut self) -> Result<Self::Held> {
        // SAFETY: no precondition. The size is shown as unknown, or the compiler might drop the pair.
        let at = unsafe { libc::malloc(std::hint::black_box(self.bytes)) };
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
    const NAME: &'static str = "mmap";
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
