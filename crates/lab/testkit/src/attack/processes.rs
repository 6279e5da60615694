//! Attacks on the victim's process: its memory, descriptors, threads. Signals, limits and scheduling are outside the
//! threat model and not tried.

use super::{
    NONE, Outcome, PAGE, Target, address, address_mut, ask, attacks, done, evil, open, sc,
    use_writable,
};

attacks! {
    Dumpable {
        victim_proc_mem, victim_vm_writev, victim_vm_readv, victim_ptrace_attach, victim_ptrace_seize, victim_pidfd_getfd,
        victim_fd_reopened, victim_map_files, victim_maps_read, victim_environ_read, victim_auxv_read, victim_robust_list,
        victim_move_pages, victim_fd_listed, victim_kcmp,
    }
    Harmless {
        victim_process_madvise, victim_migrate_pages, victim_clear_refs, victim_perf, victim_setns, victim_process_mrelease,
        victim_coredump_filter, victim_cwd, victim_personality,
    }
}

fn path(t: &Target, file: &str) -> Result<String, Outcome> {
    Ok(format!("/proc/{}/{file}", t.pid()?))
}

fn victim_proc_mem(t: &Target) -> Outcome {
    let mem = ask!(open(&ask!(path(t, "mem")), libc::O_RDWR));
    let bytes = evil();
    done(sc(
        libc::SYS_pwrite64,
        &[mem, address(&bytes), PAGE, ask!(t.victim_map())],
    ))
}

fn vm(t: &Target, number: libc::c_long) -> Outcome {
    let mut bytes = evil();
    let (local, remote) = (
        [address_mut(&mut bytes), PAGE],
        [ask!(t.victim_map()), PAGE],
    );
    done(sc(
        number,
        &[ask!(t.pid()), address(&local), 1, address(&remote), 1, 0],
    ))
}

fn victim_vm_writev(t: &Target) -> Outcome {
    vm(t, libc::SYS_process_vm_writev)
}

fn victim_vm_readv(t: &Target) -> Outcome {
    vm(t, libc::SYS_process_vm_readv)
}

fn victim_ptrace_attach(t: &Target) -> Outcome {
    let pid = ask!(t.pid());
    ask!(sc(
        libc::SYS_ptrace,
        &[libc::PTRACE_ATTACH as usize, pid, 0, 0]
    ));
    let _ = sc(libc::SYS_wait4, &[pid, 0, 0x4000_0000, 0]);
    let poked = sc(
        libc::SYS_ptrace,
        &[
            libc::PTRACE_POKEDATA as usize,
            pid,
            ask!(t.victim_map()),
            NONE / 3,
        ],
    );
    let _ = sc(libc::SYS_ptrace, &[libc::PTRACE_DETACH as usize, pid, 0, 0]);
    done(poked)
}

fn victim_ptrace_seize(t: &Target) -> Outcome {
    let pid = ask!(t.pid());
    let seized = sc(libc::SYS_ptrace, &[0x4206, pid, 0, 0]);
    done(seized)
}

fn victim_pidfd_getfd(t: &Target) -> Outcome {
    let pidfd = ask!(sc(libc::SYS_pidfd_open, &[ask!(t.pid()), 0]));
    let number = t
        .victim_fd
        .and_then(|fd| usize::try_from(fd).ok())
        .unwrap_or(0);
    done(sc(libc::SYS_pidfd_getfd, &[pidfd, number, 0]))
}

/// Opens the file behind the victim's descriptor anew, through /proc. The owner of the file may make it openable first.
/// The later refusals of the seals are not tested here.
fn victim_fd_reopened(t: &Target) -> Outcome {
    let link = ask!(path(t, &format!("fd/{}", t.victim_fd.unwrap_or(0))));
    let name = ask!(std::ffi::CString::new(link.as_str()).map_err(|_| libc::EINVAL));
    let cwd = libc::AT_FDCWD.cast_unsigned() as usize;
    let mode = |m| {
        sc(
            libc::SYS_fchmodat,
            &[cwd, name.as_ptr().expose_provenance(), m],
        )
    };
    let _ = mode(0o600);
    let opened = open(&link, libc::O_RDWR);
    let _ = mode(0);
    if let Ok(fd) = opened {
        let _ = use_writable(fd);
    }
    done(opened)
}

fn listed(t: &Target, what: &str) -> Outcome {
    let dir = ask!(open(
        &ask!(path(t, what)),
        libc::O_RDONLY | libc::O_DIRECTORY
    ));
    let mut bytes = evil();
    // The directory itself and its parent take 48 bytes.
    match sc(libc::SYS_getdents64, &[dir, address_mut(&mut bytes), PAGE]) {
        Ok(0..=48) => Outcome::Errno(libc::EACCES),
        other => done(other),
    }
}

fn victim_fd_listed(t: &Target) -> Outcome {
    // With DAC_OVERRIDE the numbers may be listed; their targets are refused one by one.
    match listed(t, "fd") {
        Outcome::Succeeded => {
            let link = ask!(path(t, "fd/0"));
            std::fs::read_link(link).map_or_else(
                |e| Outcome::Errno(e.raw_os_error().unwrap_or(0)),
                |_| Outcome::Succeeded,
            )
        }
        other => other,
    }
}

fn victim_map_files(t: &Target) -> Outcome {
    let maps = std::fs::read_to_string(ask!(path(t, "maps"))).unwrap_or_default();
    let at = format!("{:x}-", ask!(t.victim_map()));
    let range = maps.split_whitespace().find(|w| w.starts_with(&at));
    match range {
        Some(range) => {
            let opened = open(&ask!(path(t, &format!("map_files/{range}"))), libc::O_RDWR);
            // Following needs a capability, listing only access.
            opened.map_or_else(|_| listed(t, "map_files"), use_writable)
        }
        None => listed(t, "map_files"),
    }
}

fn read_of(t: &Target, file: &str) -> Outcome {
    let fd = ask!(open(&ask!(path(t, file)), libc::O_RDONLY));
    let mut bytes = evil();
    match sc(libc::SYS_read, &[fd, address_mut(&mut bytes), PAGE]) {
        // Some files open and then are empty for a process that may not look.
        Ok(0) => Outcome::Errno(libc::EACCES),
        other => done(other),
    }
}

fn victim_maps_read(t: &Target) -> Outcome {
    read_of(t, "maps")
}

fn victim_environ_read(t: &Target) -> Outcome {
    read_of(t, "environ")
}

fn victim_auxv_read(t: &Target) -> Outcome {
    read_of(t, "auxv")
}

fn victim_personality(t: &Target) -> Outcome {
    read_of(t, "personality")
}

fn victim_robust_list(t: &Target) -> Outcome {
    let mut out = [0usize; 2];
    let (head, len) = (address_mut(&mut out[..1]), address_mut(&mut out[1..]));
    done(sc(libc::SYS_get_robust_list, &[ask!(t.pid()), head, len]))
}

fn victim_process_madvise(t: &Target) -> Outcome {
    let pidfd = ask!(sc(libc::SYS_pidfd_open, &[ask!(t.pid()), 0]));
    let iov = [ask!(t.victim_map()), PAGE];
    let mut outcome = Outcome::Errno(libc::EPERM);
    for advice in [4, 8, 9, 14, 20, 21, 22, 23, 24, 25, 102] {
        outcome = done(sc(
            libc::SYS_process_madvise,
            &[pidfd, address(&iov), 1, advice, 0],
        ));
    }
    outcome
}

fn victim_move_pages(t: &Target) -> Outcome {
    let (pages, mut status) = ([ask!(t.victim_map())], [0i32]);
    done(sc(
        libc::SYS_move_pages,
        &[
            ask!(t.pid()),
            1,
            address(&pages),
            0,
            address_mut(&mut status),
            0,
        ],
    ))
}

fn victim_migrate_pages(t: &Target) -> Outcome {
    let nodes = [1u64];
    done(sc(
        libc::SYS_migrate_pages,
        &[ask!(t.pid()), 64, address(&nodes), address(&nodes)],
    ))
}

fn victim_clear_refs(t: &Target) -> Outcome {
    let fd = ask!(open(&ask!(path(t, "clear_refs")), libc::O_WRONLY));
    done(sc(
        libc::SYS_write,
        &[fd, c"1".as_ptr().expose_provenance(), 1],
    ))
}

fn victim_coredump_filter(t: &Target) -> Outcome {
    let fd = ask!(open(&ask!(path(t, "coredump_filter")), libc::O_RDWR));
    done(sc(
        libc::SYS_write,
        &[fd, c"0".as_ptr().expose_provenance(), 1],
    ))
}

fn victim_perf(t: &Target) -> Outcome {
    // A software clock with samples of registers would need more; opening is the question.
    let mut attribute = [0u64; 16];
    attribute[0] = 1 | 128 << 32;
    done(sc(
        libc::SYS_perf_event_open,
        &[address(&attribute), ask!(t.pid()), NONE, NONE, 0],
    ))
}

fn victim_setns(t: &Target) -> Outcome {
    let pidfd = ask!(sc(libc::SYS_pidfd_open, &[ask!(t.pid()), 0]));
    done(sc(libc::SYS_setns, &[pidfd, 0x0002_0000]))
}

fn victim_process_mrelease(t: &Target) -> Outcome {
    let pidfd = ask!(sc(libc::SYS_pidfd_open, &[ask!(t.pid()), 0]));
    done(sc(libc::SYS_process_mrelease, &[pidfd, 0]))
}

fn victim_kcmp(t: &Target) -> Outcome {
    let own = std::process::id() as usize;
    done(sc(libc::SYS_kcmp, &[own, ask!(t.pid()), 1, 0, 0]))
}

fn victim_cwd(t: &Target) -> Outcome {
    done(open(&ask!(path(t, "root")), libc::O_RDONLY))
}
