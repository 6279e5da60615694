//! How what is received is counted: by plain stores as long as one thread receives ([`Bias`](tranship_ledger::Bias)).

use super::ForeignPool;
use crate::base::visits;
use std::time::Duration;
use tranship_sys::membarrier;

impl ForeignPool {
    /// Counts a reference that is received, before `rcvd`, whose release publishes it. Without a locked instruction, if this thread alone
    /// receives out of the pool and has no other handle of the buffer.
    #[inline(always)]
    pub(crate) fn receive(&self, slot: u32) {
        let shared = || self.receive_shared(slot);
        self.bias
            .receive(visits::mark(), self.place(), self.word(slot), shared);
    }

    /// Counts by a locked instruction.
    #[inline(never)]
    pub(crate) fn receive_shared(&self, slot: u32) {
        if visits::mark().is_none() {
            visits::visit(self, |_| {}); // from here on there is one, unless the thread is about to end
        }
        let (mark, marks, refs) = (visits::mark(), visits::marks(), self.word(slot));
        self.bias
            .receive_shared(mark, marks, self.place(), refs, || {
                if !membarrier::private_expedited() {
                    // Not any more. Many times what a store takes to become visible.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
    }

    /// What visits to it are marked with.
    #[inline(always)]
    fn place(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }
}
