//! The calling thread's table of fronts, one word for each zone that has a place in it.
//!
//! In a shared library the compiler's thread-locals are found by a call, which costs as much as an allocation. With the feature
//! `static-tls` the table is where the loader puts what is there when the program begins (the initial-exec model), and is
//! found by one load. A library with it can be preloaded and linked; one that is loaded later takes 1 KiB of the
//! little that the C library keeps for such.

use crate::front::{Front, NOBODYS};

/// Zones that have a place of their own.
pub(crate) const ZONES: usize = 128;

/// Where the calling thread's front for a zone is found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(usize);

impl Place {
    /// Of the zone of this index. All that have none of their own share the last, where there is always a shut one.
    pub(crate) fn of(index: usize) -> Place {
        Place(index.min(ZONES))
    }
}

/// All places are as in a new thread.
pub(crate) fn reset() {
    (0..=ZONES).for_each(|place| set(Place(place), &NOBODYS));
}

#[cfg(not(all(feature = "static-tls", target_arch = "x86_64", not(miri))))]
mod table {
    use super::{Front, NOBODYS, Place, ZONES};
    use std::cell::Cell;

    thread_local! {
        static TABLE: [Cell<*const Front>; ZONES + 1] =
            const { [const { Cell::new(&raw const NOBODYS) }; ZONES + 1] };
    }

    #[inline(always)]
    pub(crate) fn get(place: Place) -> *const Front {
        // SAFETY: a place is at most the last.
        TABLE.with(|table| unsafe { table.get_unchecked(place.0) }.get())
    }

    pub(crate) fn set(place: Place, front: *const Front) {
        TABLE.with(|table| table[place.0].set(front));
    }
}

#[cfg(all(feature = "static-tls", target_arch = "x86_64", not(miri)))]
mod table {
    use super::{Front, NOBODYS, Place, ZONES};
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tdata.tranship_zone_fronts, \"awT\", @progbits",
        ".globl tranship_zone_fronts",
        ".hidden tranship_zone_fronts",
        ".type tranship_zone_fronts, @object",
        ".size tranship_zone_fronts, ({zones} + 1) * 8",
        ".p2align 6",
        "tranship_zone_fronts:",
        ".rept {zones} + 1",
        ".quad {nobodys}",
        ".endr",
        ".popsection",
        zones = const ZONES,
        nobodys = sym NOBODYS,
    );

    #[inline(always)]
    pub(crate) fn get(place: Place) -> *const Front {
        let front;
        // SAFETY: the offset of the calling thread's table, and a word of it: a place is at most the last.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + tranship_zone_fronts@GOTTPOFF]",
                "mov {at}, qword ptr fs:[{at} + 8 * {place}]",
                at = out(reg) front,
                place = in(reg) place.0,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        front
    }

    pub(crate) fn set(place: Place, front: *const Front) {
        // SAFETY: as in `get`.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + tranship_zone_fronts@GOTTPOFF]",
                "mov qword ptr fs:[{at} + 8 * {place}], {front}",
                at = out(reg) _,
                place = in(reg) place.0,
                front = in(reg) front,
                options(nostack, preserves_flags),
            );
        }
    }
}

pub(crate) use table::{get, set};
