//! The service manager's store of descriptors (sd_pid_notify_with_fds(3)): stored descriptors come back to the next
//! manager.
//!
//! Every descriptor out of the store is checked like one from an untrusted peer.

use super::keep::Kept;
use super::parts::Shell;
use super::read::process_identity;
use super::worker::look;
use crate::state::{Facts, Fd, Stored};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tranship_sys::{pidfd, process};

/// The shortest time between two updates of the store, and between two checks of awaited readers.
const EVERY: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(250);

impl Shell {
    /// Takes the descriptors that were handed over at the start.
    pub(super) fn restore(&mut self, handed: Vec<(String, OwnedFd)>) {
        self.store.on = true;
        let mut all = Vec::new();
        for (name, fd) in handed {
            self.store.names.insert(name.clone());
            let stored = Stored::parse(&name);
            let facts = stored.as_ref().and_then(|s| match s.is_process() {
                true => is_process(&fd).then(Facts::default),
                false => look(&fd),
            });
            let Some((stored, facts)) = stored.zip(facts) else {
                tracing::warn!(name, "not what a manager stores, closed");
                continue;
            };
            let uid = process::geteuid();
            let token = match stored.is_process() {
                true => self.keep_own(uid, fd),
                false => self.keep_sent(uid, &facts, Some(fd)),
            };
            all.push((stored, Fd { token, facts }));
        }
        let n = all.len();
        for action in self.state.take_stored(all) {
            self.act(action);
        }
        if n > 0 {
            let taken = self.state.stored().len();
            tracing::info!(found = n, taken, "memory of dead writers is taken back");
        }
    }

    /// Brings the store up to date.
    // Crash: a pool that has become an orphan since then is not in the store. Its readers keep their mappings, as
    // without a store.
    pub(super) fn sync_store(&mut self) {
        let now = Instant::now();
        let version = self.state.stored_version();
        if self.store.version != version && self.store.next <= now {
            self.store.version = version;
            self.store.next = now + EVERY;
            self.update_store();
        }
        if self.store.look <= now {
            self.store.look = now + LOOK;
            self.look_at_awaited();
        }
        self.notify.flush();
    }

    fn update_store(&mut self) {
        if !self.store.on || !self.notify.is_heard() {
            return;
        }
        let wanted: Vec<(String, Rc<Kept>)> = (self.state.stored().into_iter())
            .filter_map(|(s, token)| Some((s.to_string(), self.fds.get(&token)?.clone())))
            .collect();
        let names: BTreeSet<String> = wanted.iter().map(|(name, _)| name.clone()).collect();
        for name in self.store.names.difference(&names) {
            self.notify.unstore(name);
        }
        for (name, kept) in wanted {
            if !self.store.names.contains(&name) {
                self.notify.store(&name, kept);
            }
        }
        self.store.names = names;
    }

    fn look_at_awaited(&mut self) {
        for (pool, reader, token) in self.state.awaited() {
            let kept = self.fds.get(&token);
            if kept.is_none_or(|k| pidfd::is_dead(&***k).unwrap_or(true)) {
                for action in self.state.awaited_ended(pool, reader) {
                    self.act(action);
                }
            }
        }
    }

    /// Returns the time of the next work on the store.
    pub(super) fn store_wait(&self) -> Option<Duration> {
        let now = Instant::now();
        let changed = self.store.version != self.state.stored_version();
        let sync = changed.then(|| self.store.next.saturating_duration_since(now));
        let look = self
            .state
            .awaits()
            .then(|| self.store.look.saturating_duration_since(now));
        [sync, look, self.notify.backlog()]
            .into_iter()
            .flatten()
            .min()
    }
}

fn is_process(fd: &OwnedFd) -> bool {
    // A pidfd's number is in the lower part; another descriptor has none there.
    pidfd::is_dead(fd).is_ok_and(|dead| !dead)
        && process_identity(fd).is_ok_and(|p| p & ((1 << 22) - 1) != 0)
}
