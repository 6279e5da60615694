//! The kernel as the pen: system calls that store their results where the caller says, here into the
//! mapping that the caller may not write.

use super::writes::{aio, evil_pipe, pipe};
use super::{
    NONE, Outcome, PAGE, Target, address, address_mut, ask, attacks, done, evil, open, sc,
};

attacks! {
    Writable {
        read, pread_zero, readv, recv, recvmsg_control, getrandom, clock_gettime, fstat, uname, getcwd, poll,
        epoll_wait, getsockopt, wait_status, getaffinity, prctl_name, pipe2, socketpair, select, aio_read, vmsplice_out,
        process_vm_readv_into, signal_frame, parent_set_tid, clear_child_tid, rseq_area, futex_wake_op,
        futex_lock_pi, sigaction_old, sigprocmask_old, times, getdents, readlink, mincore, sysinfo, nanosleep_rest,
    }
    Sleepers { futex_requeue_away }
    Harmless { robust_list, futex_wait, futex_wake, vmsplice_gift, membarrier }
}

fn at(t: &Target) -> Result<usize, Outcome> {
    Ok(t.map()?.0)
}

fn read(t: &Target) -> Outcome {
    done(sc(libc::SYS_read, &[ask!(evil_pipe()), ask!(at(t)), PAGE]))
}

fn pread_zero(t: &Target) -> Outcome {
    let zero = ask!(open("/dev/zero", libc::O_RDONLY));
    done(sc(libc::SYS_pread64, &[zero, ask!(at(t)), PAGE, 0]))
}

fn readv(t: &Target) -> Outcome {
    let iov = [ask!(at(t)), PAGE];
    done(sc(libc::SYS_readv, &[ask!(evil_pipe()), address(&iov), 1]))
}

fn sockets() -> Result<(usize, usize), i32> {
    let mut ends = [0u32; 2];
    sc(libc::SYS_socketpair, &[1, 2, 0, address_mut(&mut ends)])?;
    let bytes = evil();
    sc(
        libc::SYS_sendto,
        &[ends[0] as usize, address(&bytes), PAGE, 0, 0, 0],
    )?;
    Ok((ends[0] as usize, ends[1] as usize))
}

fn recv(t: &Target) -> Outcome {
    let (_a, b) = ask!(sockets());
    done(sc(libc::SYS_recvfrom, &[b, ask!(at(t)), PAGE, 0, 0, 0]))
}

/// Receives ancillary data into the mapping.
fn recvmsg_control(t: &Target) -> Outcome {
    let (a, b) = ask!(sockets());
    let on = [1i32];
    ask!(sc(libc::SYS_setsockopt, &[b, 1, 16, address(&on), 4]));
    let more = evil();
    ask!(sc(libc::SYS_sendto, &[a, address(&more), 8, 0, 0, 0]));
    let mut buffer = evil();
    let iov = [address_mut(&mut buffer), PAGE];
    let mut message = [0, 0, address(&iov), 1, ask!(at(t)), 256, 0];
    ask!(sc(libc::SYS_recvmsg, &[b, address_mut(&mut message), 0]));
    // The kernel drops data that it cannot store; the length says how much it stored.
    if message[5] == 0 {
        Outcome::Errno(libc::EFAULT)
    } else {
        Outcome::Succeeded
    }
}

fn getrandom(t: &Target) -> Outcome {
    done(sc(libc::SYS_getrandom, &[ask!(at(t)), 200, 0]))
}

fn clock_gettime(t: &Target) -> Outcome {
    done(sc(libc::SYS_clock_gettime, &[1, ask!(at(t))]))
}

fn fstat(t: &Target) -> Outcome {
    done(sc(libc::SYS_fstat, &[0, ask!(at(t))]))
}

fn uname(t: &Target) -> Outcome {
    done(sc(libc::SYS_uname, &[ask!(at(t))]))
}

fn getcwd(t: &Target) -> Outcome {
    done(sc(libc::SYS_getcwd, &[ask!(at(t)), PAGE]))
}

/// Polls with `revents` in the mapping, by the bytes that are there.
fn poll(t: &Target) -> Outcome {
    done(sc(libc::SYS_poll, &[ask!(at(t)), 16, 0]))
}

fn epoll_wait(t: &Target) -> Outcome {
    let epoll = ask!(sc(libc::SYS_epoll_create1, &[0]));
    let event = [1u32, 7, 7];
    ask!(sc(
        libc::SYS_epoll_ctl,
        &[epoll, 1, ask!(evil_pipe()), address(&event)]
    ));
    done(sc(libc::SYS_epoll_wait, &[epoll, ask!(at(t)), 4, 0]))
}

fn getsockopt(t: &Target) -> Outcome {
    let (a, _b) = ask!(sockets());
    let len = [4u32];
    done(sc(
        libc::SYS_getsockopt,
        &[a, 1, 3, ask!(at(t)), address(&len)],
    ))
}

fn wait_status(t: &Target) -> Outcome {
    // SAFETY: the child only ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(9) };
    }
    done(sc(libc::SYS_wait4, &[NONE, ask!(at(t)), 0, 0]))
}

fn getaffinity(t: &Target) -> Outcome {
    done(sc(libc::SYS_sched_getaffinity, &[0, 128, ask!(at(t))]))
}

fn prctl_name(t: &Target) -> Outcome {
    done(sc(libc::SYS_prctl, &[16, ask!(at(t)), 0, 0, 0]))
}

fn pipe2(t: &Target) -> Outcome {
    done(sc(libc::SYS_pipe2, &[ask!(at(t)), 0]))
}

fn socketpair(t: &Target) -> Outcome {
    done(sc(libc::SYS_socketpair, &[1, 1, 0, ask!(at(t))]))
}

fn select(t: &Target) -> Outcome {
    let wait = [0u64, 0];
    // Bits 0 to 2 of whatever is there.
    done(sc(
        libc::SYS_pselect6,
        &[3, 0, 0, ask!(at(t)), address(&wait), 0],
    ))
}

fn aio_read(t: &Target) -> Outcome {
    aio(ask!(open("/proc/self/exe", libc::O_RDONLY)), 0, ask!(at(t)))
}

fn vmsplice_out(t: &Target) -> Outcome {
    let iov = [ask!(at(t)), PAGE];
    done(sc(
        libc::SYS_vmsplice,
        &[ask!(evil_pipe()), address(&iov), 1, 0],
    ))
}

fn process_vm_readv_into(t: &Target) -> Outcome {
    let bytes = evil();
    let (local, remote) = ([ask!(at(t)), PAGE], [address(&bytes), PAGE]);
    let pid = std::process::id() as usize;
    done(sc(
        libc::SYS_process_vm_readv,
        &[pid, address(&local), 1, address(&remote), 1, 0],
    ))
}

extern "C" fn nothing(_: i32) {}

/// Runs a signal handler whose stack lies in the mapping.
fn signal_frame(t: &Target) -> Outcome {
    let (start, len) = ask!(t.map());
    let stack = libc::stack_t {
        ss_sp: std::ptr::with_exposed_provenance_mut(start),
        ss_flags: 0,
        ss_size: len,
    };
    // SAFETY: in a child that is thrown away; the kernel refuses the frame by SIGSEGV.
    unsafe {
        if libc::sigaltstack(&raw const stack, std::ptr::null_mut()) < 0 {
            return Outcome::Errno(crate::errno::errno());
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR1);
    }
    Outcome::Succeeded
}

/// Makes clone store the new thread's id.
fn parent_set_tid(t: &Target) -> Outcome {
    let flags = libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_SETTID | libc::SIGCHLD;
    let to = ask!(at(t));
    let r = ask!(sc(
        libc::SYS_clone,
        &[flags.cast_unsigned() as usize, 0, to, to, 0]
    ));
    if r == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let _ = sc(libc::SYS_wait4, &[r, 0, 0, 0]);
    // The kernel does not report that it could not store: the victim's view decides.
    Outcome::Errno(libc::EFAULT)
}

/// Ends a thread whose word, here one in the mapping, is set to 0 at its end.
fn clear_child_tid(t: &Target) -> Outcome {
    let to = ask!(at(t));
    let thread = std::thread::spawn(move || {
        let _ = sc(libc::SYS_set_tid_address, &[to]);
        // Ends the thread alone, without the library's wait for the word it no longer has.
        let _ = sc(libc::SYS_exit, &[0]);
    });
    std::mem::forget(thread);
    let alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|d| d.count() == 1);
    while !alone() {
        std::thread::yield_now();
    }
    Outcome::Errno(libc::EFAULT)
}

/// Registers the area into which the kernel stores the number of the core at every return.
fn rseq_area(t: &Target) -> Outcome {
    let to = ask!(at(t));
    // SAFETY: looks up a symbol of the C library.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return Outcome::Unavailable(0);
    }
    let signature = 0x5305_3053;
    // SAFETY: the symbol is a ptrdiff_t; the thread's area lies at that distance from the thread pointer.
    let area = unsafe { offset.cast::<isize>().read() }.wrapping_add_unsigned(thread_pointer());
    let registered = area.cast_unsigned();
    for len in [32, 33, 36, 64] {
        if sc(libc::SYS_rseq, &[registered, len, 1, signature]).is_ok() {
            break;
        }
    }
    // The constant field must be 0 first, which the random contents are not: look for a place that is.
    ask!(sc(libc::SYS_rseq, &[to, 32, 0, signature]));
    std::thread::yield_now();
    Outcome::Succeeded
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the word at the thread pointer, which is its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem)) };
    pointer
}

/// Makes the kernel change the second word.
fn futex_wake_op(t: &Target) -> Outcome {
    let own = [0u32];
    let set = 0x5A << 12;
    done(sc(
        libc::SYS_futex,
        &[address(&own), 5, 1, 1, ask!(at(t)), set],
    ))
}

/// Takes a lock in the mapping; only a word that is 0 is taken, so a few are tried.
fn futex_lock_pi(t: &Target) -> Outcome {
    let (start, len) = ask!(t.map());
    let mut last = Outcome::Errno(libc::EINVAL);
    for word in (start..start + len).step_by(4) {
        // SAFETY: none; a fault is an expected outcome.
        let value = unsafe { std::ptr::with_exposed_provenance::<u32>(word).read_volatile() };
        if value == 0 || word == start {
            last = done(sc(libc::SYS_futex, &[word, 8, 0, 0, 0, 0]));
        }
    }
    last
}

fn futex_wait(t: &Target) -> Outcome {
    let wait = [0u64, 1];
    done(sc(
        libc::SYS_futex,
        &[ask!(at(t)), 0, 0x5a5a_5a5a, address(&wait)],
    ))
}

fn futex_wake(t: &Target) -> Outcome {
    done(sc(libc::SYS_futex, &[ask!(at(t)), 1, i32::MAX as usize, 0]))
}

/// Moves all sleepers on a word of the object to a word of the attacker; read access is enough for that. They must wake
/// all the same, some time.
fn futex_requeue_away(t: &Target) -> Outcome {
    let (start, len) = ask!(t.map());
    let own = [0u32];
    let mut last = Outcome::Errno(libc::EINVAL);
    // The words of the first page one by one, then one in each line.
    let words = (start..start + PAGE)
        .step_by(4)
        .chain((start + PAGE..start + len).step_by(64));
    for word in words {
        last = done(sc(
            libc::SYS_futex,
            &[word, 3, 0, i32::MAX as usize, address(&own), 0],
        ));
    }
    last
}

/// Ends a thread whose robust list is all words of the mapping: the kernel walks it and marks words with the thread's
/// id.
fn robust_list(t: &Target) -> Outcome {
    let to = ask!(at(t));
    let thread = std::thread::spawn(move || {
        let mut list = [0usize, 0, 0];
        let head = address_mut(&mut list);
        list = [head, 0, to];
        let _ = sc(libc::SYS_set_robust_list, &[head, 24]);
        std::hint::black_box(&mut list);
        let _ = sc(libc::SYS_exit, &[0]);
    });
    std::mem::forget(thread);
    let alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|d| d.count() == 1);
    while !alone() {
        std::thread::yield_now();
    }
    Outcome::Succeeded
}

fn sigaction_old(t: &Target) -> Outcome {
    done(sc(libc::SYS_rt_sigaction, &[10, 0, ask!(at(t)), 8]))
}

fn sigprocmask_old(t: &Target) -> Outcome {
    done(sc(libc::SYS_rt_sigprocmask, &[0, 0, ask!(at(t)), 8]))
}

fn times(t: &Target) -> Outcome {
    done(sc(libc::SYS_times, &[ask!(at(t))]))
}

fn getdents(t: &Target) -> Outcome {
    let dir = ask!(open("/proc/self", libc::O_RDONLY | libc::O_DIRECTORY));
    done(sc(libc::SYS_getdents64, &[dir, ask!(at(t)), PAGE]))
}

fn readlink(t: &Target) -> Outcome {
    let path = c"/proc/self/exe".as_ptr().expose_provenance();
    done(sc(libc::SYS_readlinkat, &[NONE, path, ask!(at(t)), 200]))
}

fn mincore(t: &Target) -> Outcome {
    let (start, len) = ask!(t.map());
    done(sc(libc::SYS_mincore, &[start, len, start]))
}

fn sysinfo(t: &Target) -> Outcome {
    done(sc(libc::SYS_sysinfo, &[ask!(at(t))]))
}

/// Lets the kernel write the rest of an interrupted sleep.
fn nanosleep_rest(t: &Target) -> Outcome {
    // SAFETY: plain system calls; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
    }
    let rest = ask!(at(t));
    // Again and again: one that comes before the sleep begins would leave it to end in peace, with nothing stored.
    let every = [0u64, 2000, 0, 2000];
    ask!(sc(libc::SYS_setitimer, &[0, address(&every), 0]));
    let long = [20u64, 0];
    let outcome = done(sc(libc::SYS_nanosleep, &[address(&long), rest]));
    let never = [0u64; 4];
    ask!(sc(libc::SYS_setitimer, &[0, address(&never), 0]));
    // Interrupted and stored is the bite; otherwise EFAULT.
    if outcome == Outcome::Errno(libc::EINTR) {
        Outcome::Succeeded
    } else {
        outcome
    }
}

/// Gives the attacker's pages to a pipe; then changes them. Nobody else's are touched.
fn vmsplice_gift(t: &Target) -> Outcome {
    let (_read, write) = ask!(pipe());
    let iov = [ask!(at(t)), PAGE];
    done(sc(libc::SYS_vmsplice, &[write, address(&iov), 1, 8]))
}

fn membarrier(_: &Target) -> Outcome {
    done(sc(libc::SYS_membarrier, &[0, 0, 0]))
}
