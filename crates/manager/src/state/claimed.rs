//! What domains say after a restart that they had, until its other side is there.

use super::back_refs::{ASSIGNS, BackRef, BackRefs, ENDS, READS};
use super::types::{ChunkKey, Facts, FdToken};
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{ChannelId, DomainId, PoolId, Req, Trust};

/// A claimed end of a channel: true is the source.
pub(super) type EndKey = (ChannelId, bool);
pub(super) type AssignKey = (ChannelId, PoolId, bool);

#[derive(Debug, Default)]
pub(super) struct Claims {
    pub ends: BTreeMap<EndKey, ClaimedEnd>,
    pub assigns: BTreeMap<AssignKey, ClaimedAssign>,
    pub readers: BTreeMap<(PoolId, DomainId), ClaimedReader>,
    /// Channels that domains have named, believed or not: they have them, until they leave them.
    pub tried: BTreeSet<(DomainId, ChannelId)>,
    /// Who has claimed what; `assigns` by their pools; how often a domain is named as the other end.
    pub back_refs: BackRefs,
    pub of_pools: BTreeSet<(PoolId, ChannelId, bool)>,
    pub peers: BTreeMap<DomainId, u32>,
}

#[derive(Debug)]
pub(super) struct ClaimedEnd {
    pub domain: DomainId,
    pub name: String,
    pub peer: DomainId,
    pub lines: u32,
    pub half: FdToken,
    /// Of its own half, and what it says of the other.
    pub inode: u64,
    pub peer_inode: u64,
    pub req: Req,
}

#[derive(Debug)]
pub(super) struct ClaimedAssign {
    pub domain: DomainId,
    pub fd: FdToken,
    pub facts: Facts,
    pub req: Req,
    /// A sink that was told that it counts.
    pub open_said: bool,
}

#[derive(Debug)]
pub(super) struct ClaimedReader {
    /// To whom what is mapped is counted.
    pub uid: u32,
    pub refs: FdToken,
    pub inode: u64,
    pub table: u64,
    pub slots: u32,
    pub trust: Trust,
    pub mapped: BTreeSet<ChunkKey>,
    /// It reads the pool no more; the writer has still to hear of it.
    pub over: bool,
    /// It was told that nothing of the pool is left.
    pub gone_said: bool,
}

/// A pool as a reader names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reads {
    pub slots: u32,
    /// Inode of its slot table.
    pub table: u64,
    pub trust: Trust,
}

impl Claims {
    /// Whether an id occurs in a claim, so that it is not handed out.
    pub fn names(&self, id: u32) -> bool {
        let ends = (ChannelId(id), false)..=(ChannelId(id), true);
        self.ends.range(ends).next().is_some() || self.peers.contains_key(&DomainId(id))
    }

    pub fn names_pool(&self, id: PoolId) -> bool {
        let readers = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        self.readers.range(readers).next().is_some() || self.assigns_of(id).next().is_some()
    }

    /// What was claimed of a pool's assignments.
    pub fn assigns_of(&self, pool: PoolId) -> impl Iterator<Item = AssignKey> + '_ {
        let of = (pool, ChannelId(0), false)..=(pool, ChannelId(u32::MAX), true);
        self.of_pools.range(of).map(|(p, c, s)| (*c, *p, *s))
    }

    /// What was claimed of a channel's.
    pub fn assigns_in(&self, channel: ChannelId) -> Vec<AssignKey> {
        let of = (channel, PoolId(0), false)..=(channel, PoolId(u32::MAX), true);
        self.assigns.range(of).map(|(k, _)| *k).collect()
    }

    /// What was claimed of an assignment that is made anew.
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

    /// Whether it has any.
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

/// What was claimed last: only what hangs together with it can have become ready.
#[derive(Debug)]
pub(super) enum Claimed {
    Channel(ChannelId),
    Assign(ChannelId, PoolId),
    Domain(DomainId),
}
