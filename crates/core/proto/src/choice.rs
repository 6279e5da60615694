//! Words for states of the manager and of its domains.

use serde::{Deserialize, Serialize};

/// Kind under which a name is offered, or asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// A channel: each message to its one receiver.
    #[default]
    Channel,
    /// A topic: each message to all subscribers.
    Topic,
    /// A queue: each message to one consumer.
    Queue,
}

impl NameKind {
    /// All, by their numbers.
    pub const ALL: [NameKind; 3] = [NameKind::Channel, NameKind::Topic, NameKind::Queue];

    /// Returns the word for the kind.
    pub fn name(self) -> &'static str {
        match self {
            NameKind::Channel => "channel",
            NameKind::Topic => "topic",
            NameKind::Queue => "queue",
        }
    }

    /// Returns the kind of a ring that several domains may read.
    pub fn of_ring(queue: bool) -> NameKind {
        match queue {
            true => NameKind::Queue,
            false => NameKind::Topic,
        }
    }
}

/// The memory shortage outside of the manager, on the machine or in a cgroup.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// The state is not known.
    #[default]
    Unwatched,
    /// Memory is not short.
    None,
    /// Some tasks wait for memory: idle memory is requested.
    Some,
    /// All tasks wait for memory, or a limit is near: no pool grows.
    Full,
}

impl Pressure {
    /// All, by their numbers.
    pub const ALL: [Pressure; 4] = [
        Pressure::Unwatched,
        Pressure::None,
        Pressure::Some,
        Pressure::Full,
    ];

    /// Returns the word for the state.
    pub fn name(self) -> &'static str {
        match self {
            Pressure::Unwatched => "unwatched",
            Pressure::None => "none",
            Pressure::Some => "some",
            Pressure::Full => "full",
        }
    }
}

/// The action against a domain that holds too much memory of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HogAction {
    /// The manager reports it and does nothing else.
    #[default]
    Report,
    /// The domain is granted memory rarely, and no more than it needs.
    Throttle,
    /// The manager ends the domain's membership.
    Disconnect,
    /// The manager kills its process.
    Kill,
}

impl HogAction {
    /// Returns the word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            HogAction::Report => "report",
            HogAction::Throttle => "throttle",
            HogAction::Disconnect => "disconnect",
            HogAction::Kill => "kill",
        }
    }
}

impl std::fmt::Display for HogAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
