//! Looking at the figures of the machine and its cgroups about memory.

use crate::PressureConfig;
use std::time::{Duration, Instant};
use tranship_proto::Pressure;
use tranship_sys::epoll::{Epoll, Interest};
use tranship_sys::pressure::{Seen, Watch};

/// The token of a trigger in the loop's epoll.
pub(super) const PRESSURE: u64 = 2;

/// The watched sources, and the time of the next look.
#[derive(Debug)]
pub(super) struct Gauge {
    config: PressureConfig,
    /// `None`: there is nothing to watch, or it is switched off.
    watch: Option<Watch>,
    next: Instant,
    /// A trigger fired since the last look.
    fired: bool,
}

impl Gauge {
    /// Makes the gauge. The manager first waits `grace` for the domains of an earlier manager.
    pub fn new(config: &PressureConfig, grace: Duration, epoll: &Epoll) -> Gauge {
        let watch = config
            .watch
            .then(|| Watch::new(&config.root, &config.cgroups, config.some));
        let watch = watch.filter(|watch| {
            let (there, missing) = (watch.sources(), watch.missing().join(", "));
            if there.is_empty() {
                tracing::info!(%missing, "nothing says whether memory is short outside: pools do not shrink for others");
            } else {
                let watched = there.join(", ");
                tracing::info!(%watched, %missing, "watching whether memory is short outside");
            }
            !there.is_empty()
        });
        for trigger in watch.iter().flat_map(Watch::triggers) {
            if let Err(error) = epoll.add(trigger, PRESSURE, Interest::Urgent) {
                tracing::info!(%error, "a trigger of the kernel's is not waited for; it is looked at its time");
            }
        }
        Gauge {
            config: config.clone(),
            watch,
            next: Instant::now() + grace,
            fired: false,
        }
    }

    /// Returns the time until the next look.
    pub fn wait(&self) -> Option<Duration> {
        let now = Instant::now();
        let wait = self.next.saturating_duration_since(now);
        self.watch.as_ref().map(|_| wait)
    }

    /// Handles a trigger: tasks stall (for each file at most once in two seconds), so a look follows at once.
    pub fn fire(&mut self, epoll: &Epoll, broken: bool) {
        self.fired = true;
        self.next = Instant::now();
        if broken {
            // A trigger's file of a removed cgroup stays urgent for ever.
            for trigger in self.watch.iter().flat_map(Watch::triggers) {
                let _ = epoll.remove(trigger);
            }
        }
    }

    /// Returns the figures, if it is time to look.
    pub fn look(&mut self) -> Option<Pressure> {
        let now = Instant::now();
        if self.next > now {
            return None;
        }
        let watch = self.watch.as_mut()?;
        self.next = now + self.config.every;
        let seen = watch.look();
        let fired = std::mem::take(&mut self.fired);
        Some(judge(&self.config, seen, fired))
    }
}

fn judge(config: &PressureConfig, seen: Seen, fired: bool) -> Pressure {
    // A cgroup is at its limit all the time if it reads many files: that alone says nothing.
    let at_limit = seen.at_limit && seen.filled >= config.some_filled;
    if seen.full >= config.full || seen.filled >= config.full_filled || at_limit {
        Pressure::Full
    } else if fired || seen.some >= config.some || seen.filled >= config.some_filled || seen.slowed
    {
        Pressure::Some
    } else {
        Pressure::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_sign_decides() {
        let config = PressureConfig::default();
        let none = Seen::default();
        let some = |some| Seen { some, ..none };
        let full = |full| Seen { full, ..none };
        let filled = |filled| Seen { filled, ..none };
        let (slowed, at_limit) = (true, true);
        for (seen, fired, expected) in [
            (none, false, Pressure::None),
            (none, true, Pressure::Some),
            (some(0.19), false, Pressure::None),
            (some(0.2), false, Pressure::Some),
            (some(1.0), false, Pressure::Some),
            (full(0.1), false, Pressure::Full),
            (filled(0.89), false, Pressure::None),
            (filled(0.9), false, Pressure::Some),
            (filled(0.97), true, Pressure::Full),
            (Seen { slowed, ..none }, false, Pressure::Some),
            (Seen { at_limit, ..none }, false, Pressure::None),
            (
                Seen {
                    at_limit,
                    ..filled(0.9)
                },
                false,
                Pressure::Full,
            ),
        ] {
            assert_eq!(judge(&config, seen, fired), expected, "{seen:?} {fired}");
        }
    }
}
