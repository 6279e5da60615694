//! Options of a store.

use std::thread::available_parallelism;
use tranship_core::Wait;
use tranship_service::ServiceOptions;

/// Returns the options of either end of a store's service. An end that has one processor sleeps at once: a spin would keep the other end from
/// that processor.
pub(crate) fn ends() -> ServiceOptions {
    match available_parallelism() {
        Ok(processors) if processors.get() == 1 => ServiceOptions::new().wait(Wait::Sleep),
        _ => ServiceOptions::new(),
    }
}

/// A store to be made: how much it keeps.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub(crate) quota: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) end_with_owner: bool,
    pub(crate) clients: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            quota: 1 << 30,
            pool_bytes: 16 << 30,
            end_with_owner: false,
            clients: 1024,
        }
    }
}

impl StoreOptions {
    /// At most 1 GiB of values; values outlive the process that put them; 1024 clients of one user.
    pub fn new() -> StoreOptions {
        StoreOptions::default()
    }

    /// Bytes that values under keys may have. Values that were not used for longest give way.
    pub fn quota(mut self, bytes: u64) -> Self {
        self.quota = bytes;
        self
    }

    /// Lets values end with the domain that put them. By default they stay: the first reader after its end gets a copy that the store made.
    pub fn end_with_owner(mut self, yes: bool) -> Self {
        self.end_with_owner = yes;
        self
    }

    /// The most clients of one user.
    pub fn clients(mut self, most: usize) -> Self {
        self.clients = most;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    #[test]
    fn an_end_with_one_processor_does_not_spin() {
        let all = sched_getaffinity(None).expect("the processors");
        let first = (0..CpuSet::MAX_CPU).find(|number| all.is_set(*number));
        let mut one = CpuSet::new();
        one.set(first.expect("a processor"));
        sched_setaffinity(None, &one).expect("one processor"); // of this thread
        let text = format!("{:?}", ends());
        assert!(
            text.contains("Sleep") && !text.contains("SpinThenSleep"),
            "{text}"
        );
    }
}
