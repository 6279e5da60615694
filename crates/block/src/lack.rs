//! What this process lacks for the moment (memory, descriptors, its quota) it waits for. Nothing is lost by that: what
//! came is taken later, and what goes is sent later.

use std::fmt::Display;
use std::time::Duration;
use tranship_bulk::{Channel, Code, Event};

/// Between two looks whether it is over.
const PAUSE: Duration = Duration::from_millis(20);

/// May it be over by itself?
pub(crate) fn passes(code: Code) -> bool {
    let lacks = [Code::Memory, Code::Quota, Code::Limit, Code::System];
    code == Code::Full || lacks.contains(&code)
}

/// Whoever waits says once for what.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Code>);

impl Patience {
    /// As [`Channel::wait_event`]; none as long as something is missing here.
    pub(crate) fn event(
        &mut self,
        who: &dyn Display,
        channel: &Channel,
        limit: Duration,
    ) -> Result<Option<Event>, Code> {
        match channel.wait_event(limit) {
            Err(code) if passes(code) => {
                self.say(who, code);
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
    pub(crate) fn say(&mut self, who: &dyn Display, code: Code) {
        if code != Code::Full && self.0.replace(code) != Some(code) {
            tracing::warn!("{who}: {code}; waiting until that is over");
        }
    }
}
