//! The calling thread's table of fronts, one word for each zone that has a place in it.
//!
//! In a shared library the compiler's thread-locals are found by a call, which costs as much as an allocation. With the
//! feature `static-tls` the table lies in the area that the loader lays out when the program begins (the initial-exec
//! model), and is found by one load. A library with this feature can be preloaded and linked. If it is loaded later, it
//! takes 1 KiB of the small area that the C library reserves for this purpose.

use crate::front::{Front, NOBODYS};

/// Zones that have a place of their own.
pub(crate) const ZONES: usize = 127;
/// All places. The last serves all zones without a place of their own: it always has a shut front.
const PLACES: usize = ZONES + 1;

const _: () = assert!(PLACES.is_power_of_two() && PLACES <= 1 << u8::BITS);

/// The place at which each thread finds its cache of a zone ([`Zone::place`](crate::Zone::place)). A caller that keeps
/// it beside the zone's key saves the loads of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePlace(u8);

impl CachePlace {
    /// Returns the place of the zone of this index.
    pub(crate) fn of(index: usize) -> CachePlace {
        #[allow(clippy::cast_possible_truncation)] // the last is below 256
        CachePlace(index.min(ZONES) as u8)
    }

    /// Returns the place as a number.
    #[inline(always)]
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the place of this number. For a number that no place has, it returns some place.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below 256
    pub fn numbered(number: u8) -> CachePlace {
        CachePlace(number & (PLACES - 1) as u8)
    }

    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Resets all places as in a new thread.
pub(crate) fn reset() {
    (0..PLACES).for_each(|index| set(CachePlace::of(index), &NOBODYS));
}

#[cfg(not(all(feature = "static-tls", target_arch = "x86_64", not(miri))))]
mod table {
    use super::{CachePlace, Front, NOBODYS, PLACES};
    use std::cell::Cell;

    thread_local! {
        static TABLE: [Cell<*const Front>; PLACES] =
            const { [const { Cell::new(&raw const NOBODYS) }; PLACES] };
    }

    #[inline(always)]
    pub(crate) fn get(place: CachePlace) -> *const Front {
        // SAFETY: a place is at most the last.
        TABLE.with(|table| unsafe { table.get_unchecked(place.index()) }.get())
    }

    pub(crate) fn set(place: CachePlace, front: *const Front) {
        TABLE.with(|table| table[place.index()].set(front));
    }
}

#[cfg(all(feature = "static-tls", target_arch = "x86_64", not(miri)))]
mod table {
    use super::{CachePlace, Front, NOBODYS, PLACES};
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tdata.tranship_zone_fronts, \"awT\", @progbits",
        ".globl tranship_zone_fronts",
        ".hidden tranship_zone_fronts",
        ".type tranship_zone_fronts, @object",
        ".size tranship_zone_fronts, {places} * 8",
        ".p2align 6",
        "tranship_zone_fronts:",
        ".rept {places}",
        ".quad {nobodys}",
        ".endr",
        ".popsection",
        places = const PLACES,
        nobodys = sym NOBODYS,
    );

    #[inline(always)]
    pub(crate) fn get(place: CachePlace) -> *const Front {
        let front;
        // SAFETY: the offset of the calling thread's table, and a word of it: a place is at most the last.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + tranship_zone_fronts@GOTTPOFF]",
                "mov {at}, qword ptr fs:[{at} + 8 * {place}]",
                at = out(reg) front,
                place = in(reg) place.index(),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        front
    }

    pub(crate) fn set(place: CachePlace, front: *const Front) {
        // SAFETY: as in `get`.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + tranship_zone_fronts@GOTTPOFF]",
                "mov qword ptr fs:[{at} + 8 * {place}], {front}",
                at = out(reg) _,
                place = in(reg) place.index(),
                front = in(reg) front,
                options(nostack, preserves_flags),
            );
        }
    }
}

pub(crate) use table::{get, set};
