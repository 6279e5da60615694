//! The items of a zone.

use super::request::Wait;
use std::ptr::NonNull;

/// A constructor or initialiser refuses: it could not get a resource that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the item's constructor or initialiser refused")]
pub struct Refused;

/// The callbacks for a zone's items on their way. By default all methods do nothing and cost nothing.
///
/// ```text
///   keg ──init──► caches ──ctor──► user
///   keg ◄──fini── caches ◄──dtor── user
/// ```
/// `init` and `fini` frame the time that an item spends in the zone, in and out of its caches, so that cached items
/// keep state that is expensive to make. `ctor` and `dtor` frame each use. No lock of the zone is held when they run,
/// so they may allocate from other zones (not from the same one). They run on whichever thread allocates, frees or
/// reclaims.
///
/// The bytes of an item that comes to `init` are undefined; those that come to `ctor` are as `init` or the last user's
/// `dtor` left them, unless the zone has no `init` ([`INITIALIZED`](Self::INITIALIZED) is `false`): then a debug mode
/// may have overwritten them.
pub trait Object: Send + Sync + 'static {
    /// The allocation's argument for the constructor; `()` if there is none.
    type Arg<'a>;

    /// Whether `init` and `fini` do something. If not they are never called.
    const INITIALIZED: bool = false;

    /// The item comes from the keg. Only the first item that an allocation brings, and only if the allocation may wait,
    /// comes with a `wait` other than [`Wait::No`].
    ///
    /// # Errors
    /// When it refuses, the item goes back to the keg without `fini`; items that were initialised before it are kept.
    fn init(&self, item: NonNull<u8>, wait: Wait) -> Result<(), Refused> {
        let _ = (item, wait);
        Ok(())
    }

    /// The item goes back to the keg.
    fn fini(&self, item: NonNull<u8>) {
        let _ = item;
    }

    /// The item goes to a user.
    ///
    /// # Errors
    /// When it refuses, the item goes back to the zone without `dtor`, a failure is counted and the allocation yields
    /// nothing.
    fn ctor(&self, item: NonNull<u8>, arg: Self::Arg<'_>) -> Result<(), Refused> {
        let _ = (item, arg);
        Ok(())
    }

    /// The item comes from a user.
    fn dtor(&self, item: NonNull<u8>) {
        let _ = item;
    }
}

/// Plain bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bytes;

impl Object for Bytes {
    type Arg<'a> = ();
}
