//! The lock-down of a consumer: it keeps the descriptors that it has, and gets no new ones by any name.
//!
//! What stays allowed is what receiving needs: reading and writing open descriptors (messages of the manager
//! bring new chunks), mapping memory that is not executable, making memfds for its own counters, futexes.

use anyhow::{Context, Result};
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
use libc::c_long;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

/// What holds a consumer, and what it found when it tried to get out.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Landlock is in force (seccomp always is).
    pub landlock: bool,
    /// What was tried after the lock-down and succeeded; nothing, if all is well.
    pub escaped: Vec<String>,
}

/// Locks this process down for good and then tries to get out.
///
/// Traceable: others of its user may still look into it, to count its system calls.
pub(crate) fn lock_down(traceable: bool) -> Result<Confinement> {
    if !traceable {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).context("PR_SET_DUMPABLE")?;
    }
    rustix::thread::set_no_new_privs(true).context("PR_SET_NO_NEW_PRIVS")?;
    let landlock = landlock()?;
    for filter in filters()? {
        seccompiler::apply_filter_all_threads(&filter).context("installing a seccomp filter")?;
    }
    Ok(Confinement {
        landlock,
        escaped: try_to_escape(),
    })
}

/// No file, no port, no abstract socket, no signal to outside; false where the kernel has no Landlock.
fn landlock() -> Result<bool> {
    let abi = ABI::V6;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    let status = rules.create()?.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Whether memory that is shown has all of its pages; the same number on every architecture.
const CACHESTAT: c_long = 451;

/// Allowed whatever the arguments.
const ALLOWED: &[c_long] = &[
    // open descriptors
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    CACHESTAT,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    // its own counters
    libc::SYS_memfd_create,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fchmod,
    // memory
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // waiting and time
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_restart_syscall,
    // threads and the end
    libc::SYS_clone3, // the other filter turns it into ENOSYS, and the C library takes clone
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older names that only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALSO: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const ALSO: &[c_long] = &[];

/// Two filters; of two refusals the kernel takes that of the one installed last, and any refusal beats consent.
fn filters() -> Result<[BpfProgram; 2]> {
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let clone3 = compile(
        clone3,
        SeccompAction::Allow,
        SeccompAction::Errno(errno(libc::ENOSYS)),
    )?;

    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED
        .iter()
        .chain(ALSO)
        .map(|call| (*call, Vec::new()))
        .collect();
    let exec = libc::PROT_EXEC.unsigned_abs().into();
    rules.insert(libc::SYS_mmap, vec![bits(2, exec, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![bits(2, exec, 0)?]);
    let threads = libc::CLONE_THREAD.unsigned_abs().into();
    rules.insert(libc::SYS_clone, vec![bits(0, threads, threads)?]);
    // Its own limits, to look at only.
    rules.insert(libc::SYS_prlimit64, vec![bits(2, u64::MAX, 0)?]);
    let at_empty_path = libc::AT_EMPTY_PATH.unsigned_abs().into();
    rules.insert(
        libc::SYS_newfstatat,
        vec![bits(3, at_empty_path, at_empty_path)?],
    );
    rules.insert(
        libc::SYS_statx,
        vec![bits(2, at_empty_path, at_empty_path)?],
    );
    let names = [libc::PR_SET_NAME, libc::PR_SET_VMA].map(|option| option.unsigned_abs().into());
    rules.insert(
        libc::SYS_prctl,
        vec![bits(0, u64::MAX, names[0])?, bits(0, u64::MAX, names[1])?],
    );
    let refuse = SeccompAction::Errno(errno(libc::EPERM));
    Ok([clone3, compile(rules, refuse, SeccompAction::Allow)?])
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram> {
    let arch = std::env::consts::ARCH
        .try_into()
        .context("a processor that seccompiler knows")?;
    let filter =
        SeccompFilter::new(rules, otherwise, matching, arch).context("making a seccomp filter")?;
    filter.try_into().context("compiling a seccomp filter")
}

/// The masked bits of an argument have this value.
fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompRule> {
    let op = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

const fn errno(number: i32) -> u32 {
    number.unsigned_abs()
}

/// Something that a locked-down process must not be able to do, and whether it could.
type Attempt = (&'static str, fn() -> bool);

/// Everything that must fail now; names of what did not.
fn try_to_escape() -> Vec<String> {
    let attempts: [Attempt; 5] = [
        ("open a file", || std::fs::File::open("/etc/passwd").is_ok()),
        ("create a file", || {
            std::fs::File::create(escape_path()).is_ok()
        }),
        ("open a network socket", || {
            UdpSocket::bind("127.0.0.1:0").is_ok()
        }),
        ("open a Unix socket", || UnixStream::pair().is_ok()),
        ("start a program", || {
            std::process::Command::new("/bin/true").spawn().is_ok()
        }),
    ];
    attempts
        .iter()
        .filter(|(_, attempt)| attempt())
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

fn escape_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tranship-escaped-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile() {
        let [clone3, calls] = filters().expect("filters");
        assert!(!clone3.is_empty() && calls.len() > ALLOWED.len());
    }

    #[test]
    fn without_a_lock_down_the_attempts_succeed() {
        // So that an empty list after a lock-down means something.
        let escaped = try_to_escape();
        let _ = std::fs::remove_file(escape_path());
        assert_eq!(escaped.len(), 5, "{escaped:?}");
    }
}
