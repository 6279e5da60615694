//! Limits that a large system runs into.

use super::finding::Finding;
use super::proc;
use rustix::process::{Resource, getrlimit};

pub(super) fn look() -> Vec<Finding> {
    vec![open_files(), mappings(), pids(), locked()]
}

/// Checks the limit of open files. Every chunk and every set of counters is a descriptor of its writer; the library
/// moves them above 1023.
fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let show = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let value = format!("{} soft, {} hard", show(limit.current), show(limit.maximum));
    let enough = limit.maximum.is_none_or(|hard| hard >= 65_536);
    Finding::expect(
        enough,
        "open files",
        value,
        "large pools with small chunks run out of descriptors",
        "raise the hard limit to 65536 or more (LimitNOFILE= in a systemd unit); the soft one is raised by itself",
    )
}

fn mappings() -> Finding {
    let name = "vm.max_map_count";
    let Some(count) = proc::number("/proc/sys/vm/max_map_count") else {
        return Finding::weak(name, "not readable", "unknown", "");
    };
    Finding::expect(
        count >= 65_530,
        name,
        count.to_string(),
        "every chunk is a mapping: with 64 KiB chunks 65530 of them are 4 GiB",
        "sysctl vm.max_map_count=262144, or larger chunks",
    )
}

fn pids() -> Finding {
    let count = proc::number("/proc/sys/kernel/pid_max");
    let value = count.map_or_else(|| "not readable".to_owned(), |count| count.to_string());
    Finding::expect(
        count.is_some_and(|count| count >= 32_768),
        "kernel.pid_max",
        value,
        "few processes can run; pids are reused soon (tranship itself goes by pidfd)",
        "sysctl kernel.pid_max=4194304",
    )
}

fn locked() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let value = limit.map_or_else(
        || "unlimited".to_owned(),
        |bytes| format!("{} KiB", bytes / 1024),
    );
    Finding::ok("locked memory", format!("{value} (tranship locks none)"))
}
