//! Pieces of buffers, shown in one contiguous range.

use crate::Code;
use crate::domain::Shared;
use crate::list::Piece;
use std::sync::Arc;
use tranship_region::{Guarded, View};
use tranship_sys::map::Within;

/// An aggregate's bytes in one range, for reading. As long as it is there none of its buffers can be sent, copied or
/// given back ([`Code::BufferState`]), nor becomes free.
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
    ) -> Result<Mapping, Code> {
        let page = tranship_sys::page_size();
        let whole = |n: u64| n.is_multiple_of(page as u64);
        let fits = |piece: &Piece| whole(piece.offset) && whole(piece.len) && piece.len > 0;
        if pieces.is_empty() || !pieces.iter().all(fits) {
            return Err(Code::InvalidArgument);
        }
        let len = pieces
            .iter()
            .try_fold(0usize, |sum, piece| sum.checked_add(as_usize(piece.len)?));
        let window = Guarded::reserve(len.ok_or(Code::InvalidArgument)?, Within::ANYWHERE);
        let window = window.map_err(|_| Code::Memory)?;
        let mut state = domain.lock();
        // In the order of the pieces, as everywhere.
        for piece in pieces {
            let at = buffers.get(piece.buffer as usize);
            let (id, index) = at.ok_or(Code::InvalidArgument)?;
            let (_, slot) = state.slot(*id, *index)?;
            if slot.by_state() == crate::Access::None {
                return Err(Code::BufferInvalid);
            }
        }
        for (id, index) in buffers {
            // Its memory becomes another one with its level, if that is `none` and sealed.
            if !state.slot(*id, *index)?.0.fixed {
                return Err(Code::PoolNotAssigned);
            }
        }
        let mut at = 0;
        for piece in pieces {
            let (id, index) = *buffers
                .get(piece.buffer as usize)
                .ok_or(Code::InvalidArgument)?;
            let (pool, _) = state.slot_mut(id, index)?;
            if !piece.is_inside(pool.memory.buffer_bytes()) {
                return Err(Code::InvalidArgument);
            }
            let len = as_usize(piece.len).ok_or(Code::InvalidArgument)?;
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
    pub fn view(&self) -> Result<View<'_>, Code> {
        let all = self.window.view(0, self.window.len());
        all.map_err(|_| Code::BufferInvalid)
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
