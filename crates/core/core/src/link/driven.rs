//! Ends whose carrier does its work in the program's thread ([`Driver`]).

use super::carrier::Handed;
use super::driver::Driver;
use super::open::End;
use super::shared::LinkShared;
use super::{Outlet, Receiver};
use crate::base::millis;
use crate::error::{Awaited, Error, TimedOut};
use crate::options::Wait;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for the socket before looking at anything else.
const LOOK: Duration = Duration::from_secs(1);

impl Outlet {
    /// Whether the program waits for what it sent to have arrived, or for the memory of that.
    pub fn is_awaited(&self) -> bool {
        let link = &self.0.link;
        link.ring.is_awaited()
            || link
                .other()
                .is_some_and(|other| other.domain.pressure.is_under())
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
        link.domain.pressure.has_carriers();
        if inside.driver.set(driver).is_ok() {
            // It never sleeps on anything but the driver's: so each message presses its doorbell, which is the driver.
            other.ring.arm();
        }
    }
}

impl LinkShared {
    pub(super) fn driver(&self) -> Option<&dyn Driver> {
        Some(&**self.inside.as_ref()?.driver.get()?)
    }

    /// One wait, or one look of an end that spins.
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
