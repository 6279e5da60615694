//! What is done about domains that hold too much of others' memory.

use super::State;
use super::hog::Bound;
use super::model::Domain;
use super::types::{Action, HogNotice};
use std::time::Duration;
use tranship_proto::{DomainId, GoneReason, HogAction};

impl State {
    /// When it is looked next who holds too much; never while nobody holds anything.
    pub(super) fn hogs_due(&self) -> Option<Duration> {
        let stranded = self.cx.totals.stranded() > 0;
        let any = !self.watch.is_idle() || stranded || !self.hogs.is_empty();
        any.then(|| self.hogs.due(self.cx.config.policy_period))
    }

    pub(super) fn hogs_on(&mut self) {
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

    /// A domain becomes one, or is one no more.
    fn judge(&mut self, id: DomainId) {
        let (now, accounts) = (self.cx.now, &self.cx.accounts);
        let ending = self.endings.has(id);
        let Some(d) = self.cx.domains.get(&id).filter(|_| !ending) else {
            return;
        };
        // The rules do not change; who was judged by one is by the same again.
        let Some(rule) = self.cx.config.hog_rule(&d.name, d.uid) else {
            return;
        };
        // Trust: how much lingers in a pool its writer says. Nobody is thrown out for what another user says.
        let is_believed =
            |uid| uid == d.uid || uid == 0 || accounts.is_owner(uid) || rule.believes(uid);
        let charged = match rule.action {
            HogAction::Report | HogAction::Throttle => d.charged_bytes(),
            HogAction::Disconnect | HogAction::Kill => {
                let lingering = d.lingering_of(is_believed);
                lingering.saturating_add(d.stranded_bytes)
            }
        };
        // Who ends its own manager's process ends all.
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
            // Its connection ends with `exec`: what runs there now may be another program, with other rights.
            Some(HogAction::Kill) => self.not_killed(id),
            Some(HogAction::Report | HogAction::Throttle) | None => {}
        }
    }

    /// The kernel does not let its process be killed.
    pub(super) fn not_killed(&mut self, id: DomainId) {
        self.hogs.not_killed(id);
        self.bar(id);
    }

    /// Its membership ends, and its process is not let in again. What it held is taken back as if it had died.
    fn bar(&mut self, id: DomainId) {
        if let Some(d) = self.cx.domains.get(&id) {
            let why = self.hogs.bar(id, d);
            self.domain_ends_for(id, GoneReason::Died, Some(why));
        }
    }
}
