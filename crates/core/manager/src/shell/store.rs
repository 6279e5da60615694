//! The contents of the service manager's store of descriptors, as far as this process knows.

use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct StoredNames {
    /// Set in a daemon only: a stored descriptor would come back to a program that embeds a manager.
    pub on: bool,
    /// The names in the store.
    pub names: BTreeSet<String>,
    pub version: u64,
    pub next: Instant,
    pub look: Instant,
}

impl StoredNames {
    pub fn new() -> StoredNames {
        let now = Instant::now();
        StoredNames {
            on: false,
            names: BTreeSet::new(),
            version: 0,
            next: now,
            look: now,
        }
    }
}
