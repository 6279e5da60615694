//! The objects of a domain: its pools and heaps, the pools of others that it reads, its links.

use super::heap::OwnHeap;
use super::residents::{ForeignMember, LinkMember, OwnMember, Tended};
use crate::base::lock;
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tranship_proto::{ChannelId, DomainId, PoolId};

/// A domain's objects, by their ids. Each lock is held for moments, and none while another one is taken.
#[derive(Default)]
pub struct Register {
    own: Mutex<HashMap<PoolId, Arc<dyn OwnMember>>>,
    heaps: Mutex<Vec<Arc<OwnHeap>>>,
    foreign: Mutex<HashMap<PoolId, Arc<dyn ForeignMember>>>,
    links: Mutex<HashMap<ChannelId, Arc<dyn LinkMember>>>,
    /// Rights to forward that this domain gave, for a manager that comes back without them.
    rights: Mutex<BTreeSet<(PoolId, DomainId)>>,
    /// Whether there may be links whose peers the manager does not watch. A hint.
    unwatched: AtomicBool,
    /// Work that events asked for, done by a turn after the socket's lock is released.
    chores: Mutex<Vec<Chore>>,
    /// Parts that the helper thread tends.
    tended: Mutex<Vec<Arc<dyn Tended>>>,
}

/// Work that an event asks for and that must not run under the socket's lock.
#[derive(Debug)]
pub(super) enum Chore {
    /// Bring a pool down to this many bytes.
    Shrink(PoolId, u64),
    /// A pool's quota has changed to this.
    Quota(PoolId, u64),
    /// Operations on the pool's buffers are to be recorded, or no longer.
    Traced(PoolId, bool),
}

impl Register {
    pub fn own(&self, pool: PoolId) -> Option<Arc<dyn OwnMember>> {
        lock(&self.own).get(&pool).cloned()
    }

    /// Returns an own pool as its maker's type.
    pub fn own_as<P: OwnMember>(&self, pool: PoolId) -> Option<Arc<P>> {
        let found: Arc<dyn Any + Send + Sync> = self.own(pool)?;
        found.downcast().ok()
    }

    pub fn add_tended(&self, tended: Arc<dyn Tended>) {
        lock(&self.tended).push(tended);
    }

    /// Tends everything. Returns true if more is due within a millisecond.
    pub(super) fn tend(&self) -> bool {
        let mut tended = lock(&self.tended);
        tended.retain(|tended| !tended.is_over());
        let all = tended.clone();
        drop(tended);
        let busy = all.iter().filter(|tended| tended.tend());
        busy.count() > 0
    }

    pub fn add_own(&self, pool: PoolId, own: Arc<dyn OwnMember>) {
        lock(&self.own).insert(pool, own);
    }

    pub fn remove_own(&self, pool: PoolId) -> Option<Arc<dyn OwnMember>> {
        lock(&self.own).remove(&pool)
    }

    pub(super) fn all_own(&self) -> Vec<Arc<dyn OwnMember>> {
        lock(&self.own).values().cloned().collect()
    }

    pub(super) fn has_no_own(&self) -> bool {
        lock(&self.own).is_empty()
    }

    pub(super) fn heap(&self, id: PoolId) -> Option<Arc<OwnHeap>> {
        let heaps = lock(&self.heaps);
        heaps.iter().find(|heap| heap.id() == id).cloned()
    }

    pub(super) fn heap_of_number(&self, number: u32) -> Option<Arc<OwnHeap>> {
        let heaps = lock(&self.heaps);
        heaps.iter().find(|heap| heap.number == number).cloned()
    }

    pub fn add_heap(&self, heap: Arc<OwnHeap>) {
        lock(&self.heaps).push(heap);
    }

    pub fn remove_heap(&self, gone: &Arc<OwnHeap>) {
        lock(&self.heaps).retain(|heap| !Arc::ptr_eq(heap, gone));
    }

    pub(super) fn all_heaps(&self) -> Vec<Arc<OwnHeap>> {
        lock(&self.heaps).clone()
    }

    pub fn foreign(&self, pool: PoolId) -> Option<Arc<dyn ForeignMember>> {
        lock(&self.foreign).get(&pool).cloned()
    }

    /// Returns another domain's pool as its opener's type.
    pub fn foreign_as<P: ForeignMember>(&self, pool: PoolId) -> Option<Arc<P>> {
        let found: Arc<dyn Any + Send + Sync> = self.foreign(pool)?;
        found.downcast().ok()
    }

    pub fn add_foreign(&self, pool: PoolId, foreign: Arc<dyn ForeignMember>) {
        lock(&self.foreign).insert(pool, foreign);
    }

    pub(super) fn all_foreign(&self) -> Vec<Arc<dyn ForeignMember>> {
        lock(&self.foreign).values().cloned().collect()
    }

    /// Runs `with` on all other domains' pools, with the register's own handles, so that it can check whether there are
    /// further handles.
    pub(super) fn with_foreign<R>(
        &self,
        what: impl FnOnce(&mut HashMap<PoolId, Arc<dyn ForeignMember>>) -> R,
    ) -> R {
        what(&mut lock(&self.foreign))
    }

    pub(super) fn link(&self, channel: ChannelId) -> Option<Arc<dyn LinkMember>> {
        lock(&self.links).get(&channel).cloned()
    }

    /// Returns a link as its maker's type.
    pub fn link_as<L: LinkMember>(&self, channel: ChannelId) -> Option<Arc<L>> {
        let found: Arc<dyn Any + Send + Sync> = self.link(channel)?;
        found.downcast().ok()
    }

    pub fn has_link(&self, channel: ChannelId) -> bool {
        lock(&self.links).contains_key(&channel)
    }

    pub fn add_link(&self, channel: ChannelId, link: Arc<dyn LinkMember>) {
        lock(&self.links).insert(channel, link);
    }

    pub fn remove_link(&self, channel: ChannelId) {
        let link = lock(&self.links).remove(&channel);
        drop(link); // not under the lock
    }

    pub(super) fn all_links(&self) -> Vec<Arc<dyn LinkMember>> {
        lock(&self.links).values().cloned().collect()
    }

    /// Records that a domain may forward a pool's buffers.
    pub fn add_right(&self, pool: PoolId, domain: DomainId) {
        lock(&self.rights).insert((pool, domain));
    }

    /// Returns the rights that are still useful.
    pub(super) fn rights_of(
        &self,
        is_there: impl Fn(PoolId) -> bool,
    ) -> BTreeSet<(PoolId, DomainId)> {
        let mut rights = lock(&self.rights);
        rights.retain(|(pool, _)| is_there(*pool));
        rights.clone()
    }

    /// Says whether nothing on the register is in use.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.links).is_empty()
            && self.has_no_own()
            && lock(&self.heaps).is_empty()
            && lock(&self.foreign).values().all(|pool| pool.nothing_held())
    }

    /// Asks for a look at something that no event reports.
    pub(super) fn look_again(&self) {
        self.unwatched.store(true, Ordering::Relaxed); // only a hint
    }

    pub(super) fn is_to_be_looked_at(&self) -> bool {
        self.unwatched.load(Ordering::Relaxed)
    }

    /// Says whether a look is asked for, and clears the request.
    pub(super) fn takes_look(&self) -> bool {
        self.is_to_be_looked_at() && self.unwatched.swap(false, Ordering::Relaxed)
    }

    pub(super) fn add_chore(&self, chore: Chore) {
        lock(&self.chores).push(chore);
    }

    pub(super) fn take_chores(&self) -> Vec<Chore> {
        std::mem::take(&mut *lock(&self.chores))
    }
}
