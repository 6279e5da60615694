//! Through the descriptor: writing, cutting, punching, splicing, copying.

use super::{
    MAP_SHARED, Outcome, PAGE, PROT_RW, Target, address, address_mut, ask, attacks, done, evil,
    open, sc, scribble, use_writable,
};

attacks! {
    Unsealed {
        mmap_shared, mmap_shared_validate, mmap_then_mprotect, reopen_own_fd, reopen_truncating, chmod_then_reopen,
        chown_then_reopen, write, pwrite, pwritev2, pwritev2_append, write_append, aio_pwrite, shrink, shrink_to_zero,
        grow, punch_hole, punch_one_page, zero_range, grow_by_fallocate, copy_file_range, sendfile, splice_in,
        dirty_pipe_then_splice_back,
    }
    Harmless {
        fallocate_again, keep_size_beyond, collapse_range, insert_range, unshare_range, every_fallocate_mode_private,
        dirty_pipe, fadvise, sync_range, lease, ofd_lock, add_no_seals,
    }
}

fn mmap_shared(t: &Target) -> Outcome {
    let len = ask!(t.len());
    let at = ask!(sc(
        libc::SYS_mmap,
        &[0, len, PROT_RW, MAP_SHARED, ask!(t.fd()), 0]
    ));
    scribble((at, len))
}

fn mmap_shared_validate(t: &Target) -> Outcome {
    let len = ask!(t.len());
    let at = ask!(sc(libc::SYS_mmap, &[0, len, 2, 3, ask!(t.fd()), 0]));
    scribble((at, len))
}

fn mmap_then_mprotect(t: &Target) -> Outcome {
    let len = ask!(t.len());
    let at = ask!(sc(
        libc::SYS_mmap,
        &[0, len, 0, MAP_SHARED, ask!(t.fd()), 0]
    ));
    ask!(sc(libc::SYS_mprotect, &[at, len, PROT_RW]));
    scribble((at, len))
}

fn reopen(t: &Target, flags: i32) -> Outcome {
    let fd = ask!(open(&format!("/proc/self/fd/{}", ask!(t.fd())), flags));
    use_writable(fd)
}

fn reopen_own_fd(t: &Target) -> Outcome {
    reopen(t, libc::O_RDWR)
}

fn reopen_truncating(t: &Target) -> Outcome {
    reopen(t, libc::O_RDWR | libc::O_TRUNC)
}

fn chmod_then_reopen(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    let changed = sc(libc::SYS_fchmod, &[fd, 0o666]);
    let outcome = reopen(t, libc::O_RDWR);
    let _ = changed.map(|_| sc(libc::SYS_fchmod, &[fd, 0]));
    outcome
}

fn chown_then_reopen(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::geteuid() as usize, libc::getegid() as usize) };
    let _ = sc(libc::SYS_fchown, &[fd, uid, gid]);
    reopen(t, libc::O_RDWR)
}

fn write(t: &Target) -> Outcome {
    let bytes = evil();
    let fd = ask!(t.fd());
    let _ = sc(libc::SYS_lseek, &[fd, 0, 0]);
    done(sc(libc::SYS_write, &[fd, address(&bytes), PAGE]))
}

fn pwrite(t: &Target) -> Outcome {
    let bytes = evil();
    done(sc(
        libc::SYS_pwrite64,
        &[ask!(t.fd()), address(&bytes), PAGE, 0],
    ))
}

fn pwritev2_with(t: &Target, flags: i32, at: usize) -> Outcome {
    let bytes = evil();
    let iov = [address(&bytes), PAGE];
    done(sc(
        libc::SYS_pwritev2,
        &[
            ask!(t.fd()),
            address(&iov),
            1,
            at,
            0,
            flags.cast_unsigned() as usize,
        ],
    ))
}

fn pwritev2(t: &Target) -> Outcome {
    pwritev2_with(t, 0, 64)
}

fn pwritev2_append(t: &Target) -> Outcome {
    pwritev2_with(t, libc::RWF_APPEND, 0)
}

fn write_append(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    let flags = ask!(sc(libc::SYS_fcntl, &[fd, 3, 0]));
    ask!(sc(libc::SYS_fcntl, &[fd, 4, flags | 0o2000]));
    let outcome = write(t);
    let _ = sc(libc::SYS_fcntl, &[fd, 4, flags]);
    outcome
}

fn aio_pwrite(t: &Target) -> Outcome {
    aio(ask!(t.fd()), 1, address(&evil()))
}

/// Makes one request of the old asynchronous I/O: 0 read, 1 write.
pub(super) fn aio(fd: usize, operation: u64, buffer: usize) -> Outcome {
    let mut context = [0usize];
    ask!(sc(libc::SYS_io_setup, &[1, address_mut(&mut context)]));
    // data, key and flags, then opcode (16 bits), priority (16), descriptor (32), buffer, length, offset.
    let block = [
        0,
        0,
        operation | (fd as u64) << 32,
        buffer as u64,
        PAGE as u64,
        0,
        0,
        0,
    ];
    let list = [address(&block)];
    ask!(sc(libc::SYS_io_submit, &[context[0], 1, address(&list)]));
    let mut event = [0i64; 4];
    ask!(sc(
        libc::SYS_io_getevents,
        &[context[0], 1, 1, address_mut(&mut event), 0]
    ));
    match i32::try_from(event[2]) {
        Ok(e) if e < 0 => Outcome::Errno(-e),
        _ => Outcome::Succeeded,
    }
}

fn truncate_to(t: &Target, len: usize) -> Outcome {
    done(sc(libc::SYS_ftruncate, &[ask!(t.fd()), len]))
}

fn shrink(t: &Target) -> Outcome {
    truncate_to(t, ask!(t.len()) - PAGE)
}

fn shrink_to_zero(t: &Target) -> Outcome {
    truncate_to(t, 0)
}

fn grow(t: &Target) -> Outcome {
    truncate_to(t, ask!(t.len()) * 2)
}

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;

fn fallocate(t: &Target, mode: i32, at: usize, len: usize) -> Outcome {
    done(sc(
        libc::SYS_fallocate,
        &[ask!(t.fd()), mode.cast_unsigned() as usize, at, len],
    ))
}

fn punch_hole(t: &Target) -> Outcome {
    fallocate(t, libc::FALLOC_FL_PUNCH_HOLE | KEEP, 0, ask!(t.len()))
}

fn punch_one_page(t: &Target) -> Outcome {
    fallocate(t, libc::FALLOC_FL_PUNCH_HOLE | KEEP, PAGE + 100, 200)
}

fn zero_range(t: &Target) -> Outcome {
    match fallocate(t, libc::FALLOC_FL_ZERO_RANGE, 0, PAGE) {
        // tmpfs does not know it; the hole does the same.
        Outcome::Errno(libc::EOPNOTSUPP) => {
            fallocate(t, libc::FALLOC_FL_PUNCH_HOLE | KEEP, 0, PAGE)
        }
        other => other,
    }
}

fn grow_by_fallocate(t: &Target) -> Outcome {
    let len = ask!(t.len());
    fallocate(t, 0, len, PAGE)
}

fn fallocate_again(t: &Target) -> Outcome {
    fallocate(t, 0, 0, ask!(t.len()))
}

fn keep_size_beyond(t: &Target) -> Outcome {
    let len = ask!(t.len());
    let outcome = fallocate(t, KEEP, len, PAGE);
    if outcome == Outcome::Succeeded && t.fd.is_some() {
        // Blocks past the end would be charged to nobody's agreement: not harm to bytes, but report it.
        let _ = truncate_to(t, len);
    }
    outcome
}

fn collapse_range(t: &Target) -> Outcome {
    fallocate(t, libc::FALLOC_FL_COLLAPSE_RANGE, 0, PAGE)
}

fn insert_range(t: &Target) -> Outcome {
    fallocate(t, libc::FALLOC_FL_INSERT_RANGE, 0, PAGE)
}

fn unshare_range(t: &Target) -> Outcome {
    fallocate(t, libc::FALLOC_FL_UNSHARE_RANGE, 0, PAGE)
}

/// Tries every value of the mode that no attack above names (the kernel may learn new ones).
fn every_fallocate_mode_private(t: &Target) -> Outcome {
    let mut last = Outcome::Errno(libc::EOPNOTSUPP);
    let known = [0, 1, 2, 3, 8, 16, 17, 32, 64];
    for mode in (0..1024).filter(|m| !known.contains(m) && m & 2 == 0) {
        if fallocate(t, mode, 0, PAGE) == Outcome::Succeeded {
            last = Outcome::Succeeded;
        }
    }
    last
}

/// Returns a memfd of the attacker, full of evil bytes.
fn evil_file() -> Result<usize, i32> {
    let fd = sc(
        libc::SYS_memfd_create,
        &[c"evil".as_ptr().expose_provenance(), 0],
    )?;
    let bytes = evil();
    sc(libc::SYS_pwrite64, &[fd, address(&bytes), PAGE, 0])?;
    Ok(fd)
}

fn copy_file_range(t: &Target) -> Outcome {
    let from = ask!(evil_file());
    let (off_in, off_out) = ([0u64], [0u64]);
    let args = [
        from,
        address(&off_in),
        ask!(t.fd()),
        address(&off_out),
        PAGE,
        0,
    ];
    match done(sc(libc::SYS_copy_file_range, &args)) {
        Outcome::Errno(libc::EXDEV | libc::EOPNOTSUPP) => sendfile(t),
        other => other,
    }
}

fn sendfile(t: &Target) -> Outcome {
    let (fd, from) = (ask!(t.fd()), ask!(evil_file()));
    let _ = sc(libc::SYS_lseek, &[fd, 0, 0]);
    let off = [0u64];
    done(sc(libc::SYS_sendfile, &[fd, from, address(&off), PAGE]))
}

pub(super) fn pipe() -> Result<(usize, usize), i32> {
    let mut ends = [0u32; 2];
    sc(libc::SYS_pipe2, &[address_mut(&mut ends), 0])?;
    Ok((ends[0] as usize, ends[1] as usize))
}

/// Returns a pipe with a page of evil bytes in it.
pub(super) fn evil_pipe() -> Result<usize, i32> {
    let (read, write) = pipe()?;
    let bytes = evil();
    sc(libc::SYS_write, &[write, address(&bytes), PAGE])?;
    Ok(read)
}

fn splice_in(t: &Target) -> Outcome {
    let (fd, from) = (ask!(t.fd()), ask!(evil_pipe()));
    let off = [0u64];
    done(sc(libc::SYS_splice, &[from, 0, fd, address(&off), PAGE, 0]))
}

/// Puts the object's page into a pipe and writes to the pipe: the write must not merge into the page.
fn dirty_pipe(t: &Target) -> Outcome {
    let (fd, (_read, write)) = (ask!(t.fd()), ask!(pipe()));
    let off = [0u64];
    ask!(sc(libc::SYS_splice, &[fd, address(&off), write, 0, 1, 0]));
    let bytes = evil();
    done(sc(libc::SYS_write, &[write, address(&bytes), 100]))
}

/// Splices the dirty pages into a pipe, and the pipe's pages back into the object.
fn dirty_pipe_then_splice_back(t: &Target) -> Outcome {
    let (fd, (read, write)) = (ask!(t.fd()), ask!(pipe()));
    let (off, back) = ([0u64], [64u64]);
    ask!(sc(libc::SYS_splice, &[fd, address(&off), write, 0, 200, 0]));
    let bytes = evil();
    ask!(sc(libc::SYS_write, &[write, address(&bytes), 100]));
    done(sc(libc::SYS_splice, &[read, 0, fd, address(&back), 300, 0]))
}

fn fadvise(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    (0..6).fold(Outcome::Succeeded, |_, advice| {
        done(sc(libc::SYS_fadvise64, &[fd, 0, 0, advice]))
    })
}

fn sync_range(t: &Target) -> Outcome {
    let _ = sc(libc::SYS_fsync, &[ask!(t.fd())]);
    done(sc(libc::SYS_sync_file_range, &[ask!(t.fd()), 0, 0, 7]))
}

fn lease(t: &Target) -> Outcome {
    done(sc(libc::SYS_fcntl, &[ask!(t.fd()), 1024, 1]))
}

fn ofd_lock(t: &Target) -> Outcome {
    let lock = [1u64, 0, 0, 0];
    done(sc(libc::SYS_fcntl, &[ask!(t.fd()), 37, address(&lock)]))
}

fn add_no_seals(t: &Target) -> Outcome {
    done(sc(libc::SYS_fcntl, &[ask!(t.fd()), 1033, 0]))
}
