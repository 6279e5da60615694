//! Pieces of buffers, shown in one contiguous range.

use crate::domain::Shared;
use crate::list::Piece;
use crate::{Error, Kind};
use std::sync::Arc;
use tranship_region::{Guarded, View};
use tranship_sys::map::Within;

/// An aggregate's bytes in one range, for reading. As long as it is there none of its buffers can be sent, copied or
/// given back ([`Kind::BufferState`]), nor becomes free.
#[derive(Debug)]
pub struct Mapping {
    domain: Arc<Shared>,
    buffers: Vec<(u64, u32)>,
    window: Guarded,
}

impl Mapping {
    /// All pieces must be whole pages, and of buffers that are here.
    pub(crate) fn new(
        domain: &Arc<Shared>,
        buffers: &[(u64, u32)],
        pieces: &[Piece],
    ) -> Result<Mapping, Error> {
        let page = tranship_sys::page_size();
        let whole = |n: u64| n.is_multiple_of(page as u64);
        let fits = |piece: &Piece| whole(piece.offset) && whole(piece.len) && piece.len > 0;
        if pieces.is_empty() || !pieces.iter().all(fits) {
            return Err(Kind::BadArgument.into());
        }
        let len = pieces
            .iter()
            .try_fold(0usize, |sum, piece| sum.checked_add(as_usize(piece.len)?));
        let window = Guarded::reserve(len.ok_or(Kind::BadArgument)?, Within::ANYWHERE);
        let window = window.map_err(Error::of(Kind::OutOfMemory))?;
        let mut state = domain.lock();
        // In the order of the pieces, as everywhere.
        for piece in pieces {
            let at = buffers.get(piece.buffer as usize);
            let (id, index) = at.ok_or(Kind::BadArgument)?;
            let (_, slot) = state.slot(*id, *index)?;
            if slot.by_state() == crate::Access::None {
                return Err(Kind::BufferInvalid.into());
            }
        }
        for (id, index) in buffers {
            // Its memory becomes another one with its level, if that is `none` and sealed.
            if !state.slot(*id, *index)?.0.fixed {
                return Err(Kind::PoolNotAssigned.into());
            }
        }
        let mut at = 0;
        for piece in pieces {
            let (id, index) = *buffers
                .get(piece.buffer as usize)
                .ok_or(Kind::BadArgument)?;
            let (pool, _) = state.slot_mut(id, index)?;
            if !piece.is_inside(pool.memory.buffer_bytes()) {
                return Err(Kind::BadArgument.into());
            }
            let len = as_usize(piece.len).ok_or(Kind::BadArgument)?;
            pool.show_in(index, (&window, at), (piece.offset, len))?;
            at += len;
        }
        state.mapped(buffers, true);
        Ok(Mapping {
            domain: Arc::clone(domain),
            buffers: buffers.to_vec(),
            window,
        })
    }

    /// The bytes; others may change them where the pool's level lets them.
    pub fn view(&self) -> Result<View<'_>, Error> {
        let all = self.window.view(0, self.window.len());
        all.map_err(Error::of(Kind::BufferInvalid))
    }

    /// Where they begin.
    #[must_use]
    pub fn address(&self) -> usize {
        self.window.base().addr()
    }
}

fn as_usize(n: u64) -> Option<usize> {
    usize::try_from(n).ok()
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.domain.lock().mapped(&self.buffers, false);
    }
}
