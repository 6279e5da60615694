//! Buffers of pools of level `none`: the receiver takes a copy, in a pool of its own, before it looks at a byte of it.
//! The copy is a buffer of its own, which no other domain can change.
//!
//! A large buffer that its sender has sealed for all processes is read where it is (`pool/large.rs`).
//!
//! The copy is made under a reference as any other, which goes as soon as it is made; the caller counts the receipt after that. Until then the
//! buffer is on its way, and not reused. Without room nothing is counted, and the message stays the next one.

use super::Receiver;
use super::ahead::Untaken;
use super::pools::is_copied;
use crate::buffer::BufferMut;
use crate::error::{ErrorKind, TooLarge};
use crate::link::descriptor::Reference;
use crate::link::shared::Assigned;
use crate::pool::{ForeignPool, Pool};
use tranship_region::View;

impl Receiver {
    /// Makes a copy, if there is room for it.
    #[cold]
    pub(super) fn snapshot(&self, bytes: View<'_>) -> Result<BufferMut, Untaken> {
        let pool = self.snapshot_pool()?;
        let no_room = |error| Untaken::NoRoom(pool.id(), error);
        let mut copy = pool.try_alloc(bytes.len()).map_err(no_room)?;
        copy.fill_from(bytes);
        Ok(copy)
    }

    /// Whether the pieces of an aggregate can be copied at all: together they need no more than the pool can ever have.
    pub(super) fn could_hold(&self, pieces: &[Reference]) -> Result<(), Untaken> {
        let counts = |piece: &&Reference| {
            let of = self.ins.iter().find(|i| i.pool == piece.id.pool());
            let is_sealed = |foreign: &ForeignPool| {
                foreign.may_be_sealed(piece.offset, piece.length, piece.serial)
            };
            of.is_some_and(|i| match &i.assignment.side {
                Assigned::Foreign(foreign) => is_copied(foreign) && !is_sealed(foreign),
                Assigned::Own(_) => false,
            })
        };
        let lengths = pieces.iter().filter(counts).map(|piece| piece.length);
        let need_bytes = lengths.fold(0u64, u64::saturating_add);
        if need_bytes == 0 {
            return Ok(());
        }
        let pool = self.snapshot_pool()?;
        let max_bytes = pool.max_bytes();
        match need_bytes <= max_bytes {
            true => Ok(()),
            false => {
                let error = TooLarge {
                    need_bytes,
                    max_bytes,
                };
                Err(Untaken::NoRoom(pool.id(), error.into()))
            }
        }
    }

    /// Returns the pool for copies. Without one the receiver accepts no pool of level `none`.
    fn snapshot_pool(&self) -> Result<&Pool, Untaken> {
        let missing = || Untaken::NoRoom(tranship_proto::PoolId(0), ErrorKind::ChannelTrust.into());
        self.snapshots.as_ref().ok_or_else(missing)
    }
}
