//! Quotas that change while pools and heaps exist.

use crate::state::books::accounts::Of;
use crate::state::context::Context;
use crate::state::model::{Heap, Heaps};
use crate::state::pools::pool::{Pool, Pools};
use crate::state::refuse::{barred, no_such, refusal};
use crate::state::types::Done;
use std::time::Duration;
use tranship_proto::{AccessRule, DomainId, Event, PoolId, RefusalCode, Req};

/// Time between two requests to the same domain to return memory.
const REMINDED: Duration = Duration::from_secs(1);

/// Changes a quota on request. A domain that pays for memory does not decide how much that may be.
pub(crate) fn ask(
    cx: &mut Context,
    pools: &mut Pools,
    heaps: &mut Heaps,

    (me, uid): (DomainId, u32),
    req: Req,
    (id, quota_bytes): (PoolId, u64),
) -> Done {
    if uid != 0 && !cx.accounts.is_owner(uid) {
        return Err(barred(uid, AccessRule::Owner).into());
    }
    cx.check_operator(me)?;
    let (_, max_bytes) = quota_of(pools, heaps, id).ok_or(no_such(id.0))?;
    if quota_bytes > max_bytes {
        return Err(refusal(RefusalCode::BadArgument, quota_bytes, max_bytes).into());
    }
    pin(cx, pools, heaps, id, quota_bytes);
    let (quota_bytes, _) = quota_of(pools, heaps, id).ok_or(no_such(id.0))?;
    cx.tell(me, Event::QuotaSet { req, quota_bytes }, &[]);
    Ok(())
}

/// Returns the present quota and the maximum of a pool or heap with an owner.
fn quota_of(pools: &Pools, heaps: &Heaps, id: PoolId) -> Option<(u64, u64)> {
    let pool = pools.get(&id).filter(|pool| !pool.is_orphan());
    let heap = || heaps.get(&id).map(|h| (h.quota_bytes, h.max_bytes));
    pool.map(|p| (p.quota_bytes, p.shape.max_bytes))
        .or_else(heap)
}

/// Sets a quota by the administrator's word: from then on no policy moves it.
pub(crate) fn pin(
    cx: &mut Context,
    pools: &mut Pools,
    heaps: &mut Heaps,
    id: PoolId,
    quota_bytes: u64,
) {
    if let Some(p) = pools.get_mut(id) {
        p.pinned = true;
    }
    if let Some(heap) = heaps.get_mut(&id) {
        heap.pinned = true;
    }
    set(cx, pools, heaps, id, quota_bytes);
}

pub(crate) fn set(
    cx: &mut Context,
    pools: &mut Pools,
    heaps: &mut Heaps,
    id: PoolId,
    quota_bytes: u64,
) {
    set_heap(cx, heaps, id, quota_bytes);
    set_pool(cx, pools, id, quota_bytes, true);
}

/// Sets a quota that a policy wants. A writer that does not read its messages finds the quota on its control page, and
/// is told again when there is something to give back.
pub(crate) fn move_to(
    cx: &mut Context,
    pools: &mut Pools,
    heaps: &mut Heaps,
    id: PoolId,
    quota_bytes: u64,
) {
    let writer = pools.get(&id).map(|p| p.writer);
    let writer = writer.or_else(|| heaps.get(&id).map(|h| h.owner));
    let client = writer.and_then(|writer| cx.client_of(writer));
    let reads = client.is_some_and(|client| cx.clients.has_room(client));
    set_pool(cx, pools, id, quota_bytes, reads);
    // A heap has no control page: an owner that does not read is told in another period.
    if reads {
        set_heap(cx, heaps, id, quota_bytes);
    }
}

fn set_pool(cx: &mut Context, pools: &mut Pools, id: PoolId, quota_bytes: u64, tell: bool) {
    let Some(p) = pools.get_mut(id).filter(|p| !p.is_orphan()) else {
        return;
    };
    p.quota_bytes = quota_bytes.min(p.shape.max_bytes).min(cx.total_bytes);
    let (writer, quota_bytes) = (p.writer, p.quota_bytes);
    let over = p.granted_bytes() > quota_bytes;
    pools.publish(cx, id);
    if tell {
        say(cx, writer, id, quota_bytes, over);
    }
}

/// Tells an owner its quota, and what to give back.
fn say(cx: &mut Context, owner: DomainId, pool: PoolId, quota_bytes: u64, over: bool) {
    cx.tell(owner, Event::Quota { pool, quota_bytes }, &[]);
    if over {
        let target_bytes = quota_bytes;
        cx.tell(owner, Event::Shrink { pool, target_bytes }, &[]);
    }
}

fn set_heap(cx: &mut Context, heaps: &mut Heaps, id: PoolId, quota_bytes: u64) {
    let total = cx.total_bytes;
    let Some(heap) = heaps.get_mut(&id) else {
        return;
    };
    let quota_bytes = quota_bytes.min(heap.max_bytes).min(total);
    heap.quota_bytes = quota_bytes;
    let (owner, over) = (heap.owner, heap.admitted > quota_bytes);
    say(cx, owner, id, quota_bytes, over);
}

/// Tells owners of more than their quota again now and then: they may not have read the first message.
pub(crate) fn remind(cx: &mut Context, pools: &mut Pools, heaps: &mut Heaps) {
    let now = cx.now;
    let due = |asked: Option<Duration>| asked.is_none_or(|t| t + REMINDED <= now);
    let over = pools.iter().filter(|(_, p)| {
        !p.is_orphan() && p.granted_bytes() > p.quota_bytes && due(p.asked_to_shrink)
    });
    for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
        let Some(p) = pools.get_mut(id) else {
            continue;
        };
        p.asked_to_shrink = Some(now);
        let quota_bytes = p.quota_bytes;
        move_to(cx, pools, heaps, id, quota_bytes);
    }
}

/// Returns the total without the memory outside of living pools.
pub(crate) fn for_pools(cx: &Context, pools: &Pools, heaps: &Heaps) -> u64 {
    let alive = pools.values().filter(|p| !p.is_orphan());
    let heaps = heaps.values().filter(|h| is_divided(h));
    let theirs: u64 = alive.map(Pool::granted_bytes).sum();
    let theirs = theirs + heaps.map(|h| h.admitted).sum::<u64>();
    let others = cx.accounts.sum(Of::Bytes).saturating_sub(theirs);
    cx.accounts.most_now().saturating_sub(others)
}

/// Says whether a policy sets a heap's quota.
pub(crate) fn is_divided(heap: &Heap) -> bool {
    heap.said.is_some() && !heap.pinned
}
