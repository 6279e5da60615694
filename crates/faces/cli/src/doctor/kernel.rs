//! The kernel and its features: tried where trying is harmless, else known from the version.

use super::finding::Finding;
use super::proc;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError,
    Scope,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

/// Oldest kernel that the seals were tried on.
const OLDEST: Version = Version(6, 6);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version(u32, u32);

pub(super) fn look() -> Vec<Finding> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let version = parse(&release);
    let mut found = vec![release_finding(&release, version)];
    found.extend(seals());
    found.push(since(
        version,
        Version(5, 16),
        "futex_waitv",
        "a writer waits for its readers one at a time",
    ));
    found.push(since(
        version,
        Version(6, 5),
        "SO_PASSPIDFD",
        "the manager names processes by pid, which can be reused",
    ));
    found.push(since(
        version,
        Version(6, 16),
        "SO_PASSRIGHTS",
        "a peer can park descriptors in a socket until they are read and closed",
    ));
    found.push(landlock());
    found.push(Finding::expect(
        proc::text("/proc/sys/kernel/seccomp/actions_avail")
            .is_some_and(|list| list.contains("errno")),
        "seccomp filters",
        proc::text("/proc/sys/kernel/seccomp/actions_avail")
            .unwrap_or_else(|| "not built in".into()),
        "components cannot be locked down",
        "use a kernel with CONFIG_SECCOMP_FILTER",
    ));
    found
}

fn release_finding(release: &str, version: Option<Version>) -> Finding {
    if version >= Some(OLDEST) {
        Finding::ok("version", release)
    } else {
        let value = format!("{release}, older than {}.{}", OLDEST.0, OLDEST.1);
        Finding::missing(
            "version",
            value,
            "isolation was never tried on it",
            "use Linux 6.6 or newer",
        )
    }
}

/// Makes a sealed memfd as every shared page is made.
fn seals() -> Vec<Finding> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let plain = memfd_create("tranship-doctor", flags);
    let unexecutable = memfd_create(
        "tranship-doctor",
        MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL,
    );
    let sealed = plain.as_ref().map_err(|errno| *errno).and_then(|fd| {
        ftruncate(fd, 4096)?;
        fcntl_add_seals(
            fd,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL,
        )
    });
    let looked_at = plain.as_ref().map_err(|errno| *errno).and_then(|fd| {
        let beyond = tranship_sys::memfd::beyond(fd, 4096);
        beyond.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOSYS))
    });
    let judge = |name, error: Option<Errno>, cost| match error {
        None => Finding::ok(name, "works"),
        Some(error) => Finding::missing(
            name,
            error.to_string(),
            cost,
            "look for a security module or a seccomp filter that forbids it",
        ),
    };
    vec![
        judge(
            "MFD_NOEXEC_SEAL",
            unexecutable.err(),
            "shared memory could be made executable, and its seals forged",
        ),
        judge(
            "F_SEAL_FUTURE_WRITE",
            sealed.err(),
            "a reader could write into what it was shown",
        ),
        judge(
            "cachestat",
            looked_at.err(),
            "no memory that others show is accepted, so there are no channels",
        ),
    ]
}

fn since(version: Option<Version>, needed: Version, name: &'static str, cost: &str) -> Finding {
    let there = version >= Some(needed);
    let text = if there { "there" } else { "not there" };
    let value = format!("{text} (since Linux {}.{})", needed.0, needed.1);
    Finding::expect(there, name, value, cost, "use a newer kernel")
}

fn landlock() -> Finding {
    match [ABI::V6, ABI::V5, ABI::V4, ABI::V3, ABI::V2, ABI::V1]
        .into_iter()
        .find(|abi| makes_ruleset(*abi).is_ok())
    {
        Some(abi) => Finding::ok("Landlock", format!("version {} or newer", abi as i32)),
        None => Finding::weak(
            "Landlock",
            "not there",
            "a locked-down component is held by seccomp alone",
            "use a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its lsm= list",
        ),
    }
}

/// Makes a ruleset of everything that a version knows, and drops it: nothing is restricted.
fn makes_ruleset(abi: ABI) -> Result<(), RulesetError> {
    let all = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let mut all = all.handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V4 {
        all = all.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        all = all.scope(Scope::from_all(abi))?;
    }
    all.create().map(drop)
}

/// Returns the first two numbers of `6.18.44-distro`.
fn parse(release: &str) -> Option<Version> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(parse("6.18.44-fc-v1"), Some(Version(6, 18)));
        assert!(parse("6.18.0") > parse("6.6.1"));
        assert_eq!(parse("next"), None);
        assert_eq!(
            release_finding("5.15.1", parse("5.15.1")).state,
            State::Missing
        );
        assert_eq!(release_finding("6.6.0", parse("6.6.0")).state, State::Ok);
    }

    #[test]
    fn the_seals_work_on_the_machine_that_runs_the_tests() {
        assert!(
            seals().iter().all(|finding| finding.state == State::Ok),
            "{:?}",
            seals()
        );
    }
}
