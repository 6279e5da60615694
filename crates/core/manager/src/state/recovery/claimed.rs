//! Domains' claims after a restart, kept until the other side is there.

use crate::state::books::back_refs::{ASSIGNS, BackRef, BackRefs, ENDS, READS};
use crate::state::types::{ChunkKey, Facts, FdToken};
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{ChannelId, DomainId, PoolId, Req, Trust};

/// A claimed end of a channel: true is the source.
pub(crate) type EndKey = (ChannelId, bool);
pub(crate) type AssignKey = (ChannelId, PoolId, bool);

#[derive(Debug, Default)]
pub(crate) struct Claims {
    ends: BTreeMap<EndKey, ClaimedEnd>,
    assigns: BTreeMap<AssignKey, ClaimedAssign>,
    readers: BTreeMap<(PoolId, DomainId), ClaimedReader>,
    /// Channels that domains have named, believed or not: they have them, until they leave them.
    tried: BTreeSet<(DomainId, ChannelId)>,
    /// Indexes: the claims of each domain; `assigns` by their pools; how often a domain is named as the other end.
    // Invariant: the indexes have each entry of the three maps of claims.
    back_refs: BackRefs,
    of_pools: BTreeSet<(PoolId, ChannelId, bool)>,
    peers: BTreeMap<DomainId, u32>,
}

#[derive(Debug)]
pub(crate) struct ClaimedEnd {
    pub domain: DomainId,
    pub name: String,
    pub peer: DomainId,
    pub lines: u32,
    pub half: FdToken,
    /// The inode of the domain's own half, and the other half's inode as the domain names it.
    pub inode: u64,
    pub peer_inode: u64,
    pub req: Req,
}

#[derive(Debug)]
pub(crate) struct ClaimedAssign {
    pub domain: DomainId,
    pub fd: FdToken,
    pub facts: Facts,
    pub req: Req,
    /// Set for a sink that was told that its counters count.
    pub open_said: bool,
}

#[derive(Debug)]
pub(crate) struct ClaimedReader {
    /// The user to whom the mapped chunks are counted.
    pub uid: u32,
    pub refs: FdToken,
    pub inode: u64,
    pub table: u64,
    pub slots: u32,
    pub trust: Trust,
    pub mapped: BTreeSet<ChunkKey>,
    /// The domain no longer reads the pool; the writer must still be told.
    pub over: bool,
    /// The domain was told that nothing of the pool is left.
    pub gone_said: bool,
}

/// A pool as a reader claims it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    pub slots: u32,
    /// The inode of its slot table.
    pub table: u64,
    pub trust: Trust,
}

impl Claims {
    /// Says whether an id occurs in a claim, so that it is not handed out.
    pub fn names(&self, id: u32) -> bool {
        let ends = (ChannelId(id), false)..=(ChannelId(id), true);
        self.ends.range(ends).next().is_some() || self.peers.contains_key(&DomainId(id))
    }

    pub fn names_pool(&self, id: PoolId) -> bool {
        let readers = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        self.readers.range(readers).next().is_some() || self.assigns_of(id).next().is_some()
    }

    /// Returns the claimed assignments of a pool.
    pub fn assigns_of(&self, pool: PoolId) -> impl Iterator<Item = AssignKey> + '_ {
        let of = (pool, ChannelId(0), false)..=(pool, ChannelId(u32::MAX), true);
        self.of_pools.range(of).map(|(p, c, s)| (*c, *p, *s))
    }

    /// Returns the claimed assignments of a channel.
    pub fn assigns_in(&self, channel: ChannelId) -> Vec<AssignKey> {
        let of = (channel, PoolId(0), false)..=(channel, PoolId(u32::MAX), true);
        self.assigns.range(of).map(|(k, _)| *k).collect()
    }

    /// Takes the claims of an assignment that is made anew.
    pub fn take_assigns(&mut self, channel: ChannelId, pool: PoolId) -> Vec<FdToken> {
        [true, false]
            .into_iter()
            .filter_map(|s| self.remove_assign((channel, pool, s)))
            .map(|a| a.fd)
            .collect()
    }

    /// Claims of a domain that wait for their other side.
    pub fn of(&self, domain: DomainId) -> usize {
        self.back_refs.count(domain)
    }

    /// Says whether a domain has any claim.
    pub fn any_of(&self, domain: DomainId) -> bool {
        let kinds = [ENDS, ASSIGNS, READS];
        let mut kinds = kinds.into_iter();
        kinds.any(|kind| self.back_refs.of(domain, kind).next().is_some())
    }

    /// Channels that a domain has named.
    pub fn tried_by(&self, domain: DomainId) -> impl Iterator<Item = ChannelId> + '_ {
        let of = (domain, ChannelId(0))..=(domain, ChannelId(u32::MAX));
        self.tried.range(of).map(|(_, c)| *c)
    }

    pub fn has_tried(&self, domain: DomainId, channel: ChannelId) -> bool {
        self.tried.contains(&(domain, channel))
    }

    /// Records that a domain names a channel.
    pub fn tries(&mut self, domain: DomainId, channel: ChannelId) {
        self.tried.insert((domain, channel));
    }

    /// Ends a domain's claim of a channel; returns whether there was one.
    pub fn leaves(&mut self, domain: DomainId, channel: ChannelId) -> bool {
        self.tried.remove(&(domain, channel))
    }

    /// Ends the domain's claims of all its channels; returns their number.
    pub fn leaves_all(&mut self, domain: DomainId) -> usize {
        let of = (domain, ChannelId(0))..=(domain, ChannelId(u32::MAX));
        self.tried.extract_if(of, |_| true).count()
    }

    pub fn ends(&self) -> &BTreeMap<EndKey, ClaimedEnd> {
        &self.ends
    }

    pub fn assigns(&self) -> &BTreeMap<AssignKey, ClaimedAssign> {
        &self.assigns
    }

    pub fn readers(&self) -> &BTreeMap<(PoolId, DomainId), ClaimedReader> {
        &self.readers
    }

    /// Returns an end, to be answered anew.
    pub fn end_mut(&mut self, key: EndKey) -> Option<&mut ClaimedEnd> {
        self.ends.get_mut(&key)
    }

    pub fn assign_mut(&mut self, key: AssignKey) -> Option<&mut ClaimedAssign> {
        self.assigns.get_mut(&key)
    }

    pub fn reader_mut(&mut self, key: (PoolId, DomainId)) -> Option<&mut ClaimedReader> {
        self.readers.get_mut(&key)
    }

    pub fn readers_mut(
        &mut self,
        pool: PoolId,
    ) -> impl Iterator<Item = (&(PoolId, DomainId), &mut ClaimedReader)> {
        let of = (pool, DomainId(0))..=(pool, DomainId(u32::MAX));
        self.readers.range_mut(of)
    }

    /// Returns a domain's claims.
    pub fn ends_of(&self, domain: DomainId) -> Vec<EndKey> {
        self.back_refs.ends(domain)
    }

    pub fn assigns_by(&self, domain: DomainId) -> Vec<AssignKey> {
        self.back_refs.assigns(domain)
    }

    pub fn read_by(&self, domain: DomainId) -> Vec<PoolId> {
        self.back_refs.pools(domain, READS)
    }

    pub fn insert_end(&mut self, key: EndKey, end: ClaimedEnd) {
        self.back_refs
            .insert(end.domain, BackRef::End(key.0, key.1));
        *self.peers.entry(end.peer).or_default() += 1;
        self.ends.insert(key, end);
    }

    pub fn remove_end(&mut self, key: EndKey) -> Option<ClaimedEnd> {
        let end = self.ends.remove(&key)?;
        self.back_refs
            .remove(end.domain, BackRef::End(key.0, key.1));
        if let Some(n) = self.peers.get_mut(&end.peer) {
            *n -= 1;
            if *n == 0 {
                self.peers.remove(&end.peer);
            }
        }
        Some(end)
    }

    pub fn insert_assign(&mut self, key: AssignKey, assign: ClaimedAssign) {
        self.back_refs
            .insert(assign.domain, BackRef::Assign(key.0, key.1, key.2));
        self.of_pools.insert((key.1, key.0, key.2));
        self.assigns.insert(key, assign);
    }

    pub fn remove_assign(&mut self, key: AssignKey) -> Option<ClaimedAssign> {
        let assign = self.assigns.remove(&key)?;
        self.back_refs
            .remove(assign.domain, BackRef::Assign(key.0, key.1, key.2));
        self.of_pools.remove(&(key.1, key.0, key.2));
        Some(assign)
    }

    pub fn insert_reader(&mut self, key: (PoolId, DomainId), reader: ClaimedReader) {
        self.back_refs.insert(key.1, BackRef::Reads(key.0));
        self.readers.insert(key, reader);
    }

    pub fn remove_reader(&mut self, key: (PoolId, DomainId)) -> Option<ClaimedReader> {
        self.back_refs.remove(key.1, BackRef::Reads(key.0));
        self.readers.remove(&key)
    }
}

/// The last claim: only objects related to it can have become ready.
#[derive(Debug)]
pub(crate) enum Claimed {
    Channel(ChannelId),
    Assign(ChannelId, PoolId),
    Domain(DomainId),
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Claims {
        /// Returns each domain that has named channels, once.
        pub fn triers(&self) -> impl Iterator<Item = DomainId> + '_ {
            self.tried.iter().map(|(domain, _)| *domain)
        }

        /// Checks that all maps agree.
        pub fn audit(&self) -> Result<(), String> {
            let mut back_refs = BackRefs::default();
            let mut peers: BTreeMap<_, u32> = BTreeMap::new();
            for (key, e) in &self.ends {
                back_refs.insert(e.domain, BackRef::End(key.0, key.1));
                *peers.entry(e.peer).or_default() += 1;
            }
            for (key, a) in &self.assigns {
                back_refs.insert(a.domain, BackRef::Assign(key.0, key.1, key.2));
            }
            for (pool, reader) in self.readers.keys() {
                back_refs.insert(*reader, BackRef::Reads(*pool));
            }
            let by_pool = self.assigns.keys().map(|(c, p, s)| (*p, *c, *s));
            let agrees = back_refs == self.back_refs
                && by_pool.collect::<BTreeSet<_>>() == self.of_pools
                && peers == self.peers;
            match agrees {
                true => Ok(()),
                false => Err(format!(
                    "claims: {self:?}, counted: {back_refs:?}, {peers:?}"
                )),
            }
        }
    }
}
