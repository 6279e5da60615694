//! Chunks that their writer shows: they are granted if they were not before, verified, shown to all readers, and then
//! the writer may use them.
//!
//! In a pool of level `none` a chunk may hold one large buffer. It is open while its writer fills it, and is shown again,
//! also to readers, when no process can write it any more. An open chunk is granted, charged and counted like any other.
//! Readers get the descriptor that was verified when it was shown the second time, so earlier changes do not matter.

use super::pool::Pool;
use crate::state::books::extent::For;
use crate::state::model::{Answer, Batch, Chunk};
use crate::state::types::{ChunkKey, Done, Fd, Sealed};
use crate::state::{Ancillary, Fail, State, refusal};
use std::collections::BTreeSet;
use tranship_proto::{DomainId, MAX_FDS, PoolId, RefusalCode, Req, Trust};

/// Most messages to readers for one request, beyond those for a single chunk.
const SHOWN: usize = 64;

impl Pool {
    /// Says whether the pool has this chunk.
    fn has(&self, (index, serial): ChunkKey) -> bool {
        self.chunks.get(&index).is_some_and(|c| c.serial == serial)
    }

    /// Returns the number of chunks that are taken of one request.
    fn piece(&self) -> u32 {
        let piece = (SHOWN / self.readers.len().max(1)).max(1);
        u32::try_from(piece).unwrap_or(u32::MAX)
    }

    /// Makes a batch of `taken` chunks of a request; returns its number.
    fn new_batch(&mut self, req: Req, taken: u32) -> u64 {
        let (number, left) = (self.next_batch, taken);
        self.next_batch += 1;
        self.batches.insert(number, Batch { req, taken, left });
        number
    }
}

impl State {
    /// Takes as many chunks as are granted and a turn has time for: the first ones. The others can be shown again.
    pub(crate) fn show_chunks(
        &mut self,
        me: DomainId,
        req: Req,
        id: PoolId,
        keys: &[ChunkKey],
        least: u32,
        fds: &mut Ancillary,
    ) -> Done {
        let p = self.pools.own(me, id)?;
        let again = keys.first().is_some_and(|key| p.has(*key));
        if again && p.shape.trust == Trust::None {
            return self.show_sealed(me, req, id, keys, fds);
        }
        let asked = check_keys(p, keys)?;
        if least == 0 || least > asked {
            return Err(refusal(RefusalCode::BadArgument, least.into(), asked.into()).into());
        }
        fds.are_chunks(p.shape.chunk_bytes, p.shape.trust)?;
        let piece = p.piece();
        let granted = self.grant_shown(me, id, asked, least)?;
        let taken = granted.min(piece);
        let number = self.pools.own(me, id)?.new_batch(req, taken);
        for key in keys.iter().take(taken as usize) {
            let fd = fds.take_any()?;
            self.add_chunk(me, id, *key, fd, Answer::Batch(number))?;
        }
        Ok(())
    }

    /// Returns how many of the shown chunks are granted, with those that were before.
    fn grant_shown(
        &mut self,
        me: DomainId,
        id: PoolId,
        asked: u32,
        least: u32,
    ) -> Result<u32, Fail> {
        let now = self.cx.now;
        let p = self.pools.own(me, id)?;
        let (uid, bytes, before) = (p.uid, p.shape.chunk_bytes, p.unshown().min(asked));
        let missing = |before: u32| least.saturating_sub(before).max(1);
        if before < asked {
            // The memory taken back may be this pool's own.
            self.room_or_taken_back(uid, me, u64::from(missing(before)) * bytes);
        }
        let p = self.pools.own(me, id)?;
        let before = p.unshown().min(asked);
        if before < asked {
            match self.grant_some(me, id, asked - before, missing(before)) {
                Ok(more) => return Ok(before + more),
                Err(refused) if before < least => return Err(refused),
                Err(_) => {}
            }
        }
        self.pools.own(me, id)?.granted_at = now; // the granted memory is being used
        Ok(before)
    }

    /// Adds a chunk that is granted, and whose place and memory were checked. It is shown to readers, unless its writer
    /// still fills it.
    pub(crate) fn add_chunk(
        &mut self,
        me: DomainId,
        id: PoolId,
        key: ChunkKey,
        fd: Fd,
        answer: Answer,
    ) -> Done {
        let (token, open) = (fd.token, fd.facts.sealed == Sealed::Open);
        let p = self.pools.own(me, id)?;
        let bytes = p.shape.chunk_bytes;
        p.last_serial = p.last_serial.max(key.1);
        // Readers that claimed the chunk before its writer hold memory in use.
        let unstranded = p.stranded.remove(&key).map(|s| (s, p.shape.chunk_bytes));
        p.chunks.insert(
            key.0,
            Chunk {
                serial: key.1,
                fd: token,
                open,
                ready: None,
            },
        );
        if let Some((stranded, bytes)) = unstranded {
            self.cx.unstrand(stranded.payer, bytes);
            for holder in stranded.holders {
                self.cx.strands(holder, bytes, false);
            }
        }
        self.cx.hold_memory(token, me, For::Data, bytes);
        self.cx.claimed_too(me, |c| c.chunks.insert((id, key)));
        match open {
            true => self.pools.say_ready(&mut self.cx, id, key, answer),
            false => self.pools.show_around(&mut self.cx, id, key, token, answer),
        }
        Ok(())
    }

    /// Shows chunks that were open as sealed from now on. A chunk that was shown as sealed before is answered again:
    /// its writer may not have got the answer.
    fn show_sealed(
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

/// Checks that chunks may be put there: fresh, in free places, not too many. Returns their number.
fn check_keys(p: &Pool, keys: &[ChunkKey]) -> Result<u32, Fail> {
    let bad = |asked: u64, available: u64| {
        Fail::from(refusal(RefusalCode::BadArgument, asked, available))
    };
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    if keys.is_empty() || keys.len() > MAX_FDS {
        return Err(bad(count.into(), MAX_FDS as u64));
    }
    let (mut last, mut places) = (p.last_serial, BTreeSet::new());
    for &(index, serial) in keys {
        if serial <= last {
            return Err(bad(serial.into(), last.into()));
        }
        last = serial;
        p.check_window(index)?;
        if !places.insert(index) {
            return Err(refusal(RefusalCode::State, index.into(), 0).into());
        }
    }
    Ok(count)
}
