//! Network buffers, as mbuf(9) has them: `include/tranship/mbufs.h`, over which `include/tranship/mbuf.h` gives the short names.
//!
//! To Rust a chain is one thing. To C it is a pointer to its first mbuf, and a pointer to a later one is the chain from there on. So a
//! change of a later one's length leaves the packet's as it was; each call that needs the packet's length puts it right first.

mod alloc;
mod copy;
mod cross;
mod header;
mod look;
mod queue;
mod shape;
mod store;
mod tag;
mod uio;

use facade::ErrorKind;
use facade::mbuf::{Chain, Error, Flags};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

/// One mbuf, and the chain that begins with it. Any thread may have it, one at a time.
#[derive(Debug)]
pub struct Mbuf(());

/// In `how`: wait until there is a buffer.
const M_WAITOK: i32 = 2;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;

/// The chain is the caller's no more. `None` of NULL.
#[inline(always)]
fn owned(m: *mut Mbuf) -> Option<Chain> {
    let m = NonNull::new(m)?;
    // SAFETY: the caller promises: an mbuf. Of one that was freed the memory is there, as a rule.
    if unsafe { Chain::is_freed(m.cast()) } {
        freed(m);
    }
    // SAFETY: the caller promises: an mbuf that it has, and does not use again as it was.
    Some(unsafe { Chain::from_raw(m.cast()) })
}

#[cold]
fn freed(m: NonNull<Mbuf>) -> ! {
    crate::open::end_program(&format!(
        "an mbuf was used, or freed again, after it was freed: {m:p}"
    ))
}

/// Takes a chain over, and puts the packet's length right.
fn whole(m: *mut Mbuf) -> Option<Chain> {
    owned(m).map(|mut chain| {
        chain.fix_header();
        chain
    })
}

/// The chain stays the caller's, and stays where it is: only what does not change its first mbuf may be done.
fn borrowed(m: *const Mbuf) -> Option<ManuallyDrop<Chain>> {
    owned(m.cast_mut()).map(ManuallyDrop::new)
}

/// Borrows a chain, and puts the packet's length right.
fn borrowed_whole(m: *const Mbuf) -> Option<ManuallyDrop<Chain>> {
    whole(m.cast_mut()).map(ManuallyDrop::new)
}

/// The chain is the caller's.
#[inline(always)]
fn given(chain: Chain) -> *mut Mbuf {
    chain.into_raw().as_ptr().cast()
}

/// An mbuf that stays in its chain.
fn inside(mbuf: Option<facade::mbuf::Mbuf<'_>>) -> *mut Mbuf {
    mbuf.map_or(null_mut(), |mbuf| mbuf.as_raw().as_ptr().cast())
}

/// Returns a chain as a pointer; NULL for an error.
fn or_null<E>(chain: Result<Chain, E>) -> *mut Mbuf {
    chain.map_or(null_mut(), given)
}

/// 0, or the error's number.
fn errno(done: Result<(), Error>) -> i32 {
    done.map_or_else(|error| error.errno(), |()| 0)
}

/// Returns the error as callers see it.
fn told(error: Error) -> facade::Error {
    let kind = match &error {
        Error::NoBuffers(none) => none
            .refusal()
            .map_or(ErrorKind::OutOfMemory, facade::Error::kind),
        Error::TooMany { .. } => ErrorKind::Limit,
        Error::File { .. } => ErrorKind::System,
        _ => ErrorKind::BadArgument,
    };
    facade::error::of_kind(kind)(error)
}

fn flags(bits: i32) -> Flags {
    Flags::from_bits(bits.cast_unsigned())
}

/// A length that C has as an `int`. Less than 0 is none.
fn length(len: i32) -> Option<usize> {
    usize::try_from(len).ok()
}

/// Returns whether the chain's length, with `more` bytes more, still fits into C's `int`.
fn stays_int(chain: &Chain, more: usize) -> bool {
    let sum = chain.len().checked_add(more);
    sum.is_some_and(|sum| i32::try_from(sum).is_ok())
}

/// As an `int`, as far as that goes.
fn int(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
