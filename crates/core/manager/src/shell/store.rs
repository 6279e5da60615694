//! The contents of the service manager's store of descriptors, as far as this process knows.

use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Store {
    /// Set in a daemon only: a stored descriptor would come back to a program that embeds a manager.
    pub on: bool,
    /// The names in the store.
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
