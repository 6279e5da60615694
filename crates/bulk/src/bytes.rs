//! A buffer's bytes as plain slices, where nobody else can write them.
//!
//! That is where the kernel keeps everybody else out: in memory that is this domain's own (`none`, and carried bytes),
//! and in a `producer` pool for its creator. In `full` and `half` pools, and for the readers of a `producer` pool, others
//! can write, whatever they promise: there are views and copies ([`Buffer::view`], [`Buffer::read`]).

#![allow(
    unsafe_code,
    reason = "who has a buffer, alone or for reading, is what this crate keeps; it is proved here and nowhere lower"
)]

use crate::domain::{Pool, Shared};
use crate::memory::Memory;
use crate::{Buffer, Error, Kind, ReadBuffer, Trust};
use std::sync::Arc;

/// The first byte and the length, if only this domain can write the pool's memory.
fn place(pool: &Pool, index: u32, kept: Option<&Arc<Memory>>) -> Result<(*mut u8, usize), Error> {
    let alone = match pool.trust {
        Some(Trust::None) => true,
        Some(Trust::Producer) => pool.creator,
        // Its level is open, or lets others write.
        _ => false,
    };
    if !alone || !pool.fixed {
        return Err(Kind::BufferState.into());
    }
    if !kept.is_some_and(|kept| Arc::ptr_eq(kept, &pool.memory)) {
        return Err(Kind::BufferInvalid.into());
    }
    let at = pool.memory.offset(index);
    Ok((
        pool.memory.map.base().wrapping_add(at),
        pool.memory.buffer_bytes(),
    ))
}

fn readable(
    domain: &Shared,
    (id, index): (u64, u32),
    kept: Option<&Arc<Memory>>,
) -> Result<(*mut u8, usize), Error> {
    let mut state = domain.lock();
    state.settle((id, index));
    let (pool, slot) = state.slot(id, index)?;
    match slot.by_state() {
        crate::Access::None => Err(Kind::BufferInvalid.into()),
        _ => place(pool, index, kept),
    }
}

impl Buffer {
    /// Its bytes. [`Kind::BufferState`] where others can write them.
    pub fn bytes(&self) -> Result<&[u8], Error> {
        let (at, len) = readable(&self.domain, self.at, self.memory.as_ref())?;
        // SAFETY:
        // * who can write: no other domain (`place`); this one only through `&mut` of this handle, of which a buffer
        //   has one while it is owned. (`raw` works on domains of its own, never on this one.)
        // * bound: `offset` of an index that was checked, and the length of one buffer.
        // * mapped: kept so by the handle (`memory`), and readable: what takes that away takes the handle.
        Ok(unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Its bytes, to be written. [`Kind::BufferState`] where others can write them too, and while copies are out.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], Error> {
        let mut state = self.domain.lock();
        let (pool, at) = state.slot_mut(self.at.0, self.at.1)?;
        pool.is_writable(&pool.slots[at])?;
        pool.before_write(self.at.1, false)?;
        let (at, len) = place(pool, self.at.1, self.memory.as_ref())?;
        drop(state);
        // SAFETY: as in `bytes`; and nobody else reads it as a slice: copies are not out, and the handle is borrowed
        // for writing, so that none can be sent.
        Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
    }
}

impl ReadBuffer {
    /// Its bytes: a snapshot that nobody can change. [`Kind::BufferState`] where others can write them.
    pub fn bytes(&self) -> Result<&[u8], Error> {
        let (at, len) = readable(&self.domain, self.at, self.memory.as_ref())?;
        // SAFETY: as in `Buffer::bytes`; a buffer that is held as a copy is not written here either: its owner is
        // another domain, or this one, with copies out.
        Ok(unsafe { std::slice::from_raw_parts(at, len) })
    }
}
