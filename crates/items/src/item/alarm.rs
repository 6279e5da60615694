//! The reaction when a zone meets its limit: a warning now and then, and an action.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tranship_sys::time;

/// The report of a zone at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warning<'a> {
    /// The zone's name.
    pub name: &'a str,
    /// The zone's limit.
    pub max: u64,
    /// How many allocations met the limit so far.
    pub times: u64,
}

type Warn = Arc<dyn Fn(Warning<'_>) + Send + Sync>;
type Action = Arc<dyn Fn() + Send + Sync>;

/// The actions at the limit.
#[derive(Clone, Default)]
pub struct Alarm {
    warn: Option<(Warn, Duration)>,
    action: Option<Action>,
}

impl Alarm {
    /// Calls `warn` when an allocation meets the limit, at most once in `every`. It runs on the thread that allocates,
    /// which holds no lock of the zone.
    #[must_use]
    pub fn warn(self, every: Duration, warn: impl Fn(Warning<'_>) + Send + Sync + 'static) -> Self {
        Self {
            warn: Some((Arc::new(warn), every)),
            ..self
        }
    }

    /// Calls `action` soon after an allocation met the limit, so that it can free memory. There is one call for all
    /// allocations that met the limit until then. It runs on the thread that keeps time for reclamation, or without
    /// such a thread on the allocating one.
    #[must_use]
    pub fn action(self, action: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            action: Some(Arc::new(action)),
            ..self
        }
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarm")
            .field("warn", &self.warn.is_some())
            .field("action", &self.action.is_some())
            .finish()
    }
}

/// A zone's alarm.
pub(crate) struct Notifier {
    alarm: Alarm,
    times: AtomicU64,
    /// The time of the next possible warning; 0: now.
    quiet_until_ns: AtomicU64,
    wanted: AtomicBool,
}

impl Notifier {
    pub(super) fn new(alarm: Alarm) -> Self {
        Self {
            alarm,
            times: AtomicU64::new(0),
            quiet_until_ns: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
        }
    }

    /// Records that an allocation met the limit. Returns whether the action is wanted.
    pub(super) fn ring(&self, name: &str, max: u64) -> bool {
        let times = self.times.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((warn, every)) = &self.alarm.warn {
            let (now, quiet) = (
                time::monotonic_ns(),
                self.quiet_until_ns.load(Ordering::Relaxed),
            );
            let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
            let next = now.saturating_add(every);
            let mine = now >= quiet
                && self
                    .quiet_until_ns
                    .compare_exchange(quiet, next, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if mine {
                warn(Warning { name, max, times });
            }
        }
        self.alarm.action.is_some() && !self.wanted.swap(true, Ordering::Relaxed)
    }

    /// Runs the action if it is wanted.
    pub(crate) fn act(&self) {
        if let Some(action) = &self.alarm.action
            && self.wanted.swap(false, Ordering::Relaxed)
        {
            action();
        }
    }
}
