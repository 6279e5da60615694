//! The calls.

use super::alarm::Callbacks;
use super::items::{self, Cut, Items, Shape};
use super::pages::Pages;
use super::types::{
    M_USE_RESERVE, M_WAITOK, M_ZERO, UmaAlloc, UmaCtor, UmaDtor, UmaFini, UmaFree, UmaInit,
    UmaMaxaction, Zone, int,
};
use crate::open::{closed_at, opened};
use crate::status::quietly;
use facade::zone::{Alarm, Arena, ItemKeg, ItemOptions, ItemZone, Level, Request, Wait, reclaim};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
/// In `flags` of a zone: its items are zeros when they come into it.
const UMA_ZONE_ZINIT: u32 = 2;
/// In `flags` of a zone: each of its items has a counter of references.
const UMA_ZONE_REFCNT: u32 = 0x400;
/// Shortest time between two warnings of a zone at its limit.
const WARNINGS: Duration = Duration::from_secs(300);

/// Data behind a pointer to a zone.
struct Held {
    zone: ItemZone<Items>,
    items: Items,
    cut: Cut,
    dtor: UmaDtor,
    callbacks: Arc<Callbacks>,
}

impl Held {
    fn made(
        name: *const c_char,
        keg: &Arc<ItemKeg>,
        items: Items,
        cut: Cut,
        dtor: UmaDtor,
    ) -> *mut Zone {
        let name = match name.is_null() {
            true => "zone".into(),
            // SAFETY: the caller promises: it ends with a 0.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
        };
        let callbacks = Arc::<Callbacks>::default();
        let zone = opened(Box::new(Held {
            zone: zone(&name, keg, items, &callbacks),
            items,
            cut,
            dtor,
            callbacks: callbacks.clone(),
        }));
        let zone = Box::into_raw(zone).cast();
        callbacks.is_of(zone);
        zone
    }
}

fn zone(
    name: &str,
    keg: &Arc<ItemKeg>,
    items: Items,
    callbacks: &Arc<Callbacks>,
) -> ItemZone<Items> {
    let (warned, acted) = (callbacks.clone(), callbacks.clone());
    let alarm = Alarm::default()
        .warn(WARNINGS, move |warning| warned.warn(warning.name))
        .action(move || acted.act());
    ItemZone::new(keg, items, ItemOptions::named(name).alarm(alarm))
}

#[inline(always)]
fn held<'a>(zone: *const Zone) -> Option<&'a Held> {
    // SAFETY: the caller promises: a zone, or NULL.
    unsafe { zone.cast::<Held>().as_ref() }
}

/// A zone of items of `size` bytes, up to 1 MiB, aligned to `align_mask` + 1 (uma_zcreate). `ctor` and `dtor` frame each use of an item,
/// `uminit` and `fini` its stay in the zone; any may be NULL. `flags`: 2 (UMA_ZONE_ZINIT), 0x400 (UMA_ZONE_REFCNT: each item has a counter,
/// tranship_uma_find_refcnt), both, or 0. NULL: it cannot be, or there is no memory.
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
    align_mask: i32,
    flags: u32,
) -> *mut Zone {
    quietly(null_mut(), || {
        let zeros = flags & UMA_ZONE_ZINIT != 0;
        let align = match align_mask {
            -1 => 64, // UMA_ALIGN_CACHE
            mask => u64::from(mask.unsigned_abs()) + 1,
        };
        if flags & !(UMA_ZONE_ZINIT | UMA_ZONE_REFCNT) != 0 || align_mask < -1 {
            return null_mut();
        }
        let cut = Cut {
            size,
            align,
            counted: flags & UMA_ZONE_REFCNT != 0,
        };
        let Some(keg) = items::keg(cut) else {
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
        Held::made(name, &keg, items, cut, dtor)
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
    primary: *const Zone,
) -> *mut Zone {
    quietly(null_mut(), || {
        let Some(primary) = held(primary) else {
            return null_mut();
        };
        let shape = Shape {
            ctor,
            uminit,
            fini,
            zeros: false,
        };
        let items = Items::new(primary.cut.size, shape);
        Held::made(name, primary.zone.keg(), items, primary.cut, dtor)
    })
}

/// Destroys a zone that is not in use any more (uma_zdestroy). Returns how many of its items had not been freed: they
/// are lost, and their memory with them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zdestroy(zone: *mut Zone) -> i32 {
    quietly(0, || {
        let Some(zone) = NonNull::new(zone) else {
            return 0;
        };
        closed_at(zone.as_ptr().cast::<Held>(), "tranship_uma_zdestroy");
        // SAFETY: the caller promises: a zone, which nobody uses any more.
        let zone = unsafe { Box::from_raw(zone.cast::<Held>().as_ptr()) };
        zone.callbacks.is_of(null_mut());
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
    zone: *const Zone,
    arg: *mut c_void,
    flags: i32,
) -> *mut c_void {
    quietly(null_mut(), || {
        let Some(zone) = held(zone) else {
            return null_mut();
        };
        let item = match flags & (M_WAITOK | M_USE_RESERVE) {
            0 => zone.zone.alloc((arg, flags)),
            _ => zone.zone.request((arg, flags), request(flags)).ok(),
        };
        let Some(item) = item else { return null_mut() };
        if flags & M_ZERO != 0 {
            // SAFETY: an item has `zone.cut.size` bytes, and belongs to the caller from here on.
            unsafe { item.as_ptr().write_bytes(0, zone.cut.size) };
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
pub extern "C" fn tranship_uma_zfree_arg(zone: *const Zone, item: *mut c_void, arg: *mut c_void) {
    let (Some(zone), Some(at)) = (held(zone), NonNull::new(item.cast::<u8>())) else {
        return;
    };
    quietly((), || {
        if let Some(dtor) = zone.dtor {
            // SAFETY: the caller's function, called as it was promised.
            unsafe { dtor(item, int(zone.cut.size as u64), arg) };
        }
        // SAFETY: the caller promises: it came from this zone, and is not used again.
        unsafe { zone.zone.free(at) };
    });
}

/// The most items, cached ones included (uma_zone_set_max). Returns it.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_max(zone: *const Zone, items: i32) -> i32 {
    if let (Some(held), Ok(max)) = (held(zone), u64::try_from(items)) {
        quietly((), || held.zone.set_max(max));
    }
    tranship_uma_zone_get_max(zone)
}

/// The most items (uma_zone_get_max). 0: there is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_get_max(zone: *const Zone) -> i32 {
    let max = held(zone).map_or(0, |zone| zone.zone.stats().max);
    if max == u64::MAX { 0 } else { int(max) }
}

/// How many items are out (uma_zone_get_cur).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_get_cur(zone: *const Zone) -> i32 {
    held(zone).map_or(0, |zone| int(zone.zone.stats().zone.outstanding()))
}

/// 1 if a thread waits at the zone's limit (uma_zone_exhausted).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_exhausted(zone: *const Zone) -> i32 {
    held(zone)
        .is_some_and(|zone| zone.zone.is_exhausted())
        .into()
}

/// Keeps `items` items free for allocations with M_USE_RESERVE (uma_zone_reserve). The reserve is the keg's, for all
/// its zones. Its items are made by tranship_uma_prealloc, or when next needed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_reserve(zone: *const Zone, items: i32) {
    if let (Some(zone), Ok(items)) = (held(zone), u64::try_from(items)) {
        quietly((), || zone.zone.keg().set_reserve(items));
    }
}

/// Makes `items` items before they are needed (uma_prealloc). Returns 0, or ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_prealloc(zone: *const Zone, items: i32) -> i32 {
    match (held(zone), u64::try_from(items)) {
        (Some(zone), Ok(items)) if quietly(false, || zone.zone.keg().preallocate(items)) => 0,
        _ => ENOMEM,
    }
}

/// Returns the counter of an item of a zone that was made with UMA_ZONE_REFCNT (uma_find_refcnt). It is 0 when the item
/// comes into the zone, and otherwise the program's own: neither allocating nor freeing changes it. NULL: the zone has
/// no counters, or the item is not of its keg.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_find_refcnt(zone: *const Zone, item: *mut c_void) -> *mut u32 {
    let (Some(zone), Some(item)) = (held(zone), NonNull::new(item.cast::<u8>())) else {
        return null_mut();
    };
    let counter = zone.zone.keg().counter(item);
    counter.map_or(null_mut(), AtomicU32::as_ptr)
}

/// Sets the function that allocates the zone's pages, such as pages of a device (uma_zone_set_allocf). Call it before
/// the zone is used, by one thread. It asks for the first pages at once: all others lie between 4 GiB below and 60 GiB
/// above them. `alloc` runs under a lock of the zone, may not use the zone, and returns pages at a multiple of 4096.
/// 0, or EBUSY: the zone has items in use; ENOMEM: there were no pages; EINVAL: an argument is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_allocf(zone: *mut Zone, alloc: UmaAlloc) -> i32 {
    let (Some(held), true) = (held(zone), alloc.is_some()) else {
        return EINVAL;
    };
    quietly(ENOMEM, || {
        let stats = held.zone.stats();
        if stats.zone.outstanding() > 0 {
            return EBUSY;
        }
        let bytes = u64::from(held.zone.keg().shape().pages) * 4096;
        let pages = Pages::begin(alloc, &held.callbacks, bytes);
        let arena = pages.and_then(|pages| Arena::new(pages).ok()).map(Arc::new);
        let Some(keg) = arena.and_then(|arena| held.cut.keg(&arena).ok()) else {
            return ENOMEM;
        };
        let made = self::zone(held.zone.name(), &keg, held.items, &held.callbacks);
        if stats.max != u64::MAX {
            made.set_max(stats.max);
        }
        // SAFETY: the caller promises that no other thread uses the zone, and this call uses it no more.
        unsafe { (*zone.cast::<Held>()).zone = made };
        0
    })
}

/// Sets the function that takes back pages of tranship_uma_zone_set_allocf (uma_zone_set_freef), under a lock of the
/// zone. NULL, and before the first call: the zone keeps its pages for later items.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_freef(zone: *const Zone, free: UmaFree) {
    if let Some(zone) = held(zone) {
        quietly((), || zone.callbacks.free_pages_by(free));
    }
}

/// Sets the text that goes to standard error, behind the zone's name, when an allocation meets the zone's limit, at
/// most once in five minutes (uma_zone_set_warning). NULL: none.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_warning(zone: *const Zone, warning: *const c_char) {
    let Some(zone) = held(zone) else { return };
    quietly((), || {
        let text = (!warning.is_null()).then(|| {
            // SAFETY: the caller promises: it ends with a 0.
            unsafe { CStr::from_ptr(warning) }
                .to_string_lossy()
                .into_owned()
        });
        zone.callbacks.say(text);
    });
}

/// Sets the function that is called when an allocation has met the zone's limit, to free items
/// (uma_zone_set_maxaction). It runs on that thread, without a lock of the zone, with 1 (M_NOWAIT) as `flags`. NULL:
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_set_maxaction(zone: *const Zone, action: UmaMaxaction) {
    if let Some(zone) = held(zone) {
        quietly((), || zone.callbacks.call(action));
    }
}

fn level(request: i32) -> Level {
    match request {
        3 => Level::WorkingSet,
        1 => Level::Depot,
        _ => Level::All,
    }
}

/// Gives back cached items of a zone (uma_zone_reclaim): 3 (UMA_RECLAIM_TRIM) those that it has not needed lately, 1
/// (UMA_RECLAIM_DRAIN) all but the threads' caches, 2 (UMA_RECLAIM_DRAIN_CPU) all.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_zone_reclaim(zone: *const Zone, request: i32) {
    if let Some(zone) = held(zone) {
        quietly((), || {
            zone.zone.drain(level(request));
            let keg = zone.zone.keg();
            keg.reap();
            keg.arena().purge();
        });
    }
}

/// Gives back memory of all zones of the process, mbufs' included (uma_reclaim). Returns how many bytes went back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_uma_reclaim(request: i32) -> u64 {
    quietly(0, || reclaim(level(request)))
}
