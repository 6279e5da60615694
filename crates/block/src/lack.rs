//! What this process lacks for the moment (memory, descriptors, its quota) it waits for. Nothing is lost by that: what
//! came is taken later, and what goes is sent later.

use std::fmt::Display;
use std::time::Duration;
use tranship_bulk::{Channel, Error, Event, Kind};

/// Between two looks whether it is over.
const PAUSE: Duration = Duration::from_millis(20);

/// May it be over by itself?
pub(crate) fn passes(kind: Kind) -> bool {
    let lacks = [Kind::OutOfMemory, Kind::Quota, Kind::Limit, Kind::System];
    kind == Kind::Full || lacks.contains(&kind)
}

/// Whoever waits says once for what.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Kind>);

impl Patience {
    /// As [`Channel::wait_event`]; none as long as something is missing here.
    pub(crate) fn event(
        &mut self,
        who: &dyn Display,
        channel: &Channel,
        limit: Duration,
    ) -> Result<Option<Event>, Error> {
        match channel.wait_event(limit) {
            Err(lack) if passes(lack.kind()) => {
                self.say(who, &lack);
                std::thread::sleep(PAUSE.min(limit));
                Ok(None)
            }
            Ok(Some(event)) => {
                self.0 = None;
                Ok(Some(event))
            }
            other => other,
        }
    }

    /// Something waits for this to be over. That the other end takes nothing for a while is nothing to speak of.
    pub(crate) fn say(&mut self, who: &dyn Display, lack: &Error) {
        let kind = lack.kind();
        if kind != Kind::Full && self.0.replace(kind) != Some(kind) {
            tracing::warn!("{who}: {lack}; waiting until that is over");
        }
    }
}
