//! Domains that hold more memory of others than a rule allows, and processes whose membership was ended for it.

use crate::state::model::Domain;
use crate::state::refuse::refusal;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tranship_proto::{DomainId, HogAction, HogStat, Refusal, RefusalCode};

/// Time between two grants to a domain that is slowed down.
const SLOWED: Duration = Duration::from_millis(250);
/// Processes that are not let in again, of each user.
const BARRED: usize = 64;

impl Domain {
    /// Returns the bytes of others' memory that are charged to the domain.
    pub fn charged_bytes(&self) -> u64 {
        self.lingering_bytes().saturating_add(self.stranded_bytes)
    }

    pub fn lingering_bytes(&self) -> u64 {
        self.lingering_of(|_| true)
    }

    /// Returns the charged bytes that linger in other users' pools.
    pub fn strange_bytes(&self) -> u64 {
        self.lingering_of(|uid| uid != self.uid)
    }

    /// Returns the charged bytes that linger in these users' pools. Each figure is bounded by the pool's size.
    pub fn lingering_of(&self, users: impl Fn(u32) -> bool) -> u64 {
        let its = self.lingering.iter().filter(|(uid, _)| users(**uid));
        its.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// A rule's limit for a domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The limit above which it is too much, bytes.
    pub over_bytes: u64,
    /// The time for which the limit must be exceeded.
    pub lasting: Duration,
    pub action: HogAction,
}

/// A domain above its limit.
#[derive(Clone, Copy, Debug)]
struct Hog {
    /// Since when the limit is exceeded.
    since: Duration,
    over_bytes: u64,
    /// The action that was done, once the limit was exceeded for the rule's time.
    action: Option<HogAction>,
}

#[derive(Debug, Default)]
pub(crate) struct Hogs {
    all: BTreeMap<DomainId, Hog>,
    /// For domains that are or were slowed down: when each may be granted something next.
    granted_next: BTreeMap<DomainId, Duration>,
    /// Processes that are not let in again, and why, by user.
    barred: BTreeMap<u32, VecDeque<(u64, Refusal)>>,
    /// The time of the last judgement.
    judged: Duration,
}

impl Hogs {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn has(&self, id: DomainId) -> bool {
        self.all.contains_key(&id)
    }

    /// Returns the time of the next judgement.
    pub fn due(&self, period: Duration) -> Duration {
        self.judged + period
    }

    pub fn begin(&mut self, now: Duration) {
        self.judged = now;
    }

    /// Judges a domain by its charge. Returns the action if the result has to be reported.
    pub fn judge(
        &mut self,
        id: DomainId,
        charged: u64,
        bound: Bound,
        now: Duration,
    ) -> Option<Option<HogAction>> {
        let over_bytes = bound.over_bytes;
        let before = self.all.get(&id).copied();
        match before {
            None if charged > over_bytes => {
                let hog = Hog {
                    since: now,
                    over_bytes,
                    action: None,
                };
                self.all.insert(id, hog);
            }
            // A domain around its limit is not reported each time.
            Some(_) if charged <= over_bytes / 4 * 3 => drop(self.all.remove(&id)),
            Some(_) | None => {}
        }
        let mut becomes = None;
        if let Some(hog) = self.all.get_mut(&id)
            && hog.action.is_none()
            && charged > over_bytes
            && now.saturating_sub(hog.since) >= bound.lasting
        {
            hog.action = Some(bound.action);
            becomes = hog.action;
        }
        let was = before.is_some_and(|hog| hog.action.is_some());
        let ends = was && !self.has(id);
        (becomes.is_some() || ends).then_some(becomes)
    }

    /// Records that the kernel refused to kill a domain's process.
    pub fn not_killed(&mut self, id: DomainId) {
        if let Some(hog) = self.all.get_mut(&id) {
            hog.action = Some(HogAction::Disconnect);
        }
    }

    /// Forgets a domain that has ended.
    pub fn forget(&mut self, id: DomainId) {
        self.all.remove(&id);
        self.granted_next.remove(&id);
    }

    pub fn stat(&self, id: DomainId, now: Duration) -> Option<HogStat> {
        let hog = self.all.get(&id)?;
        let since = now.saturating_sub(hog.since);
        Some(HogStat {
            action: hog.action?,
            over_bytes: hog.over_bytes,
            since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Says whether a policy gives a domain's pools no more than they have.
    pub fn is_slowed(&self, id: DomainId) -> bool {
        let hog = self.all.get(&id);
        hog.is_some_and(|hog| hog.action == Some(HogAction::Throttle))
    }

    /// Says whether a domain may be granted memory now; a slowed domain may now and then. `true`: no more than it
    /// needs.
    pub fn check_slowed(
        &mut self,
        id: DomainId,
        d: Option<&Domain>,
        now: Duration,
    ) -> Result<bool, Refusal> {
        let Some(d) = d.filter(|_| self.is_slowed(id)) else {
            return Ok(false);
        };
        if self.granted_next.get(&id).is_some_and(|next| *next > now) {
            return Err(self.why(id, d));
        }
        self.granted_next.insert(id, now + SLOWED);
        Ok(true)
    }

    fn why(&self, id: DomainId, d: &Domain) -> Refusal {
        let over_bytes = self.all.get(&id).map_or(0, |hog| hog.over_bytes);
        refusal(RefusalCode::Hog, d.charged_bytes(), over_bytes)
    }

    /// Bars a domain's process; returns the reason.
    pub fn bar(&mut self, id: DomainId, d: &Domain) -> Refusal {
        let why = self.why(id, d);
        let barred = self.barred.entry(d.uid).or_default();
        if barred.len() >= BARRED {
            barred.pop_front();
        }
        barred.push_back((d.process, why));
        why
    }

    /// Returns the reason why a process is not let in, if there is one.
    pub fn check_barred(&self, uid: u32, process: u64) -> Result<(), Refusal> {
        let barred = self.barred.get(&uid).into_iter().flatten();
        let mut found = barred.filter(|(p, _)| *p == process).map(|(_, why)| *why);
        found.next_back().map_or(Ok(()), Err)
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Hogs {
        /// Checks that all entries are of existing domains.
        pub fn audit(&self, is_there: impl Fn(DomainId) -> bool) -> Result<(), String> {
            let mut all = self.all.keys().chain(self.granted_next.keys());
            match all.all(|id| is_there(*id)) {
                true => Ok(()),
                false => Err(format!("hogs: {self:?}")),
            }
        }
    }
}
