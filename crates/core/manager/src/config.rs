//! The configuration: TOML, unknown keys are errors that name the line.

mod access;
mod hogs;
mod observe;
mod pools;
mod pressure;
mod units;

pub use access::{Given, Reserved, Rule, Who};
pub use hogs::HogRule;
pub use observe::Observe;
pub use pools::PoolRule;
pub use pressure::PressureConfig;
use serde::Deserialize;
use std::time::Duration;
use tranship_proto::{AccessRule, Refusal, RefusalCode};
use units::{duration, opt_duration, opt_memory, opt_mode, pools_per_domain};

/// Errors of a configuration file that cannot be used.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not have the form of a configuration.
    #[error("line {line}: {message}")]
    Parse {
        /// 1-based line.
        line: usize,
        /// The error in that line.
        message: String,
    },
}

/// The domains that may forward pools of other writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// Every domain that reads a pool.
    Readers,
    /// Only domains to which the writer granted the right.
    #[default]
    Granted,
}

/// Limits per uid. The number in brackets is the most that one domain may have of it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections, and domains that are kept without a connection.
    pub connections: u32,
    /// Pools.
    pub pools: u32,
    /// Channel ends.
    pub channels: u32,
    /// Exported names and waiting connects.
    pub names: u32,
    /// Descriptors held for the uid.
    pub descriptors: u32,
    /// Entries of the manager's tables that need no descriptor: chunks that readers were shown, claims, rights.
    pub records: u32,
    /// Memory. By default three quarters of the memory that other users leave, and all of it for the manager's own
    /// user.
    #[serde(deserialize_with = "opt_memory")]
    pub memory: Option<u64>,
    /// Memory of one domain; by default as much as its user's.
    #[serde(deserialize_with = "opt_memory")]
    pub domain_memory: Option<u64>,
}

/// The most memory of the manager's process that a descriptor may cost, with the queues and tables behind it; and a
/// record of its tables.
const DESCRIPTOR_BYTES: u64 = 16 << 10;
const RECORD_BYTES: u64 = 256;

impl Limits {
    /// Returns the most memory that the manager's own process may need for one user. Granted memory is not included: it
    /// belongs to the manager's clients.
    pub fn own_bytes(&self) -> u64 {
        u64::from(self.descriptors) * DESCRIPTOR_BYTES + u64::from(self.records) * RECORD_BYTES
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            pools: 4096,
            channels: 16384,
            names: 4096,
            descriptors: 65536,
            records: 1 << 20,
            memory: None,
            domain_memory: None,
        }
    }
}

/// The manager's configuration.
///
/// ```
/// # mod tranship { pub use tranship_manager as manager; }
/// use tranship::manager::Config;
///
/// let config = Config::parse("total = \"1GiB\"")?;
/// assert_eq!(config.total, Some(1 << 30));
/// # Ok::<(), tranship_manager::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Memory that may be granted in all; by default half of the machine's or the cgroup's.
    #[serde(deserialize_with = "opt_memory")]
    pub total: Option<u64>,
    /// A new pool's quota; by default its maximum.
    #[serde(deserialize_with = "opt_memory")]
    pub default_quota: Option<u64>,
    /// Most pools that one domain may write at a time (entries of its control page).
    #[serde(deserialize_with = "pools_per_domain")]
    pub pools_per_domain: u32,
    /// The domains that may forward pools of other writers.
    pub forward: Forward,
    /// Leave when there was no client for this long.
    #[serde(deserialize_with = "opt_duration")]
    pub idle_exit: Option<Duration>,
    /// Time between two looks at orphaned pools.
    #[serde(deserialize_with = "duration")]
    pub orphan_interval: Duration,
    /// The time after its start for which a manager waits for earlier domains, before it counts them as gone.
    #[serde(deserialize_with = "duration")]
    pub grace: Duration,
    /// The longest turn of the loop before the manager reports its position and ends itself.
    #[serde(deserialize_with = "duration")]
    pub watchdog: Duration,
    /// The policy that divides memory among pools; "static": quotas stay as they are.
    #[serde(deserialize_with = "pools::policy")]
    pub policy: String,
    /// The policy's period.
    #[serde(deserialize_with = "pools::period")]
    pub policy_period: Duration,
    /// The time for which another domain may hold a buffer before it is charged to that domain.
    #[serde(deserialize_with = "duration")]
    pub linger: Duration,
    /// How much may be charged to a domain in this way, and the action when it is more: the first rule that matches.
    pub hog: Vec<HogRule>,
    /// A policy's rules for pools, by their names: the first rule that matches.
    pub pool: Vec<PoolRule>,
    /// The users, besides root and the manager's own, whose policy may set quotas; none if empty. These rules have no
    /// names.
    #[serde(deserialize_with = "access::nameless")]
    pub policy_run: Vec<Rule>,
    /// The signs of a memory shortage outside of the manager.
    pub pressure: PressureConfig,
    /// Permission bits of the socket file.
    #[serde(deserialize_with = "opt_mode")]
    pub socket_mode: Option<u32>,
    /// Limits per uid.
    pub limits: Limits,
    /// The users that may observe.
    pub observe: Observe,
    /// The users that may connect; all if empty. These rules have no names.
    #[serde(deserialize_with = "access::nameless")]
    pub connect: Vec<Rule>,
    /// The users that may export names, and which; every user every name if empty.
    pub export: Vec<Rule>,
    /// The users that may bind (connect to) names, and which; every user every name if empty.
    pub bind: Vec<Rule>,
    /// Names that only their owner may export.
    pub reserved: Vec<Reserved>,
    /// The only names that there are, and the keys that open them. `None`: names need no key. `tranship run` writes it.
    pub given: Option<Vec<Given>>,
    /// With `given`: the key of the domains that may set quotas, and trace pools of others.
    pub operator_key: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            total: None,
            default_quota: None,
            pools_per_domain: 256,
            forward: Forward::default(),
            idle_exit: None,
            orphan_interval: Duration::from_millis(250),
            grace: Duration::from_secs(2),
            watchdog: Duration::from_secs(30),
            policy: pools::STATIC.to_owned(),
            policy_period: Duration::from_millis(250),
            linger: Duration::from_secs(1),
            hog: vec![HogRule::usual()],
            pool: Vec::new(),
            policy_run: Vec::new(),
            pressure: PressureConfig::default(),
            socket_mode: None,
            limits: Limits::default(),
            observe: Observe::default(),
            connect: Vec::new(),
            export: Vec::new(),
            bind: Vec::new(),
            reserved: Vec::new(),
            given: None,
            operator_key: None,
        }
    }
}

impl Config {
    /// Parses a configuration.
    ///
    /// # Errors
    /// The first error, with its line: an unknown key, a value outside its range, rules that contradict each other.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        toml::from_str(text).map_err(|e| ConfigError::Parse {
            line: e.span().map_or(1, |s| {
                1 + text[..s.start.min(text.len())].matches('\n').count()
            }),
            message: e.message().to_owned(),
        })
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// Those of [`parse`](Config::parse), and a file that cannot be read.
    pub fn load(path: &std::path::Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Config::parse(&text)
    }

    /// Says whether quotas change without a request.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.policy != pools::STATIC
    }

    /// Returns the policy's rule for a pool.
    pub(crate) fn rule_of(&self, name: &str) -> tranship_policy::Rule {
        let rule = self
            .pool
            .iter()
            .find(|r| access::name_matches(&r.name, name));
        rule.map_or_else(tranship_policy::Rule::default, PoolRule::rule)
    }

    /// Returns the rule about the memory of others that a domain may hold.
    pub(crate) fn hog_rule(&self, name: &str, uid: u32) -> Option<&HogRule> {
        self.hog.iter().find(|r| r.matches(name, uid))
    }

    /// Says whether a rule may make the manager kill a process.
    pub fn kills(&self) -> bool {
        let kills = |r: &HogRule| r.action == tranship_proto::HogAction::Kill;
        self.hog.iter().any(kills)
    }

    /// Says whether a user may connect at all.
    pub(crate) fn may_connect(&self, uid: u32, gid: u32) -> bool {
        access::allowed(&self.connect, uid, gid, None)
    }

    /// Says whether a user's policy may set quotas.
    pub(crate) fn may_steer(&self, uid: u32, gid: u32) -> bool {
        !self.policy_run.is_empty() && access::allowed(&self.policy_run, uid, gid, None)
    }

    /// Returns the rule that forbids a user to export a name, if there is one.
    pub(crate) fn bars_export(&self, uid: u32, gid: u32, name: &str) -> Option<AccessRule> {
        let reserved = self
            .reserved
            .iter()
            .find(|r| access::name_matches(&r.name, name));
        match reserved {
            Some(r) => (r.uid != uid).then_some(AccessRule::Reserved),
            None => {
                let allowed = access::allowed(&self.export, uid, gid, Some(name));
                (!allowed).then_some(AccessRule::Export)
            }
        }
    }

    /// Returns the refusal of a name that a domain's key does not open, if there is one.
    pub(crate) fn bars_key(&self, key: Option<&str>, name: &str, exports: bool) -> Option<Refusal> {
        let rule = self.given.as_ref()?.iter().find(|rule| rule.is_of(name));
        let (line, why) = match rule {
            Some(rule) if rule.opens(key, exports) => return None,
            Some(rule) => (rule.line, AccessRule::Given),
            None => (0, AccessRule::Ungiven),
        };
        Some(Refusal {
            code: RefusalCode::Access,
            asked: line.into(),
            available: why as u64,
        })
    }

    /// Says whether a domain with this key may do what its user may, besides using names.
    pub(crate) fn lets_operate(&self, key: Option<&str>) -> bool {
        self.given.is_none() || (key.is_some() && key == self.operator_key.as_deref())
    }

    /// Says whether a user may connect to a name.
    pub(crate) fn may_bind(&self, uid: u32, gid: u32, name: &str) -> bool {
        access::allowed(&self.bind, uid, gid, Some(name))
    }
}

#[cfg(test)]
mod tests;
