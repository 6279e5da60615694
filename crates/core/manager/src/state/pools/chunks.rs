//! Chunks of a pool after they are shown: ready for their writer, out of use, no longer mapped by a reader.

use super::pool::Pools;
use crate::state::books::accounts::Of;
use crate::state::context::Context;
use crate::state::model::{Answer, Stranded};
use crate::state::types::ChunkKey;
use std::collections::BTreeSet;
use tranship_proto::{DomainId, Event, PoolId};

impl Pools {
    /// Handles that a chunk is ready, or gone: its writer is told, once all of its batch are.
    pub fn say_ready(
        &mut self,
        cx: &mut Context,
        pool: PoolId,
        (index, serial): ChunkKey,
        answer: Answer,
    ) {
        let Some(p) = self.get_mut(pool) else {
            return;
        };
        let writer = p.writer;
        let event = match answer {
            Answer::Claim(req) => Event::ChunkReady {
                req,
                pool,
                index,
                serial,
            },
            Answer::Batch(number) => {
                let Some(batch) = p.batches.get_mut(&number) else {
                    return;
                };
                batch.left -= 1;
                if batch.left > 0 {
                    return;
                }
                let (req, chunks) = (batch.req, batch.taken);
                p.batches.remove(&number);
                Event::ChunksReady { req, pool, chunks }
            }
        };
        cx.tell(writer, event, &[]);
    }

    /// Handles the end of a queued chunk's way to a reader: it was sent, or it was dropped.
    pub fn chunk_reached(
        &mut self,
        cx: &mut Context,
        pool: PoolId,
        key: ChunkKey,
        reader: DomainId,
    ) {
        let Some(p) = self.get_mut(pool) else {
            return;
        };
        let Some(c) = p.chunks.get_mut(&key.0).filter(|c| c.serial == key.1) else {
            return;
        };
        let Some((answer, waits)) = &mut c.ready else {
            return;
        };
        waits.remove(&reader);
        if waits.is_empty() {
            let answer = *answer;
            c.ready = None;
            self.say_ready(cx, pool, key, answer);
        }
    }

    /// Takes a chunk out of use: its readers are to unmap it, and until then it is stranded.
    pub fn chunk_goes(&mut self, cx: &mut Context, id: PoolId, key: ChunkKey) {
        let Some(p) = self.get_mut(id) else {
            return;
        };
        let Some(chunk) = p.chunks.remove(&key.0) else {
            return;
        };
        let holders: BTreeSet<DomainId> = p
            .readers
            .iter()
            .filter(|(_, r)| r.shown.contains(&key))
            .map(|(d, _)| *d)
            .collect();
        let bytes = p.shape.chunk_bytes;
        if let Some((answer @ Answer::Batch(_), _)) = chunk.ready {
            self.say_ready(cx, id, key, answer); // for the other chunks of its batch
        }
        let payer = cx.payer(&holders);
        if let Some(p) = self.get_mut(id).filter(|_| !holders.is_empty()) {
            let holders = holders.clone();
            p.stranded.insert(key, Stranded { payer, holders });
            cx.strand(payer, bytes);
        }
        self.sub_granted(cx, id, 1);
        cx.release(chunk.fd);
        self.changed(id);
        for reader in holders {
            cx.strands(reader, bytes, true);
            let event = Event::ChunkGone {
                pool: id,
                index: key.0,
                serial: key.1,
            };
            cx.tell(reader, event, &[]);
        }
    }

    /// Records that a reader no longer maps a chunk.
    pub fn unhold_chunk(&mut self, cx: &mut Context, id: PoolId, key: ChunkKey, reader: DomainId) {
        let Some(p) = self.get_mut(id) else {
            return;
        };
        if let Some(r) = p.readers.get_mut(&reader)
            && r.shown.remove(&key)
        {
            cx.accounts.sub(r.uid, Of::Records, 1);
        }
        if let Some(mut stranded) = p.stranded.remove(&key) {
            let bytes = p.shape.chunk_bytes;
            if stranded.holders.remove(&reader) {
                cx.strands(reader, bytes, false);
            }
            cx.unstrand(stranded.payer, bytes);
            if !stranded.holders.is_empty() {
                // The user of one of the remaining holders pays from now on.
                stranded.payer = cx.payer(&stranded.holders);
                cx.strand(stranded.payer, bytes);
                if let Some(p) = self.get_mut(id) {
                    p.stranded.insert(key, stranded);
                }
            }
        } else {
            self.chunk_reached(cx, id, key, reader);
        }
    }

    /// Drops open chunks whose writer is gone: no reader was ever shown them, and none will be.
    pub fn open_chunks_go(&mut self, cx: &mut Context, id: PoolId) {
        let chunks = self.get(&id).map(|p| p.chunks.iter());
        let open = chunks.into_iter().flatten().filter(|(_, c)| c.open);
        let open: Vec<ChunkKey> = open.map(|(index, c)| (*index, c.serial)).collect();
        for key in open {
            self.chunk_goes(cx, id, key);
        }
    }
}
