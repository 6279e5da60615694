//! The backend behind a zone's caches.

/// The source and the destination of a zone's items.
///
/// Any thread calls it, without a lock of the zone. It may call the zone.
pub trait Backend: Send + Sync + 'static {
    /// Appends items to `out`: about `want`, or fewer if there are not enough.
    fn import(&self, out: &mut Vec<u32>, want: usize);
    /// Takes items back.
    fn release(&self, items: &[u32]);
    /// Tells, under pressure, that items were released, so that a waiting thread may be served.
    fn pressure_free(&self) {}
    /// Ends a period of reclamation (only for zones that take part in it). Returns whether there may be more to do.
    fn period(&self) -> bool {
        false
    }
}
