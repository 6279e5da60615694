//! The pool behind the zones' caches.

use std::sync::Weak;
use tranship_zone::Backend;

/// The pool, as its zones know it.
pub(super) trait Behind: Send + Sync {
    /// Adds about `want` items of a class to `out`.
    fn import(&self, class: usize, out: &mut Vec<u32>, want: usize);
    /// Takes items back.
    fn release(&self, items: &[u32]);
    /// Says that memory came back: a waiting caller may be served.
    fn came_back(&self);
}

/// The backend of one class's zone.
pub(super) struct Class {
    pub(super) pool: Weak<dyn Behind>,
    pub(super) class: usize,
}

impl Backend for Class {
    fn import(&self, out: &mut Vec<u32>, want: usize) {
        if let Some(pool) = self.pool.upgrade() {
            pool.import(self.class, out, want);
        }
    }
    fn release(&self, items: &[u32]) {
        if let Some(pool) = self.pool.upgrade() {
            pool.release(items);
        }
    }
    fn pressure_free(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.came_back();
        }
    }
}
