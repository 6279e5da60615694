//! The policies, a file each.

mod fixed;
mod priority;
mod qos;
mod throughput;

use crate::config::Config;
use crate::policy::Policy;

/// An available policy.
#[derive(Debug)]
pub struct Entry {
    /// The policy's name in configurations.
    pub name: &'static str,
    /// A sentence that describes the policy.
    pub about: &'static str,
    /// A fresh one.
    pub make: fn(&Config) -> Box<dyn Policy>,
}

/// All of them.
pub const POLICIES: &[Entry] = &[
    Entry {
        name: "static",
        about: "quotas stay as they are; the baseline",
        make: |_| Box::new(fixed::Static),
    },
    Entry {
        name: "throughput",
        about: "least time spent waiting and collecting in all; where memory is short, up to one level by weight",
        make: |config| Box::new(throughput::Throughput::new(config)),
    },
    Entry {
        name: "priority",
        about: "the same, but the needs of higher priorities come first",
        make: |config| Box::new(priority::Priority::new(config)),
    },
    Entry {
        name: "qos",
        about: "pools with a target wait for the share of time that it says; the others have the rest",
        make: |config| Box::new(qos::Qos::new(config)),
    },
];

/// There is no policy of that name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no policy {name:?}; the policies are {}", known())]
pub struct UnknownPolicy {
    /// The requested name.
    pub name: String,
}

fn known() -> String {
    let names: Vec<_> = POLICIES.iter().map(|p| format!("{:?}", p.name)).collect();
    names.join(", ")
}

/// Finds the policy of a name.
///
/// # Errors
/// A name that no policy has; the error lists the existing names.
pub fn find(name: &str) -> Result<&'static Entry, UnknownPolicy> {
    let found = POLICIES.iter().find(|p| p.name == name);
    found.ok_or_else(|| UnknownPolicy {
        name: name.to_owned(),
    })
}
