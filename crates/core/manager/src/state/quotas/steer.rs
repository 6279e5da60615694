//! A policy outside of the manager: one client at a time has the right to set quotas. Its requests are checked; when it
//! goes, the last quotas stay.

use super::quota;
use crate::state::context::Context;
use crate::state::model::Heaps;
use crate::state::pools::pool::Pools;
use crate::state::refuse::{barred, not_yours, refusal};
use crate::state::types::{Action, ClientId, Done};
use std::collections::BTreeMap;
use tranship_proto::{AccessRule, DomainId, Event, PoolId, RefusalCode, Req};

#[derive(Debug)]
pub(crate) struct Seat {
    /// A policy of the manager's own sets quotas.
    governed: bool,
    /// The client that sets quotas from outside.
    taken: Option<(ClientId, DomainId)>,
    /// A client has set quotas.
    steered: bool,
}

impl Seat {
    pub fn new(governed: bool) -> Seat {
        Seat {
            governed,
            taken: None,
            steered: false,
        }
    }

    /// Says whether anything moves quotas: the manager, or a client.
    pub fn quotas_move(&self) -> bool {
        self.governed || self.steered
    }

    /// Takes the right to set quotas, or gives it up.
    pub fn steer(
        &mut self,
        cx: &mut Context,
        (client, me): (ClientId, DomainId),
        uid: u32,
        req: Req,
        take: bool,
    ) -> Done {
        let gid = cx.domains.get(&me).map_or(u32::MAX, |d| d.gid);
        let own = uid == 0 || cx.accounts.is_owner(uid);
        if !own && !cx.config.may_steer(uid, gid) {
            return Err(barred(uid, AccessRule::PolicyRun).into());
        }
        cx.check_operator(me)?;
        if self.governed {
            return Err(refusal(RefusalCode::Steered, 0, 0).into());
        }
        let sits = self.taken;
        if let Some((other, domain)) = sits.filter(|(c, _)| *c != client || take) {
            debug_assert!(cx.clients.get(other).is_some());
            return Err(refusal(RefusalCode::Steered, domain.0.into(), 1).into());
        }
        self.taken = take.then_some((client, me));
        if take && !self.steered {
            // From now on a size that does not fit into a quota may fit later, and a new pool gets the rest.
            self.steered = true;
            cx.out.push(Action::Scheduled);
        }
        cx.push(client, Event::Steering { req, take }, &[]);
        Ok(())
    }

    /// Frees the right when its client goes.
    pub fn leave(&mut self, client: ClientId) {
        if self.taken.is_some_and(|(c, _)| c == client) {
            self.taken = None;
        }
    }

    /// Sets all of these quotas, or none of them.
    ///
    /// Trust: a policy's word. No pool gets less than its minimum, if the minimums fit, nor more than its maximum. The
    /// sum is at most the total, or at most the former sum. Quotas set by hand stay.
    pub fn set_quotas(
        &self,
        cx: &mut Context,
        pools: &mut Pools,
        heaps: &mut Heaps,
        client: ClientId,
        req: Req,
        quotas: &[(PoolId, u64)],
    ) -> Done {
        let Some(me) = self.taken.filter(|(c, _)| *c == client) else {
            return Err(refusal(RefusalCode::State, 0, 0).into());
        };
        let limit = quota::for_pools(cx, pools, heaps);
        let least: BTreeMap<PoolId, u64> = least_of_all(cx, pools);
        let tight = least.values().sum::<u64>() > limit;
        let mut wanted = BTreeMap::new();
        for (id, quota_bytes) in quotas {
            if heaps.contains_key(id) {
                return Err(not_yours(id.0));
            }
            if wanted.insert(*id, *quota_bytes).is_some() {
                // Twice.
                return Err(refusal(RefusalCode::BadArgument, id.0.into(), 1).into());
            }
            // The pool may have gone since the policy was told of it.
            let Some(p) = pools.get(id).filter(|p| !p.is_orphan() && !p.pinned) else {
                wanted.remove(id);
                continue;
            };
            let rule = cx.config.rule_of(&p.name);
            let most = cx.most_for(p.uid, p.shape.max_bytes).min(rule.max_bytes);
            let most = most.max(p.shape.chunk_bytes);
            let least = least.get(id).copied().unwrap_or(0);
            if *quota_bytes > most {
                return Err(refusal(RefusalCode::BadArgument, *quota_bytes, most).into());
            }
            if *quota_bytes < least && !tight {
                return Err(refusal(RefusalCode::BadArgument, *quota_bytes, least).into());
            }
        }
        let alive = || pools.iter().filter(|(_, p)| !p.is_orphan());
        let before: u64 = alive().map(|(_, p)| p.quota_bytes).sum();
        let after = alive().map(|(id, p)| wanted.get(id).copied().unwrap_or(p.quota_bytes));
        let after = after.fold(0u64, u64::saturating_add);
        if after > limit && after > before {
            return Err(refusal(RefusalCode::Total, after, limit).into());
        }
        let change = |(id, quota): (&PoolId, &u64)| {
            let p = pools.get(id)?;
            (p.quota_bytes != *quota).then_some((*id, *quota, p.quota_bytes < *quota))
        };
        let mut changes: Vec<_> = wanted.iter().filter_map(change).collect();
        // Pools that give come before pools that get.
        changes.sort_by_key(|(_, _, more)| *more);
        for (id, quota_bytes, _) in changes {
            quota::move_to(cx, pools, heaps, id, quota_bytes);
        }
        quota::remind(cx, pools, heaps);
        let limit_bytes = limit;
        cx.tell(me.1, Event::QuotasSet { req, limit_bytes }, &[]);
        Ok(())
    }
}

/// Returns the minimum of each living pool.
fn least_of_all(cx: &Context, pools: &Pools) -> BTreeMap<PoolId, u64> {
    let alive = pools.iter().filter(|(_, p)| !p.is_orphan());
    let least = alive.map(|(id, p)| {
        let least = match p.pinned {
            true => p.quota_bytes,
            false => cx
                .config
                .rule_of(&p.name)
                .min_bytes
                .max(p.shape.chunk_bytes),
        };
        let most = cx.most_for(p.uid, p.shape.max_bytes);
        (
            *id,
            least.min(most) / p.shape.chunk_bytes * p.shape.chunk_bytes,
        )
    });
    least.collect()
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;
    use crate::state::books::accounts::Of;

    impl Seat {
        /// Checks the quotas' sums, for the audit.
        pub fn audit(&self, cx: &Context) -> Result<(), String> {
            let Some((client, domain)) = self.taken else {
                return Ok(());
            };
            let sits = cx.clients.domain_of(client);
            match sits == Some(domain) && !self.governed {
                true => Ok(()),
                false => Err(format!(
                    "{client:?} of {domain} sets quotas, of {} bytes",
                    cx.accounts.all(Of::Bytes)
                )),
            }
        }
    }
}
