//! Pools, and the facts about all of them: dead writers, awaited readers, changes that the store must be told of.

use crate::state::ancillary::bytes_of;
use crate::state::context::Context;
use crate::state::model::{Batch, Chunk, Queue, Reader, Stranded};
use crate::state::recovery::brought::BroughtQueues;
use crate::state::refuse::{no_such, not_yours, refusal};
use crate::state::types::{Action, ChunkKey, Done, Fail, Fd, FdToken};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;
use tranship_proto::{ChannelId, DomainId, PoolId, PoolShape, RefusalCode};
use tranship_region::layout::Kind;

/// A pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub name: String,
    pub writer: DomainId,
    /// The user that pays, for limits.
    pub uid: u32,
    pub shape: PoolShape,
    pub quota_bytes: u64,
    /// Set by the administrator: no policy moves the quota.
    pub pinned: bool,
    pub table: FdToken,
    pub table_inode: u64,
    /// Readers that the writer named when it claimed the pool, with the inodes of their counters.
    pub named: BTreeMap<DomainId, u64>,
    /// Readers that an earlier manager saw alive, with their pidfds: they are awaited for as long as they live.
    awaited: BTreeMap<DomainId, FdToken>,
    /// Queues that the writer named then, and that have neither joined nor left under this manager.
    pub brought: BroughtQueues,
    /// Index in the writer's control page.
    pub entry: u32,
    pub epoch: u64,
    /// Chunks granted, shown or not.
    pub granted: u32,
    /// When the last chunk was granted or shown, and whether some were taken back since.
    pub granted_at: Duration,
    pub last_serial: u32,
    pub chunks: BTreeMap<u32, Chunk>,
    /// Requests that showed chunks and are not answered yet, numbered in their order.
    pub batches: BTreeMap<u64, Batch>,
    pub next_batch: u64,
    /// Returned chunks, and the readers that must still unmap them.
    pub stranded: BTreeMap<ChunkKey, Stranded>,
    pub readers: BTreeMap<DomainId, Reader>,
    pub queues: BTreeMap<ChannelId, Queue>,
    pub forwarders: BTreeSet<DomainId>,
    /// All readers may forward it.
    pub readers_forward: bool,
    /// The writer is gone, or has destroyed the pool.
    orphan: bool,
    /// The readers were told that nothing of the pool is left.
    pub gone_said: bool,
    pub asked_to_shrink: Option<Duration>,
    /// Bytes of the pool that are charged to their holders.
    pub lingering_bytes: u64,
}

impl Pool {
    /// Makes a pool without chunks and with an empty reader set.
    pub fn new(name: &str, (writer, uid): (DomainId, u32), shape: PoolShape, table: Fd) -> Pool {
        Pool {
            name: name.to_owned(),
            writer,
            uid,
            shape,
            table: table.token,
            table_inode: table.facts.inode,
            entry: u32::MAX,
            epoch: 1,
            ..Pool::default()
        }
    }
    /// Says whether the writer is gone, or has destroyed the pool.
    pub fn is_orphan(&self) -> bool {
        self.orphan
    }
    /// Returns the readers that an earlier manager saw alive, with their pidfds.
    pub fn awaited(&self) -> &BTreeMap<DomainId, FdToken> {
        &self.awaited
    }
    pub fn granted_bytes(&self) -> u64 {
        u64::from(self.granted) * self.shape.chunk_bytes
    }
    pub fn stranded_bytes(&self) -> u64 {
        self.stranded.len() as u64 * self.shape.chunk_bytes
    }
    /// Returns the bytes of its slot table, and of its counters, if it is offered over `offers` channels.
    pub fn table_bytes(&self, offers: usize) -> u64 {
        let readers = self.readers.values().filter(|r| r.refs.is_some()).count() as u64;
        // For a queue both sides' counters, for an offer the source's.
        let counts = (2 * self.queues.len() + offers) as u64;
        let of = |kind| bytes_of(kind, self.shape.slots);
        of(Kind::Table) + readers * of(Kind::Refs) + counts * of(Kind::Sent)
    }
    /// Says whether a reader must unmap some chunks that are out of use before it is shown more. Otherwise a reader
    /// that never unmaps could strand any amount, by chunks that are returned and made anew.
    pub fn is_sated(&self, reader: &Reader) -> bool {
        reader.shown.len() as u64 >= 2 * u64::from(self.shape.windows())
    }
    /// Checks that a chunk may be put into a window.
    pub fn check_window(&self, index: u32) -> Done {
        let windows = self.shape.windows();
        if index >= windows {
            return Err(refusal(RefusalCode::BadArgument, index.into(), windows.into()).into());
        }
        if self.chunks.contains_key(&index) {
            return Err(refusal(RefusalCode::State, index.into(), 0).into());
        }
        Ok(())
    }
    /// Returns the number of chunks that were granted and not yet shown.
    pub fn unshown(&self) -> u32 {
        self.granted
            .saturating_sub(u32::try_from(self.chunks.len()).unwrap_or(u32::MAX))
    }
}

/// All pools. Read-only, they are a map.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    all: BTreeMap<PoolId, Pool>,
    /// Pools whose writers are gone.
    // Invariant: the count over `all`.
    orphans: usize,
    /// Readers of orphans that are awaited.
    // Invariant: the sum over `all`.
    awaited: usize,
    /// Rises with each change of the contents for the service manager's store.
    stored_version: u64,
}

impl Deref for Pools {
    type Target = BTreeMap<PoolId, Pool>;

    fn deref(&self) -> &BTreeMap<PoolId, Pool> {
        &self.all
    }
}

impl Pools {
    /// Returns a pool that `me` writes and that is in use.
    pub fn own(&mut self, me: DomainId, id: PoolId) -> Result<&mut Pool, Fail> {
        match self.all.get_mut(&id) {
            None => Err(no_such(id.0)),
            Some(p) if p.writer != me => Err(not_yours(id.0)),
            Some(p) if p.is_orphan() => Err(no_such(id.0)),
            Some(p) => Ok(p),
        }
    }

    /// Says whether a process may still collect in a pool.
    pub fn is_written(&self, id: PoolId) -> bool {
        self.all.get(&id).is_some_and(|p| !p.is_orphan())
    }

    /// Returns the control page with a pool's entry, if there is one.
    pub fn control_page_of(&self, cx: &Context, id: PoolId) -> Option<FdToken> {
        let p = self.all.get(&id).filter(|p| !p.is_orphan())?;
        let d = cx.domains.get(&p.writer)?;
        let ours = d.entries.get(p.entry as usize) == Some(&Some(id));
        ours.then_some(d.control_page)
    }

    /// Stores a pool's epoch and quota in its entry, if there is one.
    pub fn publish(&self, cx: &mut Context, id: PoolId) {
        if let (Some(control_page), Some(p)) = (self.control_page_of(cx, id), self.all.get(&id)) {
            cx.out.push(Action::SetEntry {
                control_page,
                entry: p.entry,
                pool: Some(id),
                epoch: p.epoch,
                quota_bytes: p.quota_bytes,
            });
        }
    }

    /// Raises the epoch that the writer reads before it collects.
    pub fn raise_epoch(&mut self, cx: &mut Context, id: PoolId) -> u64 {
        let Some(p) = self.all.get_mut(&id) else {
            return 0;
        };
        p.epoch += 1;
        let epoch = p.epoch;
        self.publish(cx, id);
        epoch
    }

    /// Grants chunks to a pool.
    pub fn add_granted(&mut self, cx: &mut Context, id: PoolId, chunks: u32) {
        if let Some(p) = self.all.get_mut(&id) {
            p.granted += chunks;
            p.granted_at = cx.now;
            let bytes = u64::from(chunks) * p.shape.chunk_bytes;
            cx.charge(p.uid, p.writer, bytes);
        }
    }

    /// Ends grants of chunks.
    pub fn sub_granted(&mut self, cx: &mut Context, id: PoolId, chunks: u32) {
        if let Some(p) = self.all.get_mut(&id) {
            p.granted -= chunks;
            let bytes = u64::from(chunks) * p.shape.chunk_bytes;
            cx.uncharge(p.uid, p.writer, bytes);
        }
    }

    pub fn get_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.all.get_mut(&id)
    }

    pub fn reader(&self, id: PoolId, reader: DomainId) -> Option<&Reader> {
        self.all.get(&id)?.readers.get(&reader)
    }

    pub fn reader_mut(&mut self, id: PoolId, reader: DomainId) -> Option<&mut Reader> {
        self.all.get_mut(&id)?.readers.get_mut(&reader)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&PoolId, &mut Pool)> {
        self.all.iter_mut()
    }

    pub fn insert(&mut self, id: PoolId, pool: Pool) {
        self.all.insert(id, pool);
    }

    /// Inserts a pool of an earlier manager, whose writer is gone.
    pub fn insert_orphan(
        &mut self,
        id: PoolId,
        mut pool: Pool,
        awaited: BTreeMap<DomainId, FdToken>,
    ) {
        self.orphans += 1;
        self.awaited += awaited.len();
        (pool.orphan, pool.awaited) = (true, awaited);
        self.all.insert(id, pool);
    }

    /// Records that the writer is gone, or no longer uses the pool.
    pub fn orphan(&mut self, id: PoolId) {
        if let Some(p) = self.all.get_mut(&id) {
            self.orphans += usize::from(!std::mem::replace(&mut p.orphan, true));
        }
    }

    /// Forgets an orphan.
    pub fn remove(&mut self, id: PoolId) -> Option<Pool> {
        let pool = self.all.remove(&id)?;
        self.orphans -= usize::from(pool.orphan);
        self.awaited -= pool.awaited.len();
        self.stored_version += 1;
        Some(pool)
    }

    /// Ends the wait for a reader.
    pub fn awaits_no_more(&mut self, cx: &mut Context, id: PoolId, reader: DomainId) {
        let p = self.all.get_mut(&id);
        if let Some(pidfd) = p.and_then(|p| p.awaited.remove(&reader)) {
            self.awaited -= 1;
            self.stored_version += 1;
            cx.release(pidfd);
        }
    }

    /// Records that a pool's contents for the store have changed, if the pool is stored at all.
    pub fn changed(&mut self, of: PoolId) {
        let stored = self.all.get(&of).is_none_or(Pool::is_orphan);
        self.stored_version += u64::from(stored);
    }

    /// Makes the manager tell the store again.
    pub fn store_again(&mut self) {
        self.stored_version += 1;
    }

    pub fn stored_version(&self) -> u64 {
        self.stored_version
    }

    pub fn has_orphans(&self) -> bool {
        self.orphans > 0
    }

    pub fn awaits(&self) -> bool {
        self.awaited > 0
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Pools {
        /// Counts anew.
        pub fn audit(&self) -> Result<(), String> {
            let orphans = self.all.values().filter(|p| p.orphan).count();
            let awaited = self.all.values().map(|p| p.awaited.len()).sum::<usize>();
            match (orphans, awaited) == (self.orphans, self.awaited) {
                true => Ok(()),
                false => Err(format!(
                    "{} orphans, {} readers are awaited; counted: {orphans}, {awaited}",
                    self.orphans, self.awaited
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::types::Facts;
    use tranship_proto::Trust;

    const POOL: PoolId = PoolId(1);

    fn one() -> Pools {
        let table = Fd {
            token: FdToken(1),
            facts: Facts::default(),
        };
        let shape = PoolShape {
            max_bytes: 1 << 20,
            slots: 64,
            chunk_bytes: 1 << 16,
            trust: Trust::default(),
        };
        let mut pools = Pools::default();
        pools.insert(POOL, Pool::new("x", (DomainId(1), 0), shape, table));
        pools
    }

    #[test]
    fn whose_writer_is_gone_counts_once() {
        let mut pools = one();
        assert!(!pools.has_orphans());
        for _ in 0..2 {
            pools.orphan(POOL);
            assert_eq!(pools.audit(), Ok(()));
            assert!(pools.has_orphans());
        }
        assert!(pools.remove(POOL).is_some());
        assert_eq!(pools.audit(), Ok(()));
        assert!(!pools.has_orphans());
    }
}
