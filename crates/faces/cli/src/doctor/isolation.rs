//! Isolation: checks that keep same-uid processes and strong capabilities away from a domain's memory.

use super::finding::Finding;
use super::proc;
use rustix::process::{DumpableBehavior, dumpable_behavior, getuid};

pub(super) fn look() -> Vec<Finding> {
    let status = proc::text("/proc/self/status").unwrap_or_default();
    vec![
        uid(),
        dumpable(),
        ptrace_scope(),
        capabilities(&status),
        sandbox(&status),
    ]
}

fn uid() -> Finding {
    let uid = getuid().as_raw();
    Finding::expect(
        uid != 0,
        "user id",
        if uid == 0 {
            "0 (root)".to_owned()
        } else {
            uid.to_string()
        },
        "with root's capabilities a domain is outside the threat model",
        "run domains under user ids of their own",
    )
}

/// Checks the default of a domain of this user: programs start dumpable.
fn dumpable() -> Finding {
    let name = "dumpable";
    match dumpable_behavior() {
        Ok(DumpableBehavior::NotDumpable) => Finding::ok(name, "no"),
        Ok(_) => Finding::weak(
            name,
            "yes, as every program at its start",
            "a process of the same user can open this one's memory through /proc or ptrace it",
            "run components under their own uids, or have the domain ask for PR_SET_DUMPABLE=0 (the manager always does)",
        ),
        Err(error) => Finding::weak(name, error.to_string(), "unknown", ""),
    }
}

fn ptrace_scope() -> Finding {
    let name = "yama ptrace_scope";
    let cost = "a process of the same user may attach to any other that is dumpable";
    let fix = "sysctl kernel.yama.ptrace_scope=1";
    match proc::number("/proc/sys/kernel/yama/ptrace_scope") {
        Some(0) => Finding::weak(name, "0", cost, fix),
        Some(scope) => Finding::ok(name, scope.to_string()),
        None => Finding::weak(
            name,
            "no Yama",
            cost,
            "use a kernel with CONFIG_SECURITY_YAMA",
        ),
    }
}

/// Capabilities that no isolation can keep out, by their number.
const OUTSIDE: &[(u32, &str)] = &[
    (7, "SETUID"),
    (16, "SYS_MODULE"),
    (17, "SYS_RAWIO"),
    (19, "SYS_PTRACE"),
    (21, "SYS_ADMIN"),
    (39, "BPF"),
];

fn capabilities(status: &str) -> Finding {
    let name = "capabilities";
    let Some(mask) =
        proc::field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok())
    else {
        return Finding::weak(name, "not readable", "unknown", "");
    };
    let held: Vec<&str> = OUTSIDE
        .iter()
        .filter(|(bit, _)| mask >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    if held.is_empty() {
        Finding::ok(name, "none that is outside the threat model")
    } else {
        Finding::weak(
            name,
            held.join(" "),
            "a process that has one of these can read and write any other process: outside the threat model",
            "drop them (setpriv --bounding-set, CapabilityBoundingSet=, or another user)",
        )
    }
}

fn sandbox(status: &str) -> Finding {
    let field = |key| proc::field(status, key).unwrap_or("?");
    let seccomp = match field("Seccomp") {
        "0" => "none",
        "1" => "strict",
        "2" => "filter",
        other => other,
    };
    Finding::ok(
        "this process's sandbox",
        format!("seccomp {seccomp}, no_new_privs {}", field("NoNewPrivs")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn capabilities_are_named() {
        let ptrace = capabilities("CapEff:\t0000000000080000\n");
        assert_eq!(
            (ptrace.state, ptrace.value.as_str()),
            (State::Weak, "SYS_PTRACE")
        );
        // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER: inside the threat model.
        assert_eq!(capabilities("CapEff:\t000000000000000f\n").state, State::Ok);
    }
}
