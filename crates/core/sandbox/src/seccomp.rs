//! The system calls that a domain makes: reading and writing open descriptors (messages of the manager bring new
//! chunks), mapping memory that is not executable, making memfds for its own counters, futexes. Any other fails with
//! EPERM.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use tranship_error::{Error, ErrorKind};

/// The call that says whether a peer's memory has all of its pages; its number is equal on every architecture.
const CACHESTAT: c_long = 451;

/// System calls that are allowed with any arguments.
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
    libc::SYS_geteuid,
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

/// Makes two filters. If both filters refuse a call, the kernel uses the answer of the filter that was installed last.
/// A refusal takes precedence over a permission.
pub(crate) fn filters(reconnects: bool, also: &[i64]) -> Result<[BpfProgram; 2], Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED
        .iter()
        .chain(ALSO)
        .chain(also)
        .map(|call| (*call, Vec::new()))
        .collect();
    let exec = libc::PROT_EXEC.unsigned_abs().into();
    rules.insert(libc::SYS_mmap, vec![bits(2, exec, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![bits(2, exec, 0)?]);
    let threads = libc::CLONE_THREAD.unsigned_abs().into();
    rules.insert(libc::SYS_clone, vec![bits(0, threads, threads)?]);
    // The process may only read its own limits.
    rules.insert(libc::SYS_prlimit64, vec![bits(2, u64::MAX, 0)?]);
    // The ends of a channel that is being opened. An end of a pair of datagram sockets could send to any other socket.
    let kind = libc::SOCK_SEQPACKET.unsigned_abs().into();
    rules.insert(libc::SYS_socketpair, vec![bits(1, 0xf, kind)?]);
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
    if reconnects {
        let unix = libc::AF_UNIX.unsigned_abs().into();
        rules.insert(libc::SYS_socket, vec![bits(0, u64::MAX, unix)?]);
        rules.insert(libc::SYS_connect, Vec::new());
    }
    let refuse = SeccompAction::Errno(errno(libc::EPERM));
    Ok([
        without_clone3()?,
        compile(rules, refuse, SeccompAction::Allow)?,
    ])
}

/// System calls that a confined program is refused: they reach other processes, the kernel's settings, or namespaces.
const REFUSED: &[c_long] = &[
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // namespaces and mounts
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // paths around Landlock, and work of the kernel that seccomp does not see
    libc::SYS_open_by_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // the kernel
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
];

/// Makes the filters of a confined program. Without `network` it gets only Unix sockets.
pub(crate) fn refusing(network: bool) -> Result<[BpfProgram; 2], Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    // Any of the flags: a rule for each.
    let each = (0..u32::BITS).map(|bit| 1u64 << bit);
    let flags = each.filter(|flag| flag & u64::from(namespaces.cast_unsigned()) != 0);
    let flags: Result<Vec<_>, _> = flags.map(|flag| bits(0, flag, flag)).collect();
    rules.insert(libc::SYS_clone, flags?);
    if !network {
        let unix = libc::AF_UNIX.unsigned_abs().into();
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix);
        let other = other.and_then(|condition| SeccompRule::new(vec![condition]));
        let other =
            other.map_err(|why| Error::because(ErrorKind::System, "making a seccomp rule", why))?;
        rules.insert(libc::SYS_socket, vec![other]);
    }
    let refuse = SeccompAction::Errno(errno(libc::EPERM));
    Ok([
        without_clone3()?,
        compile(rules, SeccompAction::Allow, refuse)?,
    ])
}

/// Makes the filter that hides clone3(2), whose flags no filter can see: the C library then takes clone(2).
fn without_clone3() -> Result<BpfProgram, Error> {
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let hidden = SeccompAction::Errno(errno(libc::ENOSYS));
    compile(clone3, SeccompAction::Allow, hidden)
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, Error> {
    let failed = |cause| Error::because(ErrorKind::System, "making a seccomp filter", cause);
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    let filter = SeccompFilter::new(rules, otherwise, matching, arch).map_err(failed)?;
    filter.try_into().map_err(failed)
}

/// Makes a rule: the masked bits of an argument have this value.
fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, Error> {
    let op = SeccompCmpOp::MaskedEq(mask);
    let rule = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value)
        .and_then(|condition| SeccompRule::new(vec![condition]));
    rule.map_err(|cause| Error::because(ErrorKind::System, "making a seccomp rule", cause))
}

const fn errno(number: i32) -> u32 {
    number.unsigned_abs()
}

/// Installs a filter for all threads of this process.
pub(crate) fn install(filter: &BpfProgram) -> Result<(), Error> {
    let installed = seccompiler::apply_filter_all_threads(filter);
    installed
        .map_err(|cause| Error::because(ErrorKind::System, "installing a seccomp filter", cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile_and_further_calls_make_them_longer() {
        let [clone3, calls] = filters(false, &[]).expect("filters");
        assert!(!clone3.is_empty() && calls.len() > ALLOWED.len());
        let [_, more] = filters(false, &[libc::SYS_openat]).expect("filters");
        assert!(more.len() > calls.len());
    }
}
