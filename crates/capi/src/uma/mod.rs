//! Zones, as uma(9) has them: `include/tranship/zones.h`, over which `include/tranship/uma.h` gives the short names.

mod alarm;
mod calls;
mod items;

use crate::status::quietly;
use alarm::Bell;
pub(crate) use calls::no_thread;
use facade::zone::{Alarm, ItemKeg, ItemOptions, ItemZone, Level, Request, Wait, reclaim};
use items::{Items, Shape};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// Called for an item that goes to its user; anything but 0 refuses it.
pub type UmaCtor =
    Option<unsafe extern "C" fn(item: *mut c_void, size: i32, arg: *mut c_void, flags: i32) -> i32>;
/// Called for an item that comes from its user.
pub type UmaDtor = Option<unsafe extern "C" fn(item: *mut c_void, size: i32, arg: *mut c_void)>;
/// Called for an item that comes into its zone, to stay for many uses; anything but 0 refuses it.
pub type UmaInit = Option<unsafe extern "C" fn(item: *mut c_void, size: i32, flags: i32) -> i32>;
/// Called for an item that leaves its zone.
pub type UmaFini = Option<unsafe extern "C" fn(item: *mut c_void, size: i32)>;
/// Called when a zone has met its limit.
pub type UmaMaxaction = Option<unsafe extern "C" fn(zone: *mut Zone, flags: i32)>;

const M_NOWAIT: i32 = 1;
const M_WAITOK: i32 = 2;
const M_ZERO: i32 = 0x100;
const M_USE_RESERVE: i32 = 0x400;
const ENOMEM: i32 = 12;
/// In `flags` of a zone: its items are zeros when they come into it.
const UMA_ZONE_ZINIT: u32 = 2;
/// How often a zone at its limit says so.
const WARNINGS: Duration = Duration::from_secs(300);

/// Items of one size. Any thread may allocate and free, all at the same time.
#[derive(Debug)]
pub struct Zone {
    zone: ItemZone<Items>,
    size: usize,
    dtor: UmaDtor,
    bell: Arc<Bell>,
}

impl Zone {
    fn new(name: *const c_char, keg: &Arc<ItemKeg>, items: Items, dtor: UmaDtor) -> *mut Zone {
        let name = match name.is_null() {
            true => "zone".into(),
            // SAFETY: the caller's word: it ends with a 0.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
        };
        let bell = Arc::<Bell>::default();
        let (warned, acted) = (bell.clone(), bell.clone());
        let alarm = Alarm::default()
            .warn(WARNINGS, move |warning| warned.warn(warning.name))
            .action(move || acted.act());
        let zone = Box::new(Zone {
            zone: ItemZone::new(keg, items, ItemOptions::named(name).alarm(alarm)),
            size: items.size(),
            dtor,
            bell: bell.clone(),
        });
        let zone = Box::into_raw(zone);
        bell.is_of(zone);
        zone
    }
}

/// A zone of items of `size` bytes, up to 1 MiB, aligned to `align` + 1 (uma_zcreate). `ctor` and `dtor` frame each use of an item,
/// `uminit` and `fini` its stay in the zone; any may be NULL. `flags`: 2 (UMA_ZONE_ZINIT) or 0. NULL: it cannot be, or there is no memory.
///
/// Its end is tranship_uma_zdestroy.
#[allow(clippy::too_many_arguments)] // as FreeBSD has them
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zcreate(
    name: *const c_char,
    size: usize,
    ctor: UmaCtor,
    dtor: UmaDtor,
    uminit: UmaInit,
    fini: UmaFini,
    align: i32,
    flags: u32,
) -> *mut Zone {
    quietly(null_mut(), || {
        let zeros = flags & UMA_ZONE_ZINIT != 0;
        let align = match align {
            -1 => 64, // UMA_ALIGN_CACHE
            align => u64::from(align.unsigned_abs()) + 1,
        };
        if flags & !UMA_ZONE_ZINIT != 0 {
            return null_mut();
        }
        let Some(keg) = items::keg(size, align) else {
            return null_mut();
        };
        let items = Items::new(
            size,
            Shape {
                ctor,
                uminit,
                fini,
                zeros,
            },
        );
        Zone::new(name, &keg, items, dtor)
    })
}

/// A second zone over the keg of another, with caches, limit, constructors of its own (uma_zsecond_create). An item is freed to the zone
/// that it came from. Either zone may be destroyed first.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zsecond_create(
    name: *const c_char,
    ctor: UmaCtor,
    dtor: UmaDtor,
    uminit: UmaInit,
    fini: UmaFini,
    primary: Option<&Zone>,
) -> *mut Zone {
    quietly(null_mut(), || {
        let Some(primary) = primary else {
            return null_mut();
        };
        let shape = Shape {
            ctor,
            uminit,
            fini,
            zeros: false,
        };
        let items = Items::new(primary.size, shape);
        Zone::new(name, primary.zone.keg(), items, dtor)
    })
}

/// Destroys a zone that nobody uses any more (uma_zdestroy). Returns how many of its items had not been freed: they are lost, and their
/// memory with them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zdestroy(zone: Option<Box<Zone>>) -> i32 {
    quietly(0, || {
        let Some(zone) = zone else { return 0 };
        zone.bell.is_of(null_mut());
        match zone.zone.destroy() {
            Ok(()) => 0,
            Err(out) => int(out.items),
        }
    })
}

/// An item (uma_zalloc_arg; uma_zalloc has no argument). `arg` and `flags` go to the zone's `ctor`. `flags`: 2 (M_WAITOK) waits at the
/// zone's limit, first come, first served; 1 (M_NOWAIT) does not; 0x100 (M_ZERO): zeros; 0x400 (M_USE_RESERVE): out of the reserve, if need
/// be. NULL: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zalloc_arg(
    zone: Option<&Zone>,
    arg: *mut c_void,
    flags: i32,
) -> *mut c_void {
    quietly(null_mut(), || {
        let Some(zone) = zone else { return null_mut() };
        let item = match flags & (M_WAITOK | M_USE_RESERVE) {
            0 => zone.zone.alloc((arg, flags)),
            _ => zone.zone.request((arg, flags), request(flags)).ok(),
        };
        let Some(item) = item else { return null_mut() };
        if flags & M_ZERO != 0 {
            // SAFETY: an item has so many bytes, and is the caller's from here on.
            unsafe { item.as_ptr().write_bytes(0, zone.size) };
        }
        item.as_ptr().cast()
    })
}

fn request(flags: i32) -> Request {
    let request = Request::wait(match flags & M_WAITOK {
        0 => Wait::No,
        _ => Wait::Forever,
    });
    match flags & M_USE_RESERVE {
        0 => request,
        _ => request.with_reserve(),
    }
}

/// Frees an item, on any thread (uma_zfree_arg; uma_zfree has no argument). `arg` goes to the zone's `dtor`. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zfree_arg(zone: Option<&Zone>, item: *mut c_void, arg: *mut c_void) {
    let (Some(zone), Some(at)) = (zone, NonNull::new(item.cast::<u8>())) else {
        return;
    };
    quietly((), || {
        if let Some(dtor) = zone.dtor {
            // SAFETY: the caller's function, called as it was promised.
            unsafe { dtor(item, int(zone.size as u64), arg) };
        }
        // SAFETY: the caller's word: it came from this zone, and is not used again.
        unsafe { zone.zone.free(at) };
    });
}

/// The most items, cached ones included (uma_zone_set_max). Returns it.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_max(zone: Option<&Zone>, items: i32) -> i32 {
    if let (Some(zone), Ok(max)) = (zone, u64::try_from(items)) {
        quietly((), || zone.zone.set_max(max));
    }
    tranship_uma_zone_get_max(zone)
}

/// The most items (uma_zone_get_max). 0: there is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_get_max(zone: Option<&Zone>) -> i32 {
    let max = zone.map_or(0, |zone| zone.zone.stats().max);
    if max == u64::MAX { 0 } else { int(max) }
}

/// How many items are out (uma_zone_get_cur).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_get_cur(zone: Option<&Zone>) -> i32 {
    zone.map_or(0, |zone| int(zone.zone.stats().zone.outstanding()))
}

/// 1 if somebody waits at the zone's limit (uma_zone_exhausted).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_exhausted(zone: Option<&Zone>) -> i32 {
    zone.is_some_and(|zone| zone.zone.is_exhausted()).into()
}

/// Keeps so many items free for who allocates with M_USE_RESERVE (uma_zone_reserve): the keg's, for all its zones. They are made by
/// tranship_uma_prealloc, or when next needed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_reserve(zone: Option<&Zone>, items: i32) {
    if let (Some(zone), Ok(items)) = (zone, u64::try_from(items)) {
        quietly((), || zone.zone.keg().set_reserve(items));
    }
}

/// Makes so many items before they are needed (uma_prealloc). 0, or ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_prealloc(zone: Option<&Zone>, items: i32) -> i32 {
    match (zone, u64::try_from(items)) {
        (Some(zone), Ok(items)) if quietly(false, || zone.zone.keg().preallocate(items)) => 0,
        _ => ENOMEM,
    }
}

/// What goes to standard error, behind the zone's name, when an allocation meets the zone's limit, once in five minutes at most
/// (uma_zone_set_warning). NULL: nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_warning(zone: Option<&Zone>, warning: *const c_char) {
    let Some(zone) = zone else { return };
    quietly((), || {
        let text = (!warning.is_null()).then(|| {
            // SAFETY: the caller's word: it ends with a 0.
            unsafe { CStr::from_ptr(warning) }
                .to_string_lossy()
                .into_owned()
        });
        zone.bell.say(text);
    });
}

/// Called when an allocation has met the zone's limit, on that thread, which holds no lock of the zone, with 1 (M_NOWAIT) as `flags`
/// (uma_zone_set_maxaction): to free what can be freed. NULL: nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_maxaction(zone: Option<&Zone>, action: UmaMaxaction) {
    if let Some(zone) = zone {
        quietly((), || zone.bell.call(action));
    }
}

fn level(request: i32) -> Level {
    match request {
        3 => Level::WorkingSet,
        1 => Level::Depot,
        _ => Level::All,
    }
}

/// Gives back what a zone has cached and nobody uses (uma_zone_reclaim): 3 (UMA_RECLAIM_TRIM) what it has not needed lately, 1
/// (UMA_RECLAIM_DRAIN) all but what threads have at hand, 2 (UMA_RECLAIM_DRAIN_CPU) all.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_reclaim(zone: Option<&Zone>, request: i32) {
    if let Some(zone) = zone {
        quietly((), || {
            zone.zone.drain(level(request));
            let keg = zone.zone.keg();
            keg.reap();
            keg.arena().purge();
        });
    }
}

/// The same of all zones of the process, mbufs' included (uma_reclaim). Returns how many bytes went back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_reclaim(request: i32) -> u64 {
    quietly(0, || reclaim(level(request)))
}

fn int(items: u64) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}
