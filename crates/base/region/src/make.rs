//! Making a sealed memfd: all shared memory is made this way.

use crate::{RwMapping, Sealing, View};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranship_sys::{cgroup, crash, machine, map, memfd};

/// Options of making a memfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opts {
    /// Ask for huge pages. If the kernel gives none, ordinary ones are used.
    pub huge: bool,
    /// The processes that may write.
    pub sealing: Sealing,
}

/// Errors of making memory.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// A length that no memfd can have.
    #[error("a region is a positive multiple of {page_bytes} bytes long, not {len_bytes} bytes")]
    Length { len_bytes: usize, page_bytes: usize },
    /// The cgroup would be over its limit, or the machine out of memory, and the kernel would kill a process.
    #[error("{of} has {free_bytes} bytes left, {need_bytes} are needed")]
    Headroom {
        of: Headroom,
        need_bytes: u64,
        free_bytes: u64,
    },
    /// The kernel refused.
    #[error("{step} for {len_bytes} bytes: {source}")]
    Io {
        step: &'static str,
        len_bytes: usize,
        source: io::Error,
    },
}

/// The memory that would be exhausted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Headroom {
    /// The cgroup's memory.
    #[error("the cgroup")]
    Cgroup,
    /// The machine's memory.
    #[error("the machine")]
    Machine,
}

/// Makes `len` bytes of zeroed memory, mapped for its writer and sealed against all other processes.
///
/// `name` shows in `/proc/PID/maps`.
pub fn make(name: &str, len: usize, opts: Opts) -> Result<(OwnedFd, RwMapping), MakeError> {
    make_mapped(name, len, opts, |fd| RwMapping::map(fd, len))
}

/// Makes an object like [`make`]. `map` makes the writer's mapping in the only moment in which it can: before the
/// seals.
pub(crate) fn make_mapped<M>(
    name: &str,
    len: usize,
    opts: Opts,
    map: impl FnOnce(BorrowedFd<'_>) -> io::Result<M>,
) -> Result<(OwnedFd, M), MakeError> {
    let (fd, mapping) = make_open(name, len, opts.huge, map)?;
    memfd::add_seals(&fd, opts.sealing.added()).map_err(|source| MakeError::Io {
        step: "adding seals",
        len_bytes: len,
        source,
    })?;
    crash::point("region::make::sealed");
    Ok((fd, mapping))
}

/// Makes a memfd with these bytes that no process ever writes again. The length is rounded up to whole pages. The bytes
/// are those that the copy finds.
pub(crate) fn copy_for_nobody(name: &str, bytes: View<'_>) -> Result<OwnedFd, MakeError> {
    let len_bytes = bytes.len();
    let at = |step| {
        move |source| MakeError::Io {
            step,
            len_bytes,
            source,
        }
    };
    let fd = create(name, len_bytes)?;
    // SAFETY: a view can be read; a concurrent writer changes only the bytes that are copied.
    unsafe { memfd::append(&fd, bytes.as_ptr(), len_bytes) }.map_err(at("copying bytes in"))?;
    memfd::add_seals(&fd, Sealing::Nobody.added()).map_err(at("adding seals"))?;
    Ok(fd)
}

/// Makes an object like [`make_mapped`], but without seals: it must not be shown to another process before they are
/// added.
pub(crate) fn make_open<M>(
    name: &str,
    len: usize,
    huge: bool,
    map: impl FnOnce(BorrowedFd<'_>) -> io::Result<M>,
) -> Result<(OwnedFd, M), MakeError> {
    let at = |step| {
        move |source| MakeError::Io {
            step,
            len_bytes: len,
            source,
        }
    };
    // Crash: until another process is shown the descriptor, the memory belongs to this process alone and ends with it.
    let fd = create(name, len)?;
    if huge {
        fill_huge(&fd, len).map_err(at("filling with huge pages"))?;
    }
    memfd::fallocate(&fd, len as u64).map_err(at("fallocate"))?;
    let mapping = map(fd.as_fd()).map_err(at("mmap"))?;
    crash::point("region::make::mapped");
    Ok((fd, mapping))
}

/// Makes a memfd for `len` bytes, once there is room for them.
pub(crate) fn create(name: &str, len: usize) -> Result<OwnedFd, MakeError> {
    let page_bytes = tranship_sys::page_size();
    if len == 0 || !len.is_multiple_of(page_bytes) || isize::try_from(len).is_err() {
        return Err(MakeError::Length {
            len_bytes: len,
            page_bytes,
        });
    }
    let need_bytes = len as u64;
    check_headroom(Headroom::Cgroup, need_bytes, cgroup::headroom())?;
    if machine::free_bytes() < need_bytes {
        check_headroom(Headroom::Machine, need_bytes, machine::available_bytes())?;
    }
    memfd::create(name).map_err(|source| MakeError::Io {
        step: "memfd_create",
        len_bytes: len,
        source,
    })
}

fn check_headroom(of: Headroom, need_bytes: u64, free_bytes: Option<u64>) -> Result<(), MakeError> {
    match free_bytes {
        Some(free_bytes) if free_bytes < need_bytes => Err(MakeError::Headroom {
            of,
            need_bytes,
            free_bytes,
        }),
        _ => Ok(()),
    }
}

/// Fills a file with huge pages. `fallocate` makes huge pages only if shmem is set to `within_size` or `always`. If
/// shmem is set to `advise`, only a page fault in an advised mapping makes them. The file is therefore faulted in
/// first, and `fallocate` fills the rest.
fn fill_huge(fd: &OwnedFd, len: usize) -> io::Result<()> {
    memfd::set_len(fd, len as u64)?;
    let addr = map::map_shared_rw(fd, len, 0)?;
    // SAFETY: exactly the mapping just made, which nothing else refers to; it ends here.
    unsafe {
        // Both calls are best effort: the kernel may be built without huge pages.
        let _ = map::hint(addr, len, map::Hint::Huge)
            .and_then(|()| map::hint(addr, len, map::Hint::PopulateWrite));
        map::unmap(addr, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_passes_verification_and_is_zero() {
        let len = 64 * tranship_sys::page_size();
        for huge in [false, true] {
            let opts = Opts {
                huge,
                ..Opts::default()
            };
            let (fd, map) = make("test", len, opts).expect("make");
            crate::verify(&fd, len).expect("verify");
            assert_eq!(map.len(), len);
            let view = map.view();
            assert!(view.to_vec().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn bad_lengths_are_errors() {
        for len in [0, 1, 4095, usize::MAX - 4095] {
            let error = make("test", len, Opts::default()).expect_err("length");
            assert!(matches!(error, MakeError::Length { len_bytes, .. } if len_bytes == len));
        }
    }

    #[test]
    fn more_than_the_machine_has_is_an_error() {
        let error = make("test", 1 << 60, Opts::default()).expect_err("an exbibyte");
        assert!(
            matches!(
                error,
                MakeError::Headroom {
                    of: Headroom::Cgroup | Headroom::Machine,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn too_little_headroom_is_an_error_with_numbers() {
        for (of, name) in [
            (Headroom::Cgroup, "the cgroup"),
            (Headroom::Machine, "the machine"),
        ] {
            let error = check_headroom(of, 10, Some(9)).expect_err("headroom");
            assert_eq!(
                error.to_string(),
                format!("{name} has 9 bytes left, 10 are needed")
            );
            assert!(check_headroom(of, 10, Some(10)).is_ok());
            assert!(check_headroom(of, u64::MAX, None).is_ok());
        }
    }
}
