//! What lies in the service manager's store of descriptors, as far as we know.

use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Store {
    /// A daemon's: what is stored by whoever has a manager in it would come back to that program.
    pub on: bool,
    /// What lies there.
    pub names: BTreeSet<String>,
    pub version: u64,
    pub next: Instant,
    pub look: Instant,
}

impl Store {
    pub fn new() -> Store {
        let now = Instant::now();
        Store {
            on: false,
            names: BTreeSet::new(),
            version: 0,
            next: now,
            look: now,
        }
    }
}
