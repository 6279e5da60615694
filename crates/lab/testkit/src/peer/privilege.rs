//! User and privileges of a child.

use crate::is_root;

/// Privileges of a child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Privilege {
    /// The privileges of the test.
    #[default]
    Inherit,
    /// Another user, no groups, no capabilities.
    User { uid: u32, gid: u32 },
    /// Root, with these capabilities and never any other.
    Root { capabilities: Vec<u32> },
}

/// Returns a user that has only the processes that this one starts: number `which` (below 16) of its own. The kernel
/// counts processes, and descriptors on their way, for each user.
#[must_use]
pub fn own_user(which: u32) -> u32 {
    100_000 + std::process::id() % 1_000_000 * 16 + which % 16
}

const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;

impl Privilege {
    /// Returns the user nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self::User {
            uid: 65534,
            gid: 65534,
        }
    }

    /// Returns the strongest adversary of the threat model: root with CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH and
    /// FOWNER only.
    #[must_use]
    pub fn root_of_files() -> Self {
        Self::Root {
            capabilities: vec![CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER],
        }
    }

    /// Returns why it is impossible here, if it is.
    #[must_use]
    pub fn impossible(&self) -> Option<String> {
        match self {
            Self::Inherit => None,
            Self::User { uid, .. } if *uid == rustix::process::geteuid().as_raw() => None,
            _ if is_root() => None,
            other => Some(format!("{other:?} needs root to start it")),
        }
    }
}
