//! Checking a memfd from a peer, before anything in it is believed.

use std::io;
use std::os::fd::AsFd;
use tranship_sys::memfd::{self, Seals};

/// The processes that may write a file, as the kernel enforces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sealing {
    /// Only the maker may write, by the mapping that it made before sealing.
    #[default]
    OneWriter,
    /// Every process that was shown the file may write it. No process can change its size or prevent the others from
    /// writing.
    Shared,
    /// Only the process that has the descriptor may write. The size is fixed. Before it is shown to others, the file
    /// must become [read-only for all](Sealing::Nobody).
    Open,
    /// No process may write, ever again.
    Nobody,
}

impl Sealing {
    /// Returns the seals that the maker adds; `F_SEAL_EXEC` is there from the beginning.
    pub(crate) fn added(self) -> Seals {
        let fixed = Seals::SHRINK | Seals::GROW | Seals::SEAL;
        match self {
            Sealing::OneWriter => fixed | Seals::FUTURE_WRITE,
            Sealing::Shared => fixed,
            Sealing::Open => Seals::SHRINK | Seals::GROW,
            Sealing::Nobody => fixed | Seals::WRITE,
        }
    }

    /// Returns the seals that a reader must find, no more and no less.
    pub fn exact(self) -> Seals {
        self.added() | Seals::EXEC
    }
}

/// Errors about a memfd that is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The descriptor is of another kind: a file, a socket or the like.
    #[error("not a memfd: the kernel knows no seals of it")]
    NotMemfd,
    /// The file is not on tmpfs.
    #[error("not a memfd on tmpfs: file system type {fs_type:#x}")]
    NotTmpfs { fs_type: u64 },
    /// The seals are not exactly the prescribed ones.
    #[error("its seals are {found:#x}, not {expected:#x}")]
    Seals { found: u32, expected: u32 },
    /// The file is executable.
    #[error("its mode {mode:#o} has an execute bit")]
    Executable { mode: u32 },
    /// The size is not the agreed one.
    #[error("its size is {found_bytes} bytes, not {expected_bytes}")]
    Size {
        found_bytes: u64,
        expected_bytes: u64,
    },
    /// Memory is missing: touching it would charge the reader.
    #[error("only {backed_bytes} of its {size_bytes} bytes have memory")]
    Sparse { backed_bytes: u64, size_bytes: u64 },
    /// The kernel refused to answer.
    #[error("{step}: {source}")]
    Io {
        step: &'static str,
        source: io::Error,
    },
}

/// Checks that `fd` is a memfd of `len` bytes that only its maker can write.
pub fn verify(fd: impl AsFd, len: usize) -> Result<(), VerifyError> {
    verify_as(fd, len, Sealing::OneWriter)
}

/// Checks that `fd` is a memfd of `len` bytes with these seals.
///
/// The answer stays true: with these seals, nothing that is checked here can change.
///
/// The check never waits for another process, whatever descriptor a peer shows and whatever the file's maker does
/// meanwhile. Until the file is known to be on tmpfs, nothing is asked that the file's own file system would answer.
/// The check also avoids calls that take the inode's lock (`ftruncate`, `lseek`), because a process in the middle of a
/// `write` may hold that lock.
pub fn verify_as(fd: impl AsFd, len: usize, sealing: Sealing) -> Result<(), VerifyError> {
    let at = |step| move |source| VerifyError::Io { step, source };
    let found = memfd::seals(fd.as_fd()).map_err(|error| match error.kind() {
        // The kernel knows no seals of such a file.
        io::ErrorKind::InvalidInput => VerifyError::NotMemfd,
        _ => at("F_GET_SEALS")(error),
    })?;
    // The seals freeze everything that is checked below, so they come first.
    let facts = memfd::facts(fd.as_fd()).map_err(at("fstat"))?;
    if !facts.is_tmpfs {
        return Err(VerifyError::NotTmpfs {
            fs_type: facts.fs_type,
        });
    }
    let expected = sealing.exact();
    if found != expected {
        return Err(VerifyError::Seals {
            found: found.bits(),
            expected: expected.bits(),
        });
    }
    check_size(facts, len)?;
    check_backing(facts, fd)
}

/// Checks that a verified memfd still has all of its memory. If several processes may write it ([`Sealing::Shared`]),
/// each of them can punch holes into it at any time, and touching a hole charges the reader.
pub fn backed(fd: impl AsFd) -> Result<(), VerifyError> {
    let facts = memfd::facts(fd.as_fd()).map_err(|source| VerifyError::Io {
        step: "fstat",
        source,
    })?;
    check_backing(facts, fd)
}

fn check_size(facts: memfd::Facts, len: usize) -> Result<(), VerifyError> {
    if facts.mode & 0o111 != 0 {
        return Err(VerifyError::Executable { mode: facts.mode });
    }
    if facts.size != len as u64 {
        return Err(VerifyError::Size {
            found_bytes: facts.size,
            expected_bytes: len as u64,
        });
    }
    Ok(())
}

fn check_backing(facts: memfd::Facts, fd: impl AsFd) -> Result<(), VerifyError> {
    // Memory beyond the end, placed there before the seals, would count in place of memory that is missing inside.
    let beyond = memfd::beyond(fd, facts.size).map_err(|source| VerifyError::Io {
        step: "cachestat",
        source,
    })?;
    let backed_bytes = facts.blocks.saturating_mul(512).saturating_sub(beyond);
    if backed_bytes < facts.size {
        return Err(VerifyError::Sparse {
            backed_bytes,
            size_bytes: facts.size,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
