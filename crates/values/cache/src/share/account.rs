//! Values that one reader's domain was given and still holds, according to the ledger.

use super::wire::{Limits, Refused};
use std::collections::HashMap;
use std::time::Instant;
use tranship_core::{Buffer, BufferId, DomainId};

/// Account of one domain.
#[derive(Debug, Default)]
pub(super) struct Account {
    given: HashMap<BufferId, Given>,
    bytes: u64,
    /// Time since when it has held its oldest value, as of the last check.
    oldest: Option<Instant>,
}

#[derive(Debug)]
struct Given {
    /// Kept until the reader's end is known, so that the number names nothing else meanwhile.
    copy: Buffer,
    since: Instant,
}

impl Account {
    /// Notes that a domain gets a buffer, if that is within its limits.
    pub(super) fn admit(
        &mut self,
        domain: DomainId,
        copy: &Buffer,
        limits: &Limits,
        now: Instant,
    ) -> Result<(), Refused> {
        let more = copy.len() as u64;
        match self.given.get(&copy.id()) {
            Some(given) if given.copy.is_held_by(domain) => return Ok(()),
            // The reader has released the value and gets it anew. If the value kept its old place here, a reader that
            // asks for it again and again would hold it for ever.
            Some(given) => {
                self.bytes -= given.copy.len() as u64;
                self.given.remove(&copy.id());
            }
            None => {}
        }
        if self.check(more, limits, now).is_err() {
            self.look(domain);
            self.check(more, limits, now)?;
        }
        self.bytes += more;
        self.oldest = self.oldest.or(Some(now));
        let copy = copy.clone();
        self.given.insert(copy.id(), Given { copy, since: now });
        Ok(())
    }

    /// Checks whether it could be had if nothing else were held.
    pub(super) fn fits(&self, more: u64, limits: &Limits) -> Result<(), Refused> {
        let (held, most) = (self.bytes, limits.bytes);
        if more > most {
            return Err(Refused::Bytes { held, more, most });
        }
        Ok(())
    }

    fn check(&self, more: u64, limits: &Limits, now: Instant) -> Result<(), Refused> {
        let held = self.given.len() as u64;
        let age = self
            .oldest
            .map_or(0, |since| now.saturating_duration_since(since).as_secs());
        if held >= u64::from(limits.values) {
            let most = limits.values.into();
            return Err(Refused::Values { held, most });
        }
        if self.bytes + more > limits.bytes {
            let (held, most) = (self.bytes, limits.bytes);
            return Err(Refused::Bytes { held, more, most });
        }
        if age > u64::from(limits.seconds) {
            let (seconds, most) = (age, limits.seconds.into());
            return Err(Refused::Time { seconds, most });
        }
        Ok(())
    }

    /// Takes off the values that the domain has released.
    pub(super) fn look(&mut self, domain: DomainId) {
        self.given.retain(|_, given| given.copy.is_held_by(domain));
        self.bytes = self
            .given
            .values()
            .map(|given| given.copy.len() as u64)
            .sum();
        self.oldest = self.given.values().map(|given| given.since).min();
    }

    /// Returns whether it holds nothing, as of the last check.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}
