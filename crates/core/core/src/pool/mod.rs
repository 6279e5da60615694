//! Pools: own pools ([`OwnPool`], behind the public [`Pool`]) and pools of other domains that this domain reads
//! ([`ForeignPool`]). They know no buffer: they hand out a [`RawBuf`], of which `buffer/` makes one.
//!
//! An own pool consists of parts that own their data. [`OwnPool`] has three, and what goes across them:
//!
//! - `memory`: what buffers lie in. It consists of what the manager knows of the pool (`registration`), the lengths of buffers and their classes (`sizes`,
//!   `short`), zones (`class`: what stands behind their caches), slots (`slot_table`, `slots`, `place`, `run`), slabs and runs (`store`, `slabs`, `larges`), and chunks (`chunks`, `resizing`,
//!   `grow`); buffers that go the long way have `long` and `large`.
//! - `gc`: the collector, which finds dead buffers: the counting domains (`reader_set`, `counts`), whether all of them
//!   have let go (`collect`, `few`, `order`), and which have not (`shortage`).
//! - `waiters`: callers that wait for memory.
//!
//! Across them go the beginning (`create`), alloc, free and release on their fast ways (`own`), alloc on its slow one (`wait`), less memory (`shrink`), and one's own buffers by
//! their ids (`lookup`). `figures` says what each part tells the manager, `member` what the domain asks of the pool, `handle` is its public handle.

mod chunks;
mod class;
mod collect;
mod counts;
mod create;
mod few;
mod figures;
mod foreign;
mod gc;
mod grow;
mod guard;
mod hand_out;
mod handle;
mod large;
mod larges;
mod long;
mod lookup;
mod member;
mod memory;
mod order;
mod own;
mod pins;
mod place;
mod raw;
mod reader_set;
mod registration;
mod resizing;
mod run;
mod short;
mod shortage;
mod shrink;
mod sizes;
mod slabs;
mod slot_table;
mod slots;
mod store;
mod tag;
mod wait;
mod waiters;

pub(crate) use create::check;
pub(crate) use foreign::{ForeignPool, Missing};
pub use handle::{Pool, PoolStats};
pub(crate) use own::OwnPool;
pub(crate) use place::Place;
pub(crate) use raw::RawBuf;
pub(crate) use run::FEW;
pub(crate) use tag::Tag;
pub(crate) use wait::Patience;

use crate::error::{Error, NoAddresses, OutOfRange};
use crate::options::PoolOptions;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_region::{Window, WindowError};
use tranship_sys::map::Within;

/// Reserves the window of a foreign pool.
fn reserve(max_bytes: u64, chunk_bytes: u64) -> Result<Window, Error> {
    reserve_within(max_bytes, chunk_bytes, Within::ANYWHERE)
}

fn reserve_within(max_bytes: u64, chunk_bytes: u64, within: Within) -> Result<Window, Error> {
    Ok(Window::reserve_within(
        size(max_bytes)?,
        size(chunk_bytes)?,
        within,
    )?)
}

fn size(value: u64) -> Result<usize, OutOfRange> {
    usize::try_from(value).map_err(|_: std::num::TryFromIntError| OutOfRange {
        what: "bytes",
        value,
        min: 1,
        max: usize::MAX as u64,
    })
}

/// Reserves the window of an own pool, where its options say.
fn reserve_own(max_bytes: u64, chunk_bytes: u64, options: &PoolOptions) -> Result<Window, Error> {
    let within = Within::ANYWHERE.aligned(size(options.align_bytes)?);
    let Some(range) = &options.addresses else {
        return reserve_within(max_bytes, chunk_bytes, within);
    };
    let (from, to) = (range.start, range.end);
    let within = Within { from, to, ..within };
    let why = NoAddresses {
        need_bytes: max_bytes,
        from,
        to,
    };
    let reserved = reserve_within(max_bytes, chunk_bytes, within);
    reserved.map_err(|error| match error.find::<WindowError>() {
        Some(WindowError::Io { source, .. })
            if source.kind() != io::ErrorKind::AddrNotAvailable =>
        {
            error
        }
        _ => why.into(),
    })
}

/// The window's first byte.
#[inline(always)]
fn base(window: &Window) -> NonNull<u8> {
    NonNull::new(window.base()).unwrap_or(NonNull::dangling())
}

/// Returns the indices of the first and the last chunk of these bytes. An empty range lies in the chunk where it
/// begins.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // 64-bit only
fn chunks_of(offset: u64, length: u64, chunk_shift: u32) -> (usize, usize) {
    let last = offset.saturating_add(length.saturating_sub(1));
    (
        (offset >> chunk_shift) as usize,
        (last >> chunk_shift) as usize,
    )
}

/// Returns the serial that a line names for bytes of a live buffer: the sum of their chunks' serials.
#[inline(always)]
fn serial_of(serials: &[AtomicU32], offset: u64, length: u64, chunk_shift: u32) -> u32 {
    let (first, last) = chunks_of(offset, length, chunk_shift);
    // Relaxed: the chunks of a live buffer stay what they are.
    let one = |s: &AtomicU32| s.load(Ordering::Relaxed);
    if first == last {
        return serials.get(first).map_or(0, one);
    }
    let chunks = serials.get(first..=last).unwrap_or_default();
    chunks.iter().fold(0, |sum, s| sum.wrapping_add(one(s)))
}
