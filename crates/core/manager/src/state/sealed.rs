//! Chunks of a pool of level `none` that hold one large buffer each. They are open while their writer fills them, and
//! shown again, also to readers, when no process can write them any more.
//!
//! An open chunk is granted, charged and counted like any other. Readers get the descriptor that was verified when it
//! was shown the second time, so earlier changes do not matter.

use super::extent::For;
use super::model::Answer;
use super::types::{ChunkKey, Done};
use super::{Ancillary, State, refusal};
use std::collections::BTreeSet;
use tranship_proto::{DomainId, MAX_FDS, PoolId, RefusalCode, Req};

impl State {
    /// Shows chunks that were open as sealed from now on. A chunk that was shown as sealed before is answered again:
    /// its writer may not have got the answer.
    pub(super) fn show_sealed(
        &mut self,
        me: DomainId,
        req: Req,
        id: PoolId,
        keys: &[ChunkKey],
        fds: &mut Ancillary,
    ) -> Done {
        let p = self.pools.own(me, id)?;
        let bytes = p.shape.chunk_bytes;
        let mut places = BTreeSet::new();
        for &(index, serial) in keys {
            let there = p.chunks.get(&index).map_or(0, |c| c.serial);
            if there != serial || !places.insert(index) {
                return Err(refusal(RefusalCode::State, serial.into(), there.into()).into());
            }
        }
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        if keys.len() > MAX_FDS {
            return Err(refusal(RefusalCode::BadArgument, count.into(), MAX_FDS as u64).into());
        }
        fds.are_sealed(bytes)?;
        let taken = count.min(p.piece());
        let answer = Answer::Batch(p.new_batch(req, taken));
        for &key in keys.iter().take(taken as usize) {
            let fd = fds.take_any()?;
            let p = self.pools.own(me, id)?;
            let Some(c) = p.chunks.get_mut(&key.0) else {
                continue;
            };
            if c.open {
                c.open = false;
                let old = std::mem::replace(&mut c.fd, fd.token);
                self.cx.release(old);
                self.cx.hold_memory(fd.token, me, For::Data, bytes);
                self.pools
                    .show_around(&mut self.cx, id, key, fd.token, answer);
                continue;
            }
            fds.fds.push_back(fd); // not wanted
            match &mut c.ready {
                // Some reader has not been sent it yet.
                Some((waits, _)) => {
                    let before = std::mem::replace(waits, answer);
                    self.pools.say_ready(&mut self.cx, id, key, before);
                }
                None => self.pools.say_ready(&mut self.cx, id, key, answer),
            }
        }
        Ok(())
    }
}
