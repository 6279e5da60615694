//! Operations on chains: one file for each family.
//!
//! Each operation allocates and reads everything before it changes anything, or changes only the storage of the bytes.
//! A failure therefore leaves the bytes, the length and the header as they were.

mod front;
mod join;
mod pulldown;
mod repack;
mod split;
mod trim;
mod unmapped;

use crate::chain::Chain;
use crate::error::Error;
use crate::ext;
use crate::flags::Flags;
use crate::seg::Seg;

/// Moves header and flags of a packet from one first mbuf to another, fresh one; the former is no packet any more.
pub(crate) fn move_header(from: Seg, to: Seg) {
    debug_assert!(from.has(Flags::PKTHDR) && to.has(Flags::PKTHDR));
    // SAFETY: both are valid with `PKTHDR`; the new one is fresh, so nothing in it needs a destructor; the old one is
    // not used again, as it loses its flag.
    unsafe { std::ptr::copy_nonoverlapping(from.header(), to.header(), 1) };
    to.set_pkt_len(from.pkt_len());
    to.set_flags((to.flags() - Flags::MOVED) | from.flags() & Flags::MOVED);
    from.lose_header();
}

/// Copies `count` bytes from `offset` of a chain on behind `to_offset` of `to`, which has room; changes no length.
pub(crate) fn gather(
    first: Seg,
    offset: usize,
    to: Seg,
    to_offset: usize,
    count: usize,
) -> Result<(), Error> {
    let (mut skip, mut done) = (offset, 0);
    for seg in first.walk() {
        if done == count {
            break;
        }
        if skip >= seg.len() {
            skip -= seg.len();
            continue;
        }
        let piece = (seg.len() - skip).min(count - done);
        seg.read_into(skip, to, to_offset + done, piece)?;
        done += piece;
        skip = 0;
    }
    debug_assert_eq!(done, count, "the caller asks for what there is");
    Ok(())
}

/// Takes `count` bytes away from the front. Frees the mbufs that become empty, and returns the rest.
///
/// # Safety
/// The mbufs are the caller's, and those in front of the result are not used again. None has a header.
pub(crate) unsafe fn consume(first: Option<Seg>, mut count: usize) -> Option<Seg> {
    let mut at = first;
    while let Some(seg) = at {
        if count < seg.len() {
            seg.set_data(seg.data().wrapping_add(count));
            seg.set_len(seg.len() - count);
            break;
        }
        count -= seg.len();
        if count == 0 && seg.len() == 0 {
            break; // an empty mbuf behind the last byte stays
        }
        // SAFETY: as the caller promises.
        at = unsafe { ext::free_one(seg) };
    }
    at
}

/// Replaces one mbuf of a chain by `new`, and frees it. A header moves to the first mbuf of `new`, which was allocated
/// with one.
pub(crate) fn replace(chain: &mut Chain, previous: Option<Seg>, old: Seg, new: Chain) -> Seg {
    let first = new.into_first();
    let last = first.last();
    last.set_next(old.next());
    last.set_flags(last.flags() | old.flags() & Flags::EOR);
    if old.has(Flags::PKTHDR) {
        move_header(old, first);
    }
    match previous {
        Some(previous) => previous.set_next(Some(first)),
        None => chain.set_first(first),
    }
    // SAFETY: out of the chain now.
    unsafe { ext::free_one(old) };
    last
}
