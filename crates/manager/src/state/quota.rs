//! Quotas that change while pools and heaps exist.

use super::types::{Action, Done};
use super::{State, barred, no_such, refusal};
use tranship_proto::{AccessRule, DomainId, Event, PoolId, RefusalCode, Req};

impl State {
    /// Who pays for memory does not say how much of it that may be.
    pub(super) fn ask_for_quota(
        &mut self,
        me: DomainId,
        uid: u32,
        req: Req,
        id: PoolId,
        quota_bytes: u64,
    ) -> Done {
        if uid != 0 && !self.cx.accounts.is_owner(uid) {
            return Err(barred(uid, AccessRule::Owner).into());
        }
        let (_, max_bytes) = self.quota_of(id).ok_or(no_such(id.0))?;
        if quota_bytes > max_bytes {
            return Err(refusal(RefusalCode::BadArgument, quota_bytes, max_bytes).into());
        }
        self.pin_quota(id, quota_bytes);
        let (quota_bytes, _) = self.quota_of(id).ok_or(no_such(id.0))?;
        self.cx.tell(me, Event::QuotaSet { req, quota_bytes }, &[]);
        Ok(())
    }

    /// What a pool or heap that has an owner may have now, and ever.
    fn quota_of(&self, id: PoolId) -> Option<(u64, u64)> {
        let pool = self.pools.get(&id).filter(|pool| !pool.is_orphan());
        let heap = || self.heaps.get(&id).map(|h| (h.quota_bytes, h.max_bytes));
        pool.map(|p| (p.quota_bytes, p.max_bytes)).or_else(heap)
    }

    /// The administrator's word: from then on no policy moves it.
    pub(super) fn pin_quota(&mut self, id: PoolId, quota_bytes: u64) {
        if let Some(p) = self.pools.get_mut(id) {
            p.pinned = true;
        }
        if let Some(heap) = self.heaps.get_mut(&id) {
            heap.pinned = true;
        }
        self.set_quota(id, quota_bytes);
    }

    pub(super) fn set_quota(&mut self, id: PoolId, quota_bytes: u64) {
        self.set_heap_quota(id, quota_bytes);
        self.set_pool_quota(id, quota_bytes, true);
    }

    /// A policy's word. Who does not read finds it on its control page; it is said again when there is something to give back.
    pub(super) fn move_quota(&mut self, id: PoolId, quota_bytes: u64) {
        let writer = self.pools.get(&id).map(|p| p.writer);
        let writer = writer.or_else(|| self.heaps.get(&id).map(|h| h.owner));
        let client = writer.and_then(|writer| self.cx.client_of(writer));
        let reads = client.is_some_and(|client| self.cx.clients.has_room(client));
        self.set_pool_quota(id, quota_bytes, reads);
        // It has no control page: one that does not read is told in another period.
        if reads {
            self.set_heap_quota(id, quota_bytes);
        }
    }

    fn set_pool_quota(&mut self, id: PoolId, quota_bytes: u64, tell: bool) {
        let Some(p) = self.pools.get_mut(id).filter(|p| !p.is_orphan()) else {
            return;
        };
        p.quota_bytes = quota_bytes.min(p.max_bytes).min(self.cx.total_bytes);
        let (writer, quota_bytes) = (p.writer, p.quota_bytes);
        let over = p.granted_bytes() > quota_bytes;
        let entry = (p.entry, p.epoch);
        if let Some(control_page) = self.live_control_page(id) {
            let (entry, epoch) = entry;
            self.cx.out.push(Action::SetBoard {
                control_page,
                entry,
                pool: Some(id),
                epoch,
                quota_bytes,
            });
        }
        if !tell {
            return;
        }
        self.cx.tell(
            writer,
            Event::Quota {
                pool: id,
                quota_bytes,
            },
            &[],
        );
        if over {
            self.cx.tell(
                writer,
                Event::Shrink {
                    pool: id,
                    target_bytes: quota_bytes,
                },
                &[],
            );
        }
    }

    fn set_heap_quota(&mut self, id: PoolId, quota_bytes: u64) {
        let total = self.cx.total_bytes;
        let Some(heap) = self.heaps.get_mut(&id) else {
            return;
        };
        let quota_bytes = quota_bytes.min(heap.max_bytes).min(total);
        heap.quota_bytes = quota_bytes;
        let (owner, over) = (heap.owner, heap.admitted > quota_bytes);
        let quota = Event::Quota {
            pool: id,
            quota_bytes,
        };
        self.cx.tell(owner, quota, &[]);
        if over {
            let shrink = Event::Shrink {
                pool: id,
                target_bytes: quota_bytes,
            };
            self.cx.tell(owner, shrink, &[]);
        }
    }
}
