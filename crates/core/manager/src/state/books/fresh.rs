//! Ids that no object and no claim has.

use crate::state::{Fail, State};
use tranship_proto::{ChannelId, DomainId, Limited, PoolId};

impl State {
    pub(crate) fn fresh_id(&mut self) -> u32 {
        let (domains, channels, exports) = (&self.cx.domains, &self.channels, &self.exports);
        let claims = &self.claims;
        self.ids.general(
            |i| {
                domains.contains_key(&DomainId(i))
                    || channels.contains_key(&ChannelId(i))
                    || exports.contains(i)
                    || claims.names(i)
            },
            &mut self.cx.out,
        )
    }

    pub(crate) fn general_id_taken(&self, i: u32) -> bool {
        self.cx.domains.contains_key(&DomainId(i))
            || self.channels.contains_key(&ChannelId(i))
            || self.exports.contains(i)
    }

    pub(crate) fn fresh_pool_id(&mut self) -> Result<PoolId, Fail> {
        let (pools, heaps, claims) = (&self.pools, &self.heaps, &self.claims);
        let taken = |i| {
            let id = PoolId(i);
            pools.contains_key(&id) || heaps.contains_key(&id) || claims.names_pool(id)
        };
        let most = u64::from(PoolId::MAX.0);
        let id = self.ids.pool(taken, &mut self.cx.out).map(PoolId);
        id.ok_or(Limited::PoolIds.refuse(most + 1, most).into())
    }
}
