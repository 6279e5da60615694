//! Actions against domains that hold too much memory of others.

use super::hog::Bound;
use crate::state::State;
use crate::state::model::Domain;
use crate::state::types::{Action, HogNotice};
use std::time::Duration;
use tranship_proto::{DomainId, GoneReason, HogAction};

impl State {
    /// Returns the time of the next look for such domains; `None` while no domain holds anything.
    pub(crate) fn hogs_due(&self) -> Option<Duration> {
        let stranded = self.cx.totals.stranded() > 0;
        let any = !self.watch.is_idle() || stranded || !self.hogs.is_empty();
        any.then(|| self.hogs.due(self.cx.config.policy_period))
    }

    pub(crate) fn hogs_on(&mut self) {
        if self.hogs_due().is_none_or(|due| due > self.cx.now) {
            return;
        }
        self.hogs.begin(self.cx.now);
        let holds = |id: &DomainId, d: &Domain| self.hogs.has(*id) || d.charged_bytes() > 0;
        let some = self.cx.domains.iter().filter(|(id, d)| holds(id, d));
        for id in some.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.judge(id);
        }
    }

    /// Judges a domain by its present charge.
    fn judge(&mut self, id: DomainId) {
        let (now, accounts) = (self.cx.now, &self.cx.accounts);
        let ending = self.endings.has(id);
        let Some(d) = self.cx.domains.get(&id).filter(|_| !ending) else {
            return;
        };
        // The rules do not change: a domain that was judged by one is judged by the same again.
        let Some(rule) = self.cx.config.hog_rule(&d.name, d.uid) else {
            return;
        };
        // Trust: a pool's writer says how much lingers in it. No domain is expelled on another user's word.
        let is_believed =
            |uid| uid == d.uid || uid == 0 || accounts.is_owner(uid) || rule.believes(uid);
        let charged = match rule.action {
            HogAction::Report | HogAction::Throttle => d.charged_bytes(),
            HogAction::Disconnect | HogAction::Kill => {
                let lingering = d.lingering_of(is_believed);
                lingering.saturating_add(d.stranded_bytes)
            }
        };
        // Ending the manager's own process would end everything.
        let own = d.pid == self.cx.pid && rule.action != HogAction::Throttle;
        let bound = Bound {
            over_bytes: rule.over_bytes(self.cx.total_bytes),
            lasting: rule.lasting,
            action: if own { HogAction::Report } else { rule.action },
        };
        let Some(becomes) = self.hogs.judge(id, charged, bound, now) else {
            return;
        };
        let notice = HogNotice {
            domain: id,
            name: d.name.clone(),
            pid: d.pid,
            uid: d.uid,
            charged_bytes: charged,
            over_bytes: bound.over_bytes,
            action: becomes,
        };
        let (pidfd, is_here) = (d.pidfd, d.client.is_some());
        self.cx.out.push(Action::SayHog(notice));
        match becomes {
            Some(HogAction::Disconnect) => self.bar(id),
            Some(HogAction::Kill) if is_here => {
                self.cx.out.push(Action::Kill { domain: id, pidfd });
            }
            // Its connection ends with `exec`: another program with other rights may run there now.
            Some(HogAction::Kill) => self.not_killed(id),
            Some(HogAction::Report | HogAction::Throttle) | None => {}
        }
    }

    /// Handles that the kernel refused to kill a process.
    pub(crate) fn not_killed(&mut self, id: DomainId) {
        self.hogs.not_killed(id);
        self.bar(id);
    }

    /// Ends a domain's membership, and does not let its process in again. Its memory is taken back as after its death.
    fn bar(&mut self, id: DomainId) {
        if let Some(d) = self.cx.domains.get(&id) {
            let why = self.hogs.bar(id, d);
            self.domain_ends_for(id, GoneReason::Died, Some(why));
        }
    }
}
