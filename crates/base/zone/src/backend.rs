//! The backend behind a zone's caches.

/// Where a zone's items come from and go to.
///
/// Called by any thread, with no lock of the zone held; may call the zone.
pub trait Backend: Send + Sync + 'static {
    /// Appends items to `out`: about `want`, fewer or none if there are not so many.
    fn import(&self, out: &mut Vec<u32>, want: usize);
    /// Takes items back.
    fn release(&self, items: &[u32]);
    /// Tells, under pressure, that items were released, so that a waiting thread may be served.
    fn pressure_free(&self) {}
    /// A period of reclamation is over (only for zones that take part in it). Returns whether there may be more to do.
    fn period(&self) -> bool {
        false
    }
}
