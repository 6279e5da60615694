//! Domains that hold too much of others' memory, and what is done about them.

use super::model::{Domain, Hog};
use super::types::{Action, HogNotice};
use super::{State, refusal};
use std::time::Duration;
use tranship_proto::{DomainId, GoneReason, HogAction, HogStat, Refusal, RefusalCode};

/// How often a domain that is slowed down is granted memory.
const SLOWED: Duration = Duration::from_millis(250);
/// Processes that are not let in again, of each user.
const BARRED: usize = 64;

impl Domain {
    /// What of others' memory is charged to it.
    pub fn charged_bytes(&self) -> u64 {
        self.lingering_bytes().saturating_add(self.stranded_bytes)
    }

    pub fn lingering_bytes(&self) -> u64 {
        self.lingering_of(|_| true)
    }

    /// What of it lingers in other users' pools.
    pub fn strange_bytes(&self) -> u64 {
        self.lingering_of(|uid| uid != self.uid)
    }

    /// What lingers in the pools of these users. Each is bounded by what there is of them.
    fn lingering_of(&self, users: impl Fn(u32) -> bool) -> u64 {
        let its = self.lingering.iter().filter(|(uid, _)| users(**uid));
        its.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    pub fn hog_stat(&self, now: Duration) -> Option<HogStat> {
        let hog = self.hog?;
        let since = now.saturating_sub(hog.since);
        Some(HogStat {
            action: hog.action?,
            over_bytes: hog.over_bytes,
            since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn is_slowed(&self) -> bool {
        self.hog
            .is_some_and(|h| h.action == Some(HogAction::Throttle))
    }

    fn is_hog(&self) -> Refusal {
        let over_bytes = self.hog.map_or(0, |h| h.over_bytes);
        refusal(RefusalCode::Hog, self.charged_bytes(), over_bytes)
    }
}

impl State {
    /// When it is looked next who holds too much; never while nobody holds anything.
    pub(super) fn hogs_due(&self) -> Option<Duration> {
        let any = !self.watch.is_idle() || self.cx.totals.stranded() > 0 || self.hogs > 0;
        any.then(|| self.watch.judged + self.cx.config.policy_period)
    }

    pub(super) fn hogs_on(&mut self) {
        if self.hogs_due().is_none_or(|due| due > self.cx.now) {
            return;
        }
        self.watch.judged = self.cx.now;
        let holds = |d: &Domain| d.hog.is_some() || d.charged_bytes() > 0;
        let some = self.cx.domains.iter().filter(|(_, d)| holds(d));
        for id in some.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.judge(id);
        }
    }

    /// A domain becomes one, or is one no more.
    fn judge(&mut self, id: DomainId) {
        let (now, total, accounts) = (self.cx.now, self.cx.total_bytes, &self.cx.accounts);
        let ending = self.endings.contains_key(&id);
        let Some(d) = self.cx.domains.get_mut(&id).filter(|_| !ending) else {
            return;
        };
        // The rules do not change; who was judged by one is by the same again.
        let Some(rule) = self.cx.config.hog_rule(&d.name, d.uid) else {
            return;
        };
        let (over_bytes, lasting, action) = (rule.over_bytes(total), rule.lasting, rule.action);
        // Trust: how much lingers in a pool its writer says. Nobody is thrown out for what a stranger says.
        let is_believed =
            |uid| uid == d.uid || uid == 0 || accounts.is_owner(uid) || rule.believes(uid);
        let charged = match action {
            HogAction::Report | HogAction::Throttle => d.charged_bytes(),
            HogAction::Disconnect | HogAction::Kill => {
                let lingering = d.lingering_of(is_believed);
                lingering.saturating_add(d.stranded_bytes)
            }
        };
        let before = d.hog;
        match &mut d.hog {
            None if charged > over_bytes => {
                d.hog = Some(Hog {
                    since: now,
                    over_bytes,
                    action: None,
                });
            }
            // One that comes and goes about what is allowed is not told so each time.
            Some(_) if charged <= over_bytes / 4 * 3 => d.hog = None,
            Some(_) | None => {}
        }
        let mut becomes = None;
        if let Some(hog) = &mut d.hog
            && hog.action.is_none()
            && charged > over_bytes
            && now.saturating_sub(hog.since) >= lasting
        {
            // Who ends its own manager's process ends all.
            let own = d.pid == self.cx.pid && action != HogAction::Throttle;
            let action = if own { HogAction::Report } else { action };
            hog.action = Some(action);
            becomes = Some(action);
        }
        match (before.is_some(), d.hog.is_some()) {
            (false, true) => self.hogs += 1,
            (true, false) => self.hogs -= 1,
            _ => {}
        }
        let was = before.is_some_and(|h| h.action.is_some());
        let ends = was && d.hog.is_none();
        if becomes.is_none() && !ends {
            return;
        }
        let notice = HogNotice {
            domain: id,
            name: d.name.clone(),
            pid: d.pid,
            uid: d.uid,
            charged_bytes: charged,
            over_bytes,
            action: becomes,
        };
        let (pidfd, is_here) = (d.pidfd, d.client.is_some());
        self.cx.out.push(Action::SayHog(notice));
        match becomes {
            Some(HogAction::Disconnect) => self.bar(id),
            Some(HogAction::Kill) if is_here => {
                self.cx.out.push(Action::Kill { domain: id, pidfd });
            }
            // Its connection ends with `exec`: what runs there now may be another program, with other rights.
            Some(HogAction::Kill) => self.not_killed(id),
            Some(HogAction::Report | HogAction::Throttle) | None => {}
        }
    }

    /// The kernel does not let its process be killed.
    pub(super) fn not_killed(&mut self, id: DomainId) {
        if let Some(hog) = self.cx.domains.get_mut(&id).and_then(|d| d.hog.as_mut()) {
            hog.action = Some(HogAction::Disconnect);
        }
        self.bar(id);
    }

    /// Its membership ends, and its process is not let in again. What it held is taken back as if it had died.
    fn bar(&mut self, id: DomainId) {
        let Some(d) = self.cx.domains.get(&id) else {
            return;
        };
        let (why, uid, process) = (d.is_hog(), d.uid, d.process);
        let barred = self.barred.entry(uid).or_default();
        if barred.len() >= BARRED {
            barred.pop_front();
        }
        barred.push_back((process, why));
        self.domain_ends_for(id, GoneReason::Died, Some(why));
    }

    /// Whether a process was shown the door, and why.
    pub(super) fn check_barred(&self, uid: u32, process: u64) -> Result<(), Refusal> {
        let barred = self.barred.get(&uid).into_iter().flatten();
        let mut found = barred.filter(|(p, _)| *p == process).map(|(_, why)| *why);
        found.next_back().map_or(Ok(()), Err)
    }

    /// A domain is about to be no more.
    pub(super) fn hog_ends(&mut self, id: DomainId) {
        let hog = self.cx.domains.get_mut(&id).and_then(|d| d.hog.take());
        self.hogs -= usize::from(hog.is_some());
    }

    /// Whether a domain is granted memory now: one that is slowed down is now and then. `true`: no more than it needs.
    pub(super) fn check_slowed(&mut self, id: DomainId) -> Result<bool, Refusal> {
        let now = self.cx.now;
        let Some(d) = self.cx.domains.get_mut(&id).filter(|d| d.is_slowed()) else {
            return Ok(false);
        };
        if d.granted_next > now {
            return Err(d.is_hog());
        }
        d.granted_next = now + SLOWED;
        Ok(true)
    }

    /// Whether a policy gives a domain's pools no more than they have.
    pub(super) fn is_slowed(&self, id: DomainId) -> bool {
        self.cx.domains.get(&id).is_some_and(Domain::is_slowed)
    }
}
