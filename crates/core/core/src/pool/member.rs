//! Pools as the domain's register knows them.

use super::foreign::ForeignPool;
use super::own::OwnPool;
use crate::base::lock;
use crate::base::retired::Retired;
use crate::domain::{DomainCore, ForeignMember, Had, Joined, Offer, OwnMember};
use crate::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_proto::{BufferId, ChannelId, DomainId, PoolId, PoolShape};

impl Retired for OwnPool {
    fn is_inherited(&self) -> bool {
        self.memory.registration.fork.is_child()
    }
    /// Nothing is held here: the pool is taken down after its last handle only.
    fn nothing_held(&self) -> bool {
        true
    }
}

impl OwnMember for OwnPool {
    fn id(&self) -> PoolId {
        self.id()
    }
    fn shape(&self) -> PoolShape {
        self.shape()
    }
    fn name(&self) -> &str {
        &self.options().name
    }
    fn table_fd(&self) -> &OwnedFd {
        &self.memory.slots.fd
    }
    fn chunks(&self) -> Vec<(u32, u32, Arc<OwnedFd>)> {
        self.memory.chunks.all()
    }
    fn readers(&self) -> Vec<(DomainId, u64)> {
        lock(&self.collector.gc).readers()
    }
    fn queues(&self) -> Vec<(ChannelId, DomainId, u64)> {
        lock(&self.collector.gc).queues()
    }

    /// Stops collections by the control page until the pool's place in the next one is known. It is called before the
    /// control page changes, so that no thread takes the old place in the new page for the pool's. A writer that stood
    /// alone goes on as long as the new control page does not have the pool at all: a manager that hangs meanwhile has
    /// added nobody.
    fn suspend(&self) {
        let mut gc = lock(&self.collector.gc); // none runs
        gc.suspend();
        self.memory.registration.leave_page();
    }
    /// The last connection was read
    /// to its end, or the manager does not know the pool. A queue is opened only when its `QueueJoined` is in our socket
    /// (`manager`, `writer_told`), so the reader set has all that were: we collect with it whatever a control page says.
    fn stand_alone(&self) {
        lock(&self.collector.gc).stand_alone();
        self.memory.returned.raise();
    }
    /// Whatever reader set events follow count from its first epoch: none under a new
    /// manager until all claims are in, and under the old one the whole reader set again, to which the control page's epoch
    /// has been raised already. So nothing is collected with a reader set that lacks anybody.
    fn resume(&self, entry: u32) {
        let mut gc = lock(&self.collector.gc);
        gc.resume();
        self.memory.registration.enter_page(entry);
    }

    fn queue_joined(&self, queue: Joined, fds: Vec<OwnedFd>) {
        self.collector.queue_joined(&self.memory, queue, fds);
    }
    fn queue_left(&self, channel: ChannelId, epoch: u64) {
        self.collector.queue_left(&self.memory, channel, epoch);
    }
    fn reader_left(&self, domain: DomainId, epoch: u64) {
        self.collector.reader_left(&self.memory, domain, epoch);
    }
    fn reap_dead_readers(&self) -> bool {
        self.collector.reap_dead_readers(&self.memory)
    }

    fn set_shrink_target(&self, bytes: u64) {
        self.set_shrink_target(bytes);
    }
    fn lift_shrink_target(&self, quota_bytes: u64) {
        self.lift_shrink_target(quota_bytes);
    }
    fn set_traced(&self, on: bool) {
        self.memory.set_traced(on);
    }
    fn tend(&self) {
        self.tend();
    }

    fn had(&self, slot: u32) -> Had {
        Had {
            id: self.id_of(slot),
            bytes: self.memory.slots.capacity_of(slot),
            handles: self.handles(slot).count(),
        }
    }
}

impl Retired for ForeignPool {
    fn is_inherited(&self) -> bool {
        self.fork.is_child()
    }
    fn nothing_held(&self) -> bool {
        self.nothing_held()
    }
}

impl ForeignMember for ForeignPool {
    fn shape(&self) -> Offer {
        self.shape
    }
    fn table_inode(&self) -> u64 {
        self.table_inode
    }
    fn refs_fd(&self) -> &OwnedFd {
        self.refs_fd()
    }
    fn mapped(&self) -> Vec<(u32, u32)> {
        self.mapped()
    }

    fn attach(&self, index: u32, serial: u32, fd: OwnedFd) -> Result<(), Error> {
        self.attach(index, serial, fd)
    }
    fn detach(&self, index: u32, serial: u32) -> bool {
        self.detach(index, serial)
    }
    fn detach_all(&self) {
        self.detach_all();
    }

    fn set_spoken_of(&self, yes: bool) {
        self.set_spoken_of(yes);
    }
    fn is_spoken_of(&self) -> bool {
        self.is_spoken_of()
    }
    fn give_up(&self) -> bool {
        self.give_up()
    }
    fn set_traced(&self, on: bool) {
        self.set_traced(on);
    }

    fn held(&self) -> Vec<Had> {
        let of = |(slot, handles, generation, bytes): (u32, u32, u32, u64)| Had {
            id: BufferId::new(self.shape.pool, slot, generation),
            // Trust: by the word of the pool's writer.
            bytes: bytes.min(self.shape.max_bytes),
            handles,
        };
        self.held().map(of).collect()
    }
}

impl ForeignPool {
    /// The counted handle that the domain's register has of the pool of that id.
    pub(crate) fn find(domain: &DomainCore, pool: PoolId) -> Option<Arc<ForeignPool>> {
        domain.register.foreign_as(pool)
    }

    /// Returns a counted reference to this pool.
    pub(crate) fn arc(&self) -> Option<Arc<ForeignPool>> {
        let found = ForeignPool::find(&self.domain, self.shape.pool);
        found.filter(|arc| std::ptr::eq(Arc::as_ptr(arc), self))
    }
}

#[cfg(test)]
mod tests {
    use crate::base::visits;
    use crate::{Domain, PoolOptions};
    use std::sync::{Arc, Barrier};

    #[test]
    fn a_pool_is_not_freed_under_somebody() {
        let _dog = tranship_testkit::Watchdog::new();
        let domain = Domain::embedded().expect("a domain");
        let pool = domain.create_pool(PoolOptions::new(1 << 20));
        let pool = pool.expect("a pool");
        let own = Arc::downgrade(&pool.own_arc());
        let (at, turns) = (own.as_ptr().addr(), 100);
        let [inside, over] = [(); 2].map(|()| Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                let at = std::ptr::without_provenance::<super::OwnPool>(at);
                visits::visit(at, |_| {
                    inside.wait();
                    over.wait();
                });
            });
            inside.wait();
            drop(pool);
            for _ in 0..turns {
                domain.turn().expect("turn");
            }
            let is_there = own.upgrade().is_some();
            over.wait();
            assert!(is_there);
        });
        while own.upgrade().is_some() {
            domain.turn().expect("turn");
        }
    }
}
