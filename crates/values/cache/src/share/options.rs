//! Options for showing values to other processes.

use super::wire::Limits;
use std::fmt;
use std::time::Duration;
use tranship_core::Domain;

/// Shows values to other processes by reference, under a name of the domain's manager.
#[derive(Clone)]
pub struct Share {
    /// Domain whose manager knows the name, and whose pool the shown values lie in.
    pub domain: Domain,
    /// The name that readers connect to.
    pub name: String,
    /// Bytes of the pool, beside the server's memory.
    pub memory: u64,
    /// Processes that hold values at a time, connected ones included.
    pub readers: usize,
    /// Values that one of them may hold at a time.
    pub held: usize,
    /// Longest time that a reader may hold a value before it gets no other.
    pub held_for: Duration,
}

impl Share {
    /// Creates a pool of 64 MiB; 16 readers, each of which may hold 256 values and a sixteenth of the pool, for a
    /// minute.
    #[must_use]
    pub fn new(domain: Domain, name: &str) -> Share {
        Share {
            domain,
            name: name.to_owned(),
            memory: 64 << 20,
            readers: 16,
            held: 256,
            held_for: Duration::from_secs(60),
        }
    }

    /// Returns the limits of one reader: its part of the pool, by the bytes of the values.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            bytes: self.memory / self.readers.max(1) as u64,
            values: u32::try_from(self.held).unwrap_or(u32::MAX),
            seconds: u32::try_from(self.held_for.as_secs()).unwrap_or(u32::MAX),
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("name", &self.name)
            .field("memory", &self.memory)
            .field("readers", &self.readers)
            .field("limits", &self.limits())
            .finish_non_exhaustive()
    }
}
