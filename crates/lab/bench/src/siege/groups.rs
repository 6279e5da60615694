//! How the scheduler shares the processors among users.
//!
//! On a real machine a user's programs share what one user gets (systemd: `user-UID.slice`), or each session has a share of its
//! own (autogroup), and the manager is a service with a group of its own. A bench that is started from one terminal is one
//! group: eight attackers have then eight times what the manager has.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use tranship_testkit::Cgroup;

/// The service as it is installed.
const UNIT: &str = include_str!("../../../../../dist/tranship.service");

/// The manager's weight in the unit file. Others have 100.
fn weight() -> Option<u64> {
    UNIT.lines()
        .find_map(|line| line.strip_prefix("CPUWeight=")?.parse().ok())
}

/// How processes are grouped for their shares of the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// A cgroup for each user, all with equal shares; the manager's as its unit file says.
    Users,
    /// Each process for itself: as bad as it gets where there are sessions only, as anybody may begin sessions.
    Sessions,
    /// All in one cgroup.
    Together,
    /// As this process was started.
    Found,
}

impl Grouping {
    /// As modes are called.
    pub fn besieged(self) -> &'static str {
        match self {
            Grouping::Users => "besieged",
            Grouping::Sessions => "besieged-sessions",
            Grouping::Together => "besieged-together",
            Grouping::Found => "besieged-as-found",
        }
    }
}

/// Groups for the processes of the manager's user and of others.
#[derive(Debug)]
pub struct Groups {
    users: Option<BTreeMap<u32, Cgroup>>,
    together: Option<Cgroup>,
}

impl Groups {
    /// Without those that cannot be made here, after saying so.
    pub fn new(manager: u32, others: [u32; 3]) -> Groups {
        let each = [manager].into_iter().chain(others).map(|uid| {
            let group = Cgroup::of_processors(&format!("user-{uid}"))?;
            Ok((uid, group))
        });
        let made = each.collect::<std::io::Result<BTreeMap<_, _>>>();
        let made = made.and_then(|users| {
            if let Some((manager, weight)) = users.get(&manager).zip(weight()) {
                manager.set_weight(weight)?;
            }
            Ok((users, Cgroup::of_processors("together")?))
        });
        let (users, together) = made
            .inspect_err(|why| eprintln!("SKIPPED: siege: groups of users: {why}"))
            .ok()
            .unzip();
        Groups { users, together }
    }

    /// Returns the groupings that exist here. The first is that of a real machine, as far as this machine has it.
    pub fn all(&self) -> Vec<Grouping> {
        let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        let autogroup = autogroup.is_ok_and(|on| on.trim() == "1");
        let all = [
            (Grouping::Users, self.users.is_some()),
            (Grouping::Sessions, autogroup),
            (Grouping::Together, self.together.is_some()),
        ];
        let mut all: Vec<_> = all.into_iter().filter(|(_, is)| *is).map(|g| g.0).collect();
        if all.is_empty() {
            all.push(Grouping::Found);
        }
        all
    }

    /// Moves all processes of all users, those too that begin meanwhile.
    pub fn arrange(&self, grouping: Grouping) -> Result<()> {
        let (Some(users), Some(together)) = (&self.users, &self.together) else {
            return Ok(());
        };
        let root = together.path().parent().context("no cgroup above")?;
        loop {
            let mut moved = 0;
            for (uid, own) in users {
                let group = match grouping {
                    Grouping::Users => own.path(),
                    Grouping::Together => together.path(),
                    Grouping::Sessions | Grouping::Found => root,
                };
                let procs = group.join("cgroup.procs");
                let inside = std::fs::read_to_string(&procs)?;
                let inside: BTreeSet<&str> = inside.lines().collect();
                let of_user = processes_of(*uid)?;
                for pid in of_user.iter().filter(|pid| !inside.contains(pid.as_str())) {
                    // A process that has ended cannot be moved.
                    moved += usize::from(std::fs::write(&procs, pid).is_ok());
                }
            }
            if moved == 0 {
                return Ok(());
            }
        }
    }
}

fn processes_of(uid: u32) -> Result<Vec<String>> {
    let all = std::fs::read_dir("/proc")?.flatten();
    // If a process is not dumpable, root owns its folder in /proc. Its `status` still names its user.
    let is_of = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()) == Some(uid)
    };
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let numbers = names.filter(|name| name.parse::<u32>().is_ok());
    Ok(numbers.filter(|pid| is_of(pid)).collect())
}
