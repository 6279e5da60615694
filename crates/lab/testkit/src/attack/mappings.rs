//! Through a read-only shared mapping: making it writable, advising it away, tracking its faults.

use super::{
    MAP_PRIVATE, NONE, Outcome, PAGE, PROT_READ, PROT_RW, Refusal, Target, address, address_mut,
    ask, attacks, done, evil, open, sc, scribble, use_writable,
};

attacks! {
    Unsealed {
        mprotect_rw, mprotect_rwx, pkey_mprotect, mremap_dup_then_mprotect, mremap_move_then_mprotect, mremap_dontunmap_then_mprotect, process_madvise_remove,
        remap_file_pages_then_mprotect, own_map_files_reopened, uffd_copy_over_hole, own_proc_mem_after_mprotect, madvise_remove,
    }
    Writable {
        store, own_proc_mem, process_vm_writev_self, ptrace_poke_own_child, madvise_populate_write,
    }
    Harmless {
        private_mapping_written, private_mapping_poked, mremap_grow, mremap_over_itself, process_madvise_self, madvise_dontneed, madvise_free, madvise_cold, madvise_pageout,
        madvise_collapse, madvise_hugepage, madvise_mergeable, madvise_wipe_on_fork, madvise_dontneed_locked,
        madvise_guard, madvise_poison, madvise_soft_offline, merge_whole_process, uffd_missing, uffd_write_protect,
        uffd_minor_continue, pagemap_scan_protect, mbind, move_own_pages, mlock, msync_invalidate, mseal, grows_down,
    }
}

fn mprotect(t: &Target, prot: usize) -> Outcome {
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_mprotect, &[at, len, prot]));
    scribble((at, len))
}

fn mprotect_rw(t: &Target) -> Outcome {
    mprotect(t, PROT_RW)
}

fn mprotect_rwx(t: &Target) -> Outcome {
    mprotect(t, 7)
}

fn pkey_mprotect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_pkey_mprotect, &[at, len, PROT_RW, NONE]));
    scribble((at, len))
}

fn mremap_dup_then_mprotect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    // An old length of 0 duplicates a shared mapping.
    let copy = ask!(sc(libc::SYS_mremap, &[at, 0, len, 1]));
    ask!(sc(libc::SYS_mprotect, &[copy, len, PROT_RW]));
    scribble((copy, len))
}

fn mremap_move_then_mprotect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    let to = ask!(sc(
        libc::SYS_mmap,
        &[0, len, PROT_RW, MAP_PRIVATE | 0x20, NONE, 0]
    ));
    let moved = ask!(sc(libc::SYS_mremap, &[at, len, len, 3, to]));
    ask!(sc(libc::SYS_mprotect, &[moved, len, PROT_RW]));
    scribble((moved, len))
}

/// Leaves the old place empty, and has the same pages elsewhere.
fn mremap_dontunmap_then_mprotect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    let moved = ask!(sc(libc::SYS_mremap, &[at, len, len, 1 | 4, 0]));
    ask!(sc(libc::SYS_mprotect, &[moved, len, PROT_RW]));
    scribble((moved, len))
}

/// Moves one of two mappings of it side by side over the other and cuts it: the rest shows the object, and no other.
fn mremap_over_itself(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    let copy = ask!(sc(libc::SYS_mremap, &[at, 0, len, 1]));
    let moved = ask!(sc(libc::SYS_mremap, &[copy, len, PAGE, 3, at]));
    done(sc(libc::SYS_mremap, &[moved, PAGE, len, 1]))
}

/// Gives the advice of madvise(2) to its own address space through its pidfd (Linux 6.13), in one call for several
/// places.
fn process_madvise(t: &Target, advice: i32) -> Outcome {
    let (at, len) = ask!(t.map());
    let itself = ask!(sc(libc::SYS_pidfd_open, &[std::process::id() as usize, 0]));
    let places = [at, PAGE, at, len];
    done(sc(
        libc::SYS_process_madvise,
        &[
            itself,
            address(&places),
            2,
            advice.cast_unsigned() as usize,
            0,
        ],
    ))
}

fn process_madvise_remove(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_mprotect, &[at, len, PROT_RW]));
    match process_madvise(t, libc::MADV_REMOVE) {
        // Before Linux 6.13 a process gave itself only some advice in this way.
        Outcome::Errno(libc::EINVAL) => madvise(t, libc::MADV_REMOVE),
        other => other,
    }
}

fn process_madvise_self(t: &Target) -> Outcome {
    let advice = [
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        MADV_GUARD_INSTALL,
    ];
    advice.map(|advice| process_madvise(t, advice))[0]
}

const MADV_GUARD_INSTALL: i32 = 102;

/// Grows the mapping beyond the object: reads there fault, and never reach another object.
fn mremap_grow(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    let grown = ask!(sc(libc::SYS_mremap, &[at, len, 2 * len, 1]));
    // SAFETY: none; a fault is expected.
    unsafe { std::ptr::with_exposed_provenance::<u8>(grown + len).read_volatile() };
    Outcome::Succeeded
}

fn remap_file_pages_then_mprotect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_remap_file_pages, &[at, PAGE, 0, 1, 0]));
    ask!(sc(libc::SYS_mprotect, &[at, PAGE, PROT_RW]));
    scribble((at, len.min(PAGE)))
}

fn map_range(at: usize) -> Result<String, i32> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| libc::EACCES)?;
    let covers = |range: &str| {
        let (a, b) = range.split_once('-')?;
        let hex = |s| usize::from_str_radix(s, 16).ok();
        (hex(a)? <= at && at < hex(b)?).then_some(())
    };
    let line = maps
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .find(|r| covers(r).is_some());
    line.map(str::to_owned).ok_or(libc::ENOENT)
}

fn own_map_files_reopened(t: &Target) -> Outcome {
    let (at, _) = ask!(t.map());
    let range = ask!(map_range(at));
    use_writable(ask!(open(
        &format!("/proc/self/map_files/{range}"),
        libc::O_RDWR
    )))
}

fn store(t: &Target) -> Outcome {
    scribble(ask!(t.map()))
}

/// Writes through /proc/self/mem, which ignores the protection of private mappings; that of a shared one it must not.
fn own_proc_mem(t: &Target) -> Outcome {
    let (at, _) = ask!(t.map());
    let mem = ask!(open("/proc/self/mem", libc::O_RDWR));
    let bytes = evil();
    done(sc(libc::SYS_pwrite64, &[mem, address(&bytes), PAGE, at]))
}

fn own_proc_mem_after_mprotect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_mprotect, &[at, len, PROT_RW]));
    own_proc_mem(t)
}

fn process_vm_writev_self(t: &Target) -> Outcome {
    let (at, _) = ask!(t.map());
    let bytes = evil();
    let (local, remote) = ([address(&bytes), PAGE], [at, PAGE]);
    let pid = std::process::id() as usize;
    done(sc(
        libc::SYS_process_vm_writev,
        &[pid, address(&local), 1, address(&remote), 1, 0],
    ))
}

/// Writes as a debugger, which may write where its child may not; not into a shared mapping that may not be written.
fn poke_child(at: usize) -> Outcome {
    // SAFETY: the child only stops and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system calls.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
    }
    let pid = usize::try_from(child).unwrap_or(0);
    let mut status = [0i32];
    ask!(sc(libc::SYS_wait4, &[pid, address_mut(&mut status), 0, 0]));
    let poked = sc(
        libc::SYS_ptrace,
        &[libc::PTRACE_POKEDATA as usize, pid, at, usize::MAX / 3],
    );
    let _ = sc(libc::SYS_kill, &[pid, 9]);
    let _ = sc(libc::SYS_wait4, &[pid, address_mut(&mut status), 0, 0]);
    done(poked)
}

fn ptrace_poke_own_child(t: &Target) -> Outcome {
    poke_child(ask!(t.map()).0)
}

fn private(t: &Target, prot: usize) -> Result<(usize, usize), Refusal> {
    let len = t.len()?;
    let fd = match t.fd() {
        Ok(fd) => fd,
        Err(_) => open(
            &format!("/proc/self/map_files/{}", map_range(t.map()?.0)?),
            libc::O_RDONLY,
        )?,
    };
    Ok((
        sc(libc::SYS_mmap, &[0, len, prot, MAP_PRIVATE, fd, 0])?,
        len,
    ))
}

fn private_mapping_written(t: &Target) -> Outcome {
    match private(t, PROT_RW) {
        Ok(map) => scribble(map),
        Err(refusal) => refusal.0,
    }
}

fn private_mapping_poked(t: &Target) -> Outcome {
    match private(t, PROT_READ) {
        Ok((at, _)) => poke_child(at),
        Err(refusal) => refusal.0,
    }
}

fn madvise(t: &Target, advice: i32) -> Outcome {
    let (at, len) = ask!(t.map());
    done(sc(
        libc::SYS_madvise,
        &[at, len, advice.cast_unsigned() as usize],
    ))
}

/// Removes pages below a shared mapping. The kernel does this for writable mappings alone, so the second attempt
/// follows `mprotect`.
fn madvise_remove(t: &Target) -> Outcome {
    match madvise(t, libc::MADV_REMOVE) {
        Outcome::Errno(libc::EACCES) => {}
        other => return other,
    }
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_mprotect, &[at, len, PROT_RW]));
    madvise(t, libc::MADV_REMOVE)
}

fn madvise_populate_write(t: &Target) -> Outcome {
    // Populating writes nothing; a store after it must still fault.
    match madvise(t, libc::MADV_POPULATE_WRITE) {
        Outcome::Succeeded => store(t),
        other => other,
    }
}

fn madvise_dontneed(t: &Target) -> Outcome {
    madvise(t, libc::MADV_DONTNEED)
}

fn madvise_free(t: &Target) -> Outcome {
    madvise(t, libc::MADV_FREE)
}

fn madvise_cold(t: &Target) -> Outcome {
    madvise(t, libc::MADV_COLD)
}

fn madvise_pageout(t: &Target) -> Outcome {
    madvise(t, libc::MADV_PAGEOUT)
}

fn madvise_collapse(t: &Target) -> Outcome {
    madvise(t, 25)
}

fn madvise_hugepage(t: &Target) -> Outcome {
    madvise(t, libc::MADV_HUGEPAGE)
}

fn madvise_mergeable(t: &Target) -> Outcome {
    madvise(t, libc::MADV_MERGEABLE)
}

fn madvise_wipe_on_fork(t: &Target) -> Outcome {
    madvise(t, libc::MADV_WIPEONFORK)
}

fn madvise_dontneed_locked(t: &Target) -> Outcome {
    madvise(t, 24)
}

fn madvise_guard(t: &Target) -> Outcome {
    madvise(t, 102)
}

/// Poisons a page. Poisoning takes a real page from the machine: never tried with the capability that allows it.
fn poison(t: &Target, advice: i32) -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caps = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .unwrap_or("f")
        .trim();
    let admin = 1u64 << 21;
    if u64::from_str_radix(caps, 16).unwrap_or(u64::MAX) & admin != 0 {
        return Outcome::Unavailable(0);
    }
    madvise(t, advice)
}

fn madvise_poison(t: &Target) -> Outcome {
    poison(t, libc::MADV_HWPOISON)
}

fn madvise_soft_offline(t: &Target) -> Outcome {
    poison(t, libc::MADV_SOFT_OFFLINE)
}

fn merge_whole_process(_: &Target) -> Outcome {
    done(sc(libc::SYS_prctl, &[67, 1, 0, 0, 0]))
}

// userfaultfd: _IOWR(0xAA, nr, size)
const fn uffd_request(nr: usize, size: usize) -> usize {
    3 << 30 | size << 16 | 0xAA << 8 | nr
}

/// Opens a userfaultfd with all features that the kernel has of those wanted.
fn userfaultfd(features: u64) -> Result<usize, i32> {
    let user_mode_only = 1;
    let cloexec = libc::O_CLOEXEC.cast_unsigned() as usize;
    let fd = sc(libc::SYS_userfaultfd, &[cloexec])
        .or_else(|_| sc(libc::SYS_userfaultfd, &[cloexec | user_mode_only]))?;
    let mut api = [0xAAu64, features, 0];
    sc(
        libc::SYS_ioctl,
        &[fd, uffd_request(0x3F, 24), address_mut(&mut api)],
    )?;
    Ok(fd)
}

/// Registers a range: 1 missing, 2 write-protect, 4 minor.
fn register(fd: usize, (at, len): (usize, usize), mode: u64) -> Result<usize, i32> {
    let mut range = [at as u64, len as u64, mode, 0];
    sc(
        libc::SYS_ioctl,
        &[fd, uffd_request(0, 32), address_mut(&mut range)],
    )
}

/// Fills a hole: punches (refused when sealed), then puts a page of the attacker's choice.
fn uffd_copy_over_hole(t: &Target) -> Outcome {
    let (fd, map) = (ask!(userfaultfd(0)), ask!(t.map()));
    ask!(register(fd, map, 1));
    let bytes = evil();
    let target = ask!(t.fd());
    let _ = sc(libc::SYS_fallocate, &[target, 3, 0, PAGE]);
    let mut copy = [map.0 as u64, address(&bytes) as u64, PAGE as u64, 0, 0];
    done(sc(
        libc::SYS_ioctl,
        &[fd, uffd_request(3, 40), address_mut(&mut copy)],
    ))
}

fn uffd_missing(t: &Target) -> Outcome {
    let (fd, map) = (ask!(userfaultfd(0)), ask!(t.map()));
    ask!(register(fd, map, 1));
    let bytes = evil();
    let mut copy = [map.0 as u64, address(&bytes) as u64, PAGE as u64, 0, 0];
    done(sc(
        libc::SYS_ioctl,
        &[fd, uffd_request(3, 40), address_mut(&mut copy)],
    ))
}

fn uffd_write_protect(t: &Target) -> Outcome {
    // WP on shmem, and on pages that are not populated.
    let (fd, map) = (ask!(userfaultfd(1 << 12 | 1)), ask!(t.map()));
    ask!(register(fd, map, 2));
    let mut range = [map.0 as u64, map.1 as u64, 0];
    done(sc(
        libc::SYS_ioctl,
        &[fd, uffd_request(6, 24), address_mut(&mut range)],
    ))
}

fn uffd_minor_continue(t: &Target) -> Outcome {
    let (fd, (at, len)) = (ask!(userfaultfd(1 << 10)), ask!(t.map()));
    ask!(register(fd, (at, len), 4));
    let _ = sc(libc::SYS_madvise, &[at, len, 4]);
    let mut range = [at as u64, PAGE as u64, 0, 0];
    ask!(sc(
        libc::SYS_ioctl,
        &[fd, uffd_request(7, 32), address_mut(&mut range)]
    ));
    // A page mapped by CONTINUE must not have become writable when the mapping is not.
    Outcome::Succeeded
}

fn pagemap_scan_protect(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    let pagemap = ask!(open("/proc/self/pagemap", libc::O_RDONLY));
    let out = [0u64; 12];
    // size, flags (write-protect matching pages, check), start, end, walk_end, vec, vec_len, max_pages, then masks.
    let out_at = address(&out) as u64;
    let mut arg = [
        96u64,
        3,
        at as u64,
        (at + len) as u64,
        0,
        out_at,
        4,
        0,
        0,
        2,
        0,
        2,
    ];
    // _IOWR('f', 16, 96)
    done(sc(
        libc::SYS_ioctl,
        &[
            pagemap,
            3 << 30 | 96 << 16 | 0x66 << 8 | 16,
            address_mut(&mut arg),
        ],
    ))
}

fn mbind(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    let nodes = [1u64];
    // Bind to node 0, move.
    done(sc(libc::SYS_mbind, &[at, len, 2, address(&nodes), 64, 2]))
}

fn move_own_pages(t: &Target) -> Outcome {
    let (at, _) = ask!(t.map());
    let (pages, nodes, mut status) = ([at], [0i32], [0i32]);
    done(sc(
        libc::SYS_move_pages,
        &[
            0,
            1,
            address(&pages),
            address(&nodes),
            address_mut(&mut status),
            2,
        ],
    ))
}

fn mlock(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    done(sc(libc::SYS_mlock2, &[at, len, 1]))
}

fn msync_invalidate(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    done(sc(libc::SYS_msync, &[at, len, 6]))
}

fn mseal(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    done(sc(462, &[at, len, 0]))
}

fn grows_down(t: &Target) -> Outcome {
    let (at, len) = ask!(t.map());
    ask!(sc(libc::SYS_mprotect, &[at, len, PROT_READ | 0x0100_0000]));
    Outcome::Succeeded
}
