//! What a domain still has.

use super::shell::Domain;
use crate::domain::LeakReport;

impl Domain {
    /// The buffers that this domain has now: those of others that are held, and, where [`leaks`](crate::DomainBuilder::leaks) are noted, those of its
    /// own pools that are not freed; then also since when, and whence.
    pub fn leaks(&self) -> LeakReport {
        self.core().leak_report()
    }

    /// Lets go of this handle, and says what the domain still has. If that was the last one, nothing is printed.
    pub fn close(self) -> LeakReport {
        let report = self.leaks();
        self.core().hush_leaks();
        report
    }
}

#[cfg(test)]
mod tests;
