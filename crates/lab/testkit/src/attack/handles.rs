//! Through the descriptor as an object: seals, handles, clones, other drivers that take a memfd.

use super::{
    Outcome, PAGE, PROT_RW, Target, address, address_mut, ask, attacks, done, open, sc, scribble,
    use_writable,
};

attacks! {
    Unsealed { add_seal_grow, add_seal_seal, add_seal_future_write, add_seal_exec, open_by_handle, udmabuf }
    Harmless {
        ficlone, ficlone_range, dedupe_range, set_flags, link_into_tree, execute, make_executable, add_seal_write, set_xattr,
        watch, send_to_self, open_tree_clone, secret_ioctls,
    }
}

const ADD_SEALS: usize = 1033;

fn seal(t: &Target, seal: usize) -> Outcome {
    done(sc(libc::SYS_fcntl, &[ask!(t.fd()), ADD_SEALS, seal]))
}

/// Adds the seal. Refused with EBUSY while a process has it mapped writable, with EPERM when sealed.
fn add_seal_write(t: &Target) -> Outcome {
    seal(t, 8)
}

fn add_seal_grow(t: &Target) -> Outcome {
    seal(t, 4)
}

fn add_seal_seal(t: &Target) -> Outcome {
    seal(t, 1)
}

fn add_seal_future_write(t: &Target) -> Outcome {
    seal(t, 16)
}

fn add_seal_exec(t: &Target) -> Outcome {
    seal(t, 32)
}

fn ficlone(t: &Target) -> Outcome {
    let other = ask!(sc(
        libc::SYS_memfd_create,
        &[c"other".as_ptr().expose_provenance(), 0]
    ));
    done(sc(libc::SYS_ioctl, &[ask!(t.fd()), 0x4004_9409, other]))
}

fn ficlone_range(t: &Target) -> Outcome {
    let other = ask!(sc(
        libc::SYS_memfd_create,
        &[c"other".as_ptr().expose_provenance(), 0]
    ));
    let range = [other as u64, 0, PAGE as u64, 0];
    done(sc(
        libc::SYS_ioctl,
        &[ask!(t.fd()), 0x4020_940d, address(&range)],
    ))
}

fn dedupe_range(t: &Target) -> Outcome {
    let other = ask!(sc(
        libc::SYS_memfd_create,
        &[c"other".as_ptr().expose_provenance(), 0]
    ));
    let mut range = [0u64, PAGE as u64, 1, ask!(t.fd()) as u64, 0, 0, 0, 0];
    done(sc(
        libc::SYS_ioctl,
        &[other, 0xc018_9436, address_mut(&mut range)],
    ))
}

/// Sets flags: immutable or append-only would stop the writer.
fn set_flags(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    let mut worst = Outcome::Errno(libc::EPERM);
    for flags in [0x10u32, 0x20] {
        let flags = [flags];
        if sc(libc::SYS_ioctl, &[fd, 0x4008_6602, address(&flags)]).is_ok() {
            worst = Outcome::Succeeded;
        }
    }
    worst
}

fn link_into_tree(t: &Target) -> Outcome {
    let path = c"/tmp/tranship-link-of-a-memfd"
        .as_ptr()
        .expose_provenance();
    let (empty, cwd) = (
        c"".as_ptr().expose_provenance(),
        libc::AT_FDCWD.cast_unsigned() as usize,
    );
    done(sc(
        libc::SYS_linkat,
        &[ask!(t.fd()), empty, cwd, path, 0x1000],
    ))
}

fn execute(t: &Target) -> Outcome {
    let (empty, list) = (c"".as_ptr().expose_provenance(), [0usize]);
    done(sc(
        libc::SYS_execveat,
        &[ask!(t.fd()), empty, address(&list), address(&list), 0x1000],
    ))
}

fn make_executable(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    let outcome = done(sc(libc::SYS_fchmod, &[fd, 0o700]));
    let _ = sc(libc::SYS_fchmod, &[fd, 0]);
    outcome
}

/// Opens a fresh descriptor of the inode, with CAP_DAC_READ_SEARCH.
fn open_by_handle(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    // handle_bytes, handle_type, 128 bytes of handle
    let mut handle = [0u32; 34];
    handle[0] = 128;
    let mut mount = [0i32];
    let empty = c"".as_ptr().expose_provenance();
    ask!(sc(
        libc::SYS_name_to_handle_at,
        &[
            fd,
            empty,
            address_mut(&mut handle),
            address_mut(&mut mount),
            0x1000
        ]
    ));
    use_writable(ask!(sc(
        libc::SYS_open_by_handle_at,
        &[fd, address(&handle), 2]
    )))
}

/// A driver that makes a device buffer out of a memfd that cannot shrink, and maps it writable. Kernels before 6.13 did
/// so for FUTURE_WRITE too, for every process that may open /dev/udmabuf.
fn udmabuf(t: &Target) -> Outcome {
    let Ok(device) = open("/dev/udmabuf", libc::O_RDWR) else {
        return Outcome::Unavailable(libc::ENODEV);
    };
    // memfd (u32), flags (u32), offset, size
    let create = [ask!(t.fd()) as u64, 0, PAGE as u64];
    let buffer = ask!(sc(
        libc::SYS_ioctl,
        &[device, 0x4018_7542, address(&create)]
    ));
    let at = ask!(sc(libc::SYS_mmap, &[0, PAGE, PROT_RW, 1, buffer, 0]));
    scribble((at, PAGE))
}

fn set_xattr(t: &Target) -> Outcome {
    let (name, value) = (c"user.evil".as_ptr().expose_provenance(), [0u8; 64]);
    done(sc(
        libc::SYS_fsetxattr,
        &[ask!(t.fd()), name, address(&value), 64, 0],
    ))
}

fn watch(t: &Target) -> Outcome {
    let notify = ask!(sc(libc::SYS_inotify_init1, &[0]));
    let path = ask!(
        std::ffi::CString::new(format!("/proc/self/fd/{}", ask!(t.fd()))).map_err(|_| libc::EINVAL)
    );
    done(sc(
        libc::SYS_inotify_add_watch,
        &[notify, path.as_ptr().expose_provenance(), 0xfff],
    ))
}

/// Parks the descriptor in a socket that nobody reads.
fn send_to_self(t: &Target) -> Outcome {
    use std::os::fd::BorrowedFd;
    let Some(fd) = t.fd else {
        return Outcome::Unavailable(0);
    };
    let Ok((a, _b)) = crate::Control::pair() else {
        return Outcome::Unavailable(0);
    };
    // SAFETY: the descriptor stays open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if a.send_fds("parked", &[fd]).is_ok() {
        Outcome::Succeeded
    } else {
        Outcome::Errno(libc::EPERM)
    }
}

fn open_tree_clone(t: &Target) -> Outcome {
    let empty = c"".as_ptr().expose_provenance();
    use_if_any(sc(libc::SYS_open_tree, &[ask!(t.fd()), empty, 0x1000 | 1]))
}

fn use_if_any(fd: Result<usize, i32>) -> Outcome {
    let reopened = ask!(open(&format!("/proc/self/fd/{}", ask!(fd)), libc::O_RDWR));
    use_writable(reopened)
}

/// Tries every ioctl of the file systems' type with no argument that could hurt others.
fn secret_ioctls(t: &Target) -> Outcome {
    let fd = ask!(t.fd());
    let zero = [0u64; 64];
    let mut last = Outcome::Errno(libc::ENOTTY);
    for kind in [0x66usize, 0x58, 0x94] {
        for nr in 0..64 {
            let request = 1 << 30 | 8 << 16 | kind << 8 | nr;
            last = done(sc(libc::SYS_ioctl, &[fd, request, address(&zero)]));
        }
    }
    last
}
