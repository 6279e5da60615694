//! Names of types in C.

use std::ffi::c_void;

/// Items of one size. Any thread may allocate and free, all at the same time.
#[derive(Debug)]
pub struct Zone(());

/// Called for an item that goes to its user; anything but 0 refuses it.
pub type UmaCtor =
    Option<unsafe extern "C" fn(item: *mut c_void, size: i32, arg: *mut c_void, flags: i32) -> i32>;
/// Called for an item that comes from its user.
pub type UmaDtor = Option<unsafe extern "C" fn(item: *mut c_void, size: i32, arg: *mut c_void)>;
/// Called for an item that comes into its zone, to stay for many uses; anything but 0 refuses it.
pub type UmaInit = Option<unsafe extern "C" fn(item: *mut c_void, size: i32, flags: i32) -> i32>;
/// Called for an item that leaves its zone.
pub type UmaFini = Option<unsafe extern "C" fn(item: *mut c_void, size: i32)>;
/// Allocates `size` bytes of pages for a zone; NULL: there are none. `domain` is 0. What it writes to `pflag` goes to the
/// zone's `tranship_uma_free` for the same pages.
pub type UmaAlloc = Option<
    unsafe extern "C" fn(
        zone: *mut Zone,
        size: usize,
        domain: i32,
        pflag: *mut u8,
        wait: i32,
    ) -> *mut c_void,
>;
/// Takes back pages that a `tranship_uma_alloc` allocated.
pub type UmaFree = Option<unsafe extern "C" fn(mem: *mut c_void, size: usize, pflag: u8)>;
/// Called when a zone has met its limit.
pub type UmaMaxaction = Option<unsafe extern "C" fn(zone: *mut Zone, flags: i32)>;

pub(super) const M_NOWAIT: i32 = 1;
pub(super) const M_WAITOK: i32 = 2;
pub(super) const M_ZERO: i32 = 0x100;
pub(super) const M_USE_RESERVE: i32 = 0x400;

/// As C counts.
pub(super) fn int(items: u64) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}
