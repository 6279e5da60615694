//! The rights that the daemon and its helpers give up before they read from the first client: capabilities, resources,
//! and all system calls that they do not make.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;
use tranship_error::Error;
use tranship_sys::{confine, process};

/// Most memory of the manager, or of one helper: far more than its tables can need (`docs/threat-model.md`).
const MOST_MEMORY: u64 = 8 << 30;

/// Confines this thread and all later ones; the system call filter covers existing threads too. It cannot be undone.
/// `kills`: a rule allows the manager to kill another process.
pub(super) fn confine(kills: bool) -> Result<(), Error> {
    let at = |what: &'static str| tranship_error::system(what);
    // Afterwards limits are only looked at.
    let _ = process::raise_nofile_soft_to_hard();
    confine::drop_capabilities(kills).map_err(at("dropping capabilities"))?;
    confine::limit_memory(MOST_MEMORY).map_err(at("limiting memory"))?;
    confine::no_locked_memory_queues_or_cores().map_err(at("limiting resources"))?;
    for filter in filters(kills).map_err(at("making a seccomp filter"))? {
        let installed = seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other);
        installed.map_err(at("installing a seccomp filter"))?;
    }
    Ok(())
}

/// The call's number, which is equal on every architecture.
const CACHESTAT: c_long = 451;

/// The kernel's auxiliary vector of this process, which an undumpable process cannot read in /proc.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;

/// Makes a list of the kernel's calls. In braces it is not spread over a line for each.
macro_rules! calls {
    ($($name:ident,)+) => { &[$(libc::$name),+] };
}

/// System calls that are allowed with any arguments, besides `CACHESTAT`. `clone3`: the other filter turns it into `ENOSYS`,
/// and the C library takes `clone`. `epoll_pwait2` is taken for deadlines that are weeks away.
const ALLOWED: &[c_long] = calls! {
    // open descriptors
    SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_pread64, SYS_lseek, SYS_close, SYS_close_range, SYS_dup,
    SYS_dup3, SYS_fcntl, SYS_fstat, SYS_fstatfs,
    // existing sockets, and sockets that lead only to this process
    SYS_accept, SYS_accept4, SYS_socketpair, SYS_recvfrom, SYS_recvmsg, SYS_sendto, SYS_sendmsg, SYS_shutdown,
    SYS_getsockopt, SYS_setsockopt, SYS_getsockname,
    // waiting
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_ppoll, SYS_eventfd2, SYS_futex,
    SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_sched_yield,
    SYS_sched_getaffinity, SYS_restart_syscall,
    // control pages
    SYS_memfd_create, SYS_ftruncate, SYS_fallocate, SYS_fchmod,
    // the file of ids, the machine's figures, the socket's file at the end
    SYS_openat, SYS_newfstatat, SYS_statx, SYS_renameat, SYS_renameat2, SYS_unlinkat, SYS_fsync,
    SYS_fdatasync, SYS_readlinkat, SYS_getcwd,
    // notices of opens of the statistics page
    SYS_inotify_add_watch,
    // memory
    SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_membarrier,
    // helpers, threads, the end
    SYS_clone, SYS_clone3, SYS_wait4, SYS_set_robust_list, SYS_rseq, SYS_rt_sigprocmask, SYS_rt_sigaction,
    SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid,
    SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getrandom, SYS_getrusage, SYS_exit, SYS_exit_group,
};

/// Older names that only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALSO: &[c_long] = calls! {
    SYS_open, SYS_stat, SYS_lstat, SYS_readlink, SYS_rename, SYS_unlink, SYS_dup2, SYS_poll, SYS_epoll_wait,
    SYS_fork, SYS_time,
};
#[cfg(not(target_arch = "x86_64"))]
const ALSO: &[c_long] = &[];

/// Makes two filters; any refusal takes precedence over a permission.
fn filters(kills: bool) -> io::Result<[BpfProgram; 2]> {
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(errno(libc::ENOSYS));
    let clone3 = compile(clone3, SeccompAction::Allow, unknown)?;

    let calls = ALLOWED.iter().chain(ALSO).chain(&[CACHESTAT]);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.map(|call| (*call, Vec::new())).collect();
    // No memory that is executed.
    let exec = libc::PROT_EXEC.unsigned_abs().into();
    rules.insert(libc::SYS_mmap, vec![bits(2, exec, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![bits(2, exec, 0)?]);
    // Limits, to look at only.
    rules.insert(libc::SYS_prlimit64, vec![bits(2, u64::MAX, 0)?]);
    // Signals to itself only. Helpers are forked with the manager's number and need no rule of their own.
    let own = u64::from(process::getpid());
    rules.insert(libc::SYS_kill, vec![bits(0, u64::MAX, own)?]);
    rules.insert(libc::SYS_tgkill, vec![bits(0, u64::MAX, own)?]);
    // Only by a client's proven pidfd, and only to end it.
    if kills {
        let kill = libc::SIGKILL.unsigned_abs().into();
        rules.insert(libc::SYS_pidfd_send_signal, vec![bits(1, u64::MAX, kill)?]);
    }
    let requests = [libc::FIONBIO, libc::TIOCOUTQ, libc::TCGETS];
    let requests = requests.map(|request| bits(1, u64::from(u32::MAX), request));
    rules.insert(
        libc::SYS_ioctl,
        requests.into_iter().collect::<io::Result<_>>()?,
    );
    let options = [
        libc::PR_SET_NAME,
        libc::PR_SET_VMA,
        libc::PR_GET_DUMPABLE,
        PR_GET_AUXV,
    ];
    let options = options.map(|option| bits(0, u64::MAX, option.unsigned_abs().into()));
    rules.insert(
        libc::SYS_prctl,
        options.into_iter().collect::<io::Result<_>>()?,
    );
    let refuse = SeccompAction::Errno(errno(libc::EPERM));
    Ok([clone3, compile(rules, refuse, SeccompAction::Allow)?])
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matching, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// Makes a rule: the masked bits of an argument have this value.
fn bits(argument: u8, mask: u64, value: u64) -> io::Result<SeccompRule> {
    let op = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value);
    let condition = condition.map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

const fn errno(number: i32) -> u32 {
    number.unsigned_abs()
}
