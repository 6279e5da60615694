//! Heaps: private memory of a domain, admitted by the byte. Only the owner's words tell of it, so a heap lives as long
//! as the connection that carries them. A domain that comes back creates the heap again with its present size.

use crate::state::books::back_refs::{BackRef, HEAPS};
use crate::state::model::{Heap, Want};
use crate::state::types::Done;
use crate::state::{Fail, Of, State, no_such, not_yours, refusal};
use std::time::Duration;
use tranship_proto::{DomainId, Event, PoolId, RefusalCode, Req, check_name};

const MAX_HEAP_BYTES: u64 = 1 << 46;

/// The time for which a refused heap counts as waiting, unless it gets something or asks again.
const WANTED: Duration = Duration::from_secs(1);

impl Want {
    fn asked(&mut self, now: Duration, refused: Option<u64>) {
        self.count(now);
        self.admits += u64::from(refused.is_none());
        self.refused = refused.map(|bytes| (now, bytes));
        self.counted = now;
    }

    /// Adds the wait since the last call to the sum. Returns the wanted size.
    pub(crate) fn count(&mut self, now: Duration) -> Option<u64> {
        let (at, bytes) = self.refused?;
        let until = now.min(at + WANTED);
        self.blocked += until.saturating_sub(self.counted.max(at));
        self.counted = self.counted.max(until);
        if now > at + WANTED {
            self.refused = None;
        }
        self.refused.map(|_| bytes)
    }
}

impl State {
    pub(crate) fn create_heap(
        &mut self,
        me: DomainId,
        req: Req,
        name: &str,
        max_bytes: u64,
        held_bytes: u64,
    ) -> Done {
        if !check_name(name) {
            return Err(refusal(RefusalCode::BadArgument, name.len() as u64, 64).into());
        }
        if max_bytes == 0 || max_bytes > MAX_HEAP_BYTES {
            return Err(refusal(RefusalCode::BadArgument, max_bytes, MAX_HEAP_BYTES).into());
        }
        let uid = self.cx.domains.get(&me).ok_or(no_such(me.0))?.uid;
        self.cx.accounts.check(uid, Of::Pools, 1)?;
        let id = self.fresh_pool_id()?;
        let quota_bytes = self.cx.first_quota(uid, max_bytes);
        let admitted = held_bytes.min(quota_bytes).min(self.cx.room_for(uid, me));
        let heap = Heap {
            name: name.to_owned(),
            owner: me,
            uid,
            max_bytes,
            quota_bytes,
            admitted,
            asked_to_shrink: None,
            pinned: false,
            said: None,
            want: Want::default(),
        };
        self.heaps.insert(id, heap);
        self.back_refs.insert(me, BackRef::Heap(id));
        self.cx.accounts.add(uid, Of::Pools, 1);
        self.cx.charge(uid, me, admitted);
        let created = Event::HeapCreated {
            req,
            heap: id,
            quota_bytes,
            admitted_bytes: admitted,
        };
        self.cx.tell(me, created, &[]);
        Ok(())
    }

    pub(crate) fn admit_bytes(
        &mut self,
        me: DomainId,
        req: Req,
        id: PoolId,
        least_bytes: u64,
        bytes: u64,
    ) -> Done {
        let (now, uid) = (self.cx.now, self.own_heap(me, id)?.uid);
        let total = self.room_or_taken_back(uid, me, least_bytes);
        let heap = self.own_heap(me, id)?;
        if least_bytes == 0 || least_bytes > bytes {
            return Err(refusal(RefusalCode::BadArgument, least_bytes, bytes).into());
        }
        let quota = heap.quota_bytes.saturating_sub(heap.admitted);
        let refused = quota < least_bytes || total < least_bytes;
        heap.want.asked(now, refused.then_some(least_bytes));
        if quota < least_bytes {
            return Err(refusal(RefusalCode::Quota, least_bytes, quota).into());
        }
        if total < least_bytes {
            self.ask_to_shrink(id);
            return Err(self.cx.no_room(uid, me, least_bytes, least_bytes).into());
        }
        let most = match self.check_slowed(me)? {
            true => least_bytes,
            false => bytes,
        };
        let bytes = most.min(quota).min(total);
        let heap = self.own_heap(me, id)?;
        heap.admitted += bytes;
        self.cx.charge(uid, me, bytes);
        let admitted = Event::Admitted {
            req,
            heap: id,
            bytes,
        };
        self.cx.tell(me, admitted, &[]);
        Ok(())
    }

    pub(crate) fn give_back(&mut self, me: DomainId, id: PoolId, bytes: u64) -> Done {
        let heap = self.own_heap(me, id)?;
        let bytes = bytes.min(heap.admitted);
        heap.admitted -= bytes;
        let uid = heap.uid;
        self.cx.uncharge(uid, me, bytes);
        Ok(())
    }

    /// Records the owner's figures of a heap.
    pub(crate) fn heap_figures(&mut self, me: DomainId, id: PoolId, said: (u64, u64)) -> Done {
        let heap = self.own_heap(me, id)?;
        // Trust: its owner's word about memory that was admitted to it.
        let live = said.0.min(heap.admitted);
        heap.said = Some((live, said.1.min(heap.admitted - live)));
        Ok(())
    }

    pub(crate) fn destroy_heap(&mut self, me: DomainId, id: PoolId) -> Done {
        self.own_heap(me, id)?;
        self.drop_heap(id);
        Ok(())
    }

    /// Drops all heaps of a domain whose connection ends.
    pub(crate) fn drop_heaps_of(&mut self, me: DomainId) {
        for id in self.back_refs.pools(me, HEAPS) {
            self.drop_heap(id);
        }
    }

    fn drop_heap(&mut self, id: PoolId) {
        if let Some(heap) = self.heaps.remove(&id) {
            self.back_refs.remove(heap.owner, BackRef::Heap(id));
            self.cx.accounts.sub(heap.uid, Of::Pools, 1);
            self.cx.uncharge(heap.uid, heap.owner, heap.admitted);
        }
    }

    fn own_heap(&mut self, me: DomainId, id: PoolId) -> Result<&mut Heap, Fail> {
        match self.heaps.get_mut(&id) {
            None => Err(no_such(id.0)),
            Some(heap) if heap.owner != me => Err(not_yours(id.0)),
            Some(heap) => Ok(heap),
        }
    }
}
