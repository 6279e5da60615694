//! A carrier's work in the program's own thread: who sends puts the bytes into the socket itself, and who waits for a message waits for the
//! socket, so that no other thread has to be woken on the way.
//!
//! NOT here: the work itself, and the carrier's thread, which does it while the program is elsewhere (`channel`).

use super::carrier::Handed;
use super::open::End;
use super::shared::LinkShared;
use super::{Outlet, Receiver};
use crate::domain::{DomainCore, lock, millis};
use crate::error::{Awaited, Error, TimedOut};
use crate::options::Wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tranship_proto::Role;

/// How long to wait for the socket before looking at anything else.
const LOOK: Duration = Duration::from_secs(1);

/// What a carrier does when the program's end calls it. It may be called by any thread that has the end; never by two at once, and never
/// while the carrier has the program's end wait for a lock.
pub trait Driver: Send + Sync {
    /// The program's end has sent, taken or said something, or is gone: does what can be done about it without waiting.
    fn stir(&self);
    /// Looks for what has come, without waiting.
    fn look(&self);
    /// Looks, and waits until `is_ready`, at most so long. It may come back early.
    fn wait(&self, limit: Duration, is_ready: &dyn Fn() -> bool);
}

/// Whether somebody in a domain needs back at once what carriers have brought to its place.
#[derive(Debug, Default)]
pub(crate) struct Haste {
    /// There are carriers.
    carried: AtomicBool,
    /// Those who wait for memory.
    waiting: AtomicU32,
}

impl Haste {
    pub(crate) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DomainCore {
    /// Memory is short: what has arrived is given back now.
    pub(crate) fn hasten_carriers(&self) {
        if !self.haste.carried.load(Ordering::Relaxed) {
            return;
        }
        let sends = |link: &&Arc<LinkShared>| link.role == Role::Source && link.driver().is_some();
        let links: Vec<_> = lock(&self.links).values().filter(sends).cloned().collect();
        links
            .iter()
            .filter_map(|link| link.driver())
            .for_each(|driver| driver.look());
    }
}

impl Outlet {
    /// Whether the program waits for what it sent to have arrived, or for the memory of that.
    pub fn is_awaited(&self) -> bool {
        let link = &self.0.link;
        link.ring.is_awaited()
            || link
                .other()
                .is_some_and(|other| other.domain.haste.waiting.load(Ordering::Relaxed) > 0)
    }
}

impl Handed {
    /// From now on the program's end calls this whenever it does something, and its carrier's end is not told otherwise.
    pub fn drive(&mut self, driver: Arc<dyn Driver>) {
        let link = match &mut self.0 {
            End::Source(sender) => &sender.link,
            End::Sink(receiver) => {
                receiver.driver = Some(Arc::clone(&driver));
                &receiver.link
            }
        };
        let Some((inside, other)) = link.inside.as_ref().zip(link.other()) else {
            return;
        };
        link.domain.haste.carried.store(true, Ordering::Relaxed);
        if inside.driver.set(driver).is_ok() {
            // It never sleeps on anything but the driver's: so each message presses its bell, which is the driver.
            other.ring.arm();
        }
    }
}

impl LinkShared {
    pub(super) fn driver(&self) -> Option<&dyn Driver> {
        Some(&**self.inside.as_ref()?.driver.get()?)
    }

    /// One wait, or one look of who spins.
    pub(super) fn drive(
        &self,
        driver: &dyn Driver,
        how: Wait,
        deadline: Option<Instant>,
        is_ready: &dyn Fn() -> bool,
    ) {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let limit = left.map_or(LOOK, |left| left.min(LOOK));
        match how {
            Wait::Spin => driver.look(),
            Wait::SpinThenSleep(_) | Wait::Sleep => driver.wait(limit, is_ready),
        }
    }
}

impl Receiver {
    /// Waits for a message, or other news, by its carrier's hand.
    pub(super) fn drive(
        &self,
        driver: &dyn Driver,
        started: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let is_ready = || self.may_have_news() || self.link.domain.has_news();
        loop {
            self.link.drive(driver, self.wait, deadline, &is_ready);
            if is_ready() {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let waited_ms = started.map_or(0, |started| millis(started.elapsed()));
                let awaited = Awaited::Message;
                return Err(TimedOut { awaited, waited_ms }.into());
            }
        }
    }
}
