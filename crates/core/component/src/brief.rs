//! The supervisor's brief for a component.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tranship_core::{ChannelOptions, Error, ErrorKind, Trust, WhenFull};

/// Variable of the environment that has a [`Brief`] as JSON.
pub const VARIABLE: &str = "TRANSHIP_COMPONENT";

/// A component's name, and its ends by the names that it uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Brief {
    /// Name of the component.
    pub name: String,
    /// Number of this process among the component's replicas, from 0.
    #[serde(default)]
    pub replica: u32,
    /// Whether [`Component::ready`](crate::Component::ready) locks the process down.
    #[serde(default)]
    pub locks: bool,
    /// The ends.
    pub ends: BTreeMap<String, End>,
}

/// One end, as the program's file describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The component's part at this end.
    pub part: Part,
    /// Name of the channel, topic, queue or service.
    pub name: String,
    /// Largest size of the pool behind it, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<u64>,
    /// Name of the pool's trust level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Messages that may be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Action of a sender while no receiver is there.
    #[serde(default)]
    pub when_down: WhenDown,
    /// Whether a full channel drops new messages.
    #[serde(default)]
    pub drops: bool,
    /// Whether the component at the other end is started again.
    #[serde(default)]
    pub peer: Returns,
}

/// Part of a component at an end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Sends over a channel.
    Send,
    /// Receives from a channel.
    Receive,
    /// Publishes a topic.
    Publish,
    /// Subscribes to a topic.
    Subscribe,
    /// Produces items of a queue.
    Produce,
    /// Consumes items of a queue.
    Consume,
    /// Serves a service.
    Serve,
    /// Calls a service.
    Call,
}

/// Action of a sender while no receiver is there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// The sender waits for the next receiver.
    #[default]
    Wait,
    /// The sender drops the message.
    Drop,
    /// The send fails.
    Fail,
}

/// When a component is started again after its end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returns {
    /// Never.
    Never,
    /// After a failure: a signal, or an exit code other than 0.
    #[default]
    OnFailure,
    /// After every end.
    Always,
}

impl Brief {
    /// Reads the brief of this process from its environment.
    ///
    /// # Errors
    /// `BadArgument` if the variable is not set, or has another form.
    pub fn from_environment() -> Result<Brief, Error> {
        let text = tranship_sys::process::trusted_env(VARIABLE).ok_or_else(|| {
            let text = format!("{VARIABLE} is not set: `tranship run FILE.toml` starts components");
            Error::new(ErrorKind::BadArgument, text)
        })?;
        let read = serde_json::from_slice(text.as_encoded_bytes());
        let what = format!("{VARIABLE} has not the form that `tranship run` writes");
        read.map_err(|why| Error::because(ErrorKind::BadArgument, what, why))
    }

    /// Returns an end by its name, if the component does this there.
    ///
    /// # Errors
    /// `BadArgument` for an unknown name, and for another part.
    pub fn end(&self, name: &str, part: Part) -> Result<&End, Error> {
        let wrong = |text| Err(Error::new(ErrorKind::BadArgument, text));
        match self.ends.get(name) {
            Some(end) if end.part == part => Ok(end),
            Some(end) => wrong(format!(
                "component `{}` asked to {} at `{name}`, the program's file says that it should {}",
                self.name,
                part.verb(),
                end.part.verb()
            )),
            None => {
                let known: Vec<_> = self.ends.keys().map(String::as_str).collect();
                wrong(format!(
                    "component `{}` has no end `{name}` in the program's file; it has: {}",
                    self.name,
                    known.join(", ")
                ))
            }
        }
    }
}

impl Part {
    /// Returns the verb.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Part::Send => "send",
            Part::Receive => "receive",
            Part::Publish => "publish",
            Part::Subscribe => "subscribe",
            Part::Produce => "produce",
            Part::Consume => "consume",
            Part::Serve => "serve",
            Part::Call => "call",
        }
    }
}

impl End {
    /// Returns the options of a channel's sending end.
    pub(crate) fn channel(&self) -> ChannelOptions {
        let mut options = ChannelOptions::new();
        if self.drops {
            options = options.when_full(WhenFull::DropNew);
        }
        match self.depth {
            Some(lines) => options.lines(lines),
            None => options,
        }
    }

    pub(crate) fn trust(&self) -> Result<Option<Trust>, Error> {
        let Some(name) = &self.trust else {
            return Ok(None);
        };
        Ok(Some(match name.as_str() {
            "none" => Trust::None,
            "producer" => Trust::Producer,
            "half" => Trust::Half,
            "full" => Trust::Full,
            _ => {
                let text = format!("trust is {name:?}: none, producer, half or full");
                return Err(Error::new(ErrorKind::BadArgument, text));
            }
        }))
    }
}
