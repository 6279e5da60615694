//! A fence on all threads, for which a single thread pays. A rare operation uses it, so that frequent operations need
//! no fence at all.

/// Returns when every running thread of the machine has passed a full fence. Blocks for milliseconds.
pub(crate) fn fence_everybody() {
    #[cfg(loom)]
    tranship_tso::fence_everybody();
    #[cfg(not(loom))]
    if !tranship_sys::membarrier::global() {
        // Many times the time that a store takes to become visible.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
