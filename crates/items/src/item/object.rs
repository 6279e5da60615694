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

    /// Whether `init` and `fini` have an effect. If not they are never called.
    const INITIALIZED: bool = false;

    /// Prepares an item that comes from the keg. `wait` is other than [`Wait::No`] only for the first item of an
    /// allocation that may wait.
    ///
    /// # Errors
    /// After an error the item goes back to the keg without `fini`; items that were initialised before it are kept.
    fn init(&self, item: NonNull<u8>, wait: Wait) -> Result<(), Refused> {
        let _ = (item, wait);
        Ok(())
    }

    /// Undoes `init` before the item goes back to the keg.
    fn fini(&self, item: NonNull<u8>) {
        let _ = item;
    }

    /// Prepares the item for a user.
    ///
    /// # Errors
    /// After an error the item goes back to the zone without `dtor`, a failure is counted and the allocation returns
    /// nothing.
    fn ctor(&self, item: NonNull<u8>, arg: Self::Arg<'_>) -> Result<(), Refused> {
        let _ = (item, arg);
        Ok(())
    }

    /// Ends a user's use of the item.
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
