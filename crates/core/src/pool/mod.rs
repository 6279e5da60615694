//! Pools: one's own ([`OwnPool`], behind the public [`Pool`]) and those of others that we read ([`ForeignPool`]).

mod collect;
mod foreign;
mod graves;
mod grow;
mod handle;
mod own;
mod roster;
mod shrink;
mod slots;
mod wait;

pub(crate) use foreign::{ForeignPool, Missing};
pub(crate) use graves::{Grave, bury, decay};
pub use handle::{Pool, PoolStats};
pub(crate) use own::OwnPool;

use crate::error::DomainError;
use std::ptr::NonNull;
use tranship_region::Window;

/// Reserves a pool's window.
fn reserve(max_bytes: u64, chunk_bytes: u64) -> Result<Window, DomainError> {
    let size = |value: u64| {
        usize::try_from(value).map_err(|_| DomainError::BadArgument {
            what: "bytes",
            value,
            min: 1,
            max: usize::MAX as u64,
        })
    };
    Ok(Window::reserve(size(max_bytes)?, size(chunk_bytes)?)?)
}

/// The window's first byte.
#[inline(always)]
fn base(window: &Window) -> NonNull<u8> {
    NonNull::new(window.base()).unwrap_or(NonNull::dangling())
}
