//! Checking a memfd that somebody showed us, before anything in it is believed.

use std::io;
use std::os::fd::AsFd;
use tranship_sys::memfd::{self, Seals};

/// Who may write, as the kernel enforces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sealing {
    /// Only its maker, out of the mapping it made before sealing.
    #[default]
    OneWriter,
    /// Everybody who was shown it; nobody can change its size or seal the others out.
    Shared,
    /// Only who has it: its size is fixed, and it has still to become one that [nobody](Sealing::Nobody) writes before it is shown around.
    Open,
    /// Nobody, ever again.
    Nobody,
}

impl Sealing {
    /// What the maker adds; `F_SEAL_EXEC` is there from the beginning.
    pub(crate) fn added(self) -> Seals {
        let fixed = Seals::SHRINK | Seals::GROW | Seals::SEAL;
        match self {
            Sealing::OneWriter => fixed | Seals::FUTURE_WRITE,
            Sealing::Shared => fixed,
            Sealing::Open => Seals::SHRINK | Seals::GROW,
            Sealing::Nobody => fixed | Seals::WRITE,
        }
    }

    /// What a reader must find, no more and no less.
    pub fn exact(self) -> Seals {
        self.added() | Seals::EXEC
    }
}

/// Why a memfd is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A file, or a socket, or whatever, of another kind.
    #[error("not a memfd: the kernel knows no seals of it")]
    NotMemfd,
    /// Not a file on tmpfs.
    #[error("not a memfd on tmpfs: file system type {fs_type:#x}")]
    NotTmpfs { fs_type: u64 },
    /// Its seals are not exactly the prescribed ones.
    #[error("its seals are {found:#x}, not {expected:#x}")]
    Seals { found: u32, expected: u32 },
    /// It is executable.
    #[error("its mode {mode:#o} has an execute bit")]
    Executable { mode: u32 },
    /// Not the size that was agreed.
    #[error("its size is {found_bytes} bytes, not {expected_bytes}")]
    Size {
        found_bytes: u64,
        expected_bytes: u64,
    },
    /// Memory is missing: touching it would charge the reader.
    #[error("only {backed_bytes} of its {size_bytes} bytes have memory")]
    Sparse { backed_bytes: u64, size_bytes: u64 },
    /// The kernel refused to say.
    #[error("{step}: {source}")]
    Io {
        step: &'static str,
        source: io::Error,
    },
}

/// Is this a memfd of `len` bytes that only its maker can write?
pub fn verify(fd: impl AsFd, len: usize) -> Result<(), VerifyError> {
    verify_as(fd, len, Sealing::OneWriter)
}

/// Is this a memfd of `len` bytes, sealed like this?
///
/// The answer stays true: with these seals nothing that is checked here can change.
///
/// It waits for nobody, whatever it is shown and whatever its maker does with it meanwhile: nothing is asked that the file's
/// own file system would answer before it is known to be tmpfs, nor what takes the lock of its inode (`ftruncate`, `lseek`),
/// which whoever is in the middle of a `write` to it may keep.
pub fn verify_as(fd: impl AsFd, len: usize, sealing: Sealing) -> Result<(), VerifyError> {
    let at = |step| move |source| VerifyError::Io { step, source };
    let found = memfd::seals(fd.as_fd()).map_err(|error| match error.kind() {
        // What no seals are known of.
        io::ErrorKind::InvalidInput => VerifyError::NotMemfd,
        _ => at("F_GET_SEALS")(error),
    })?;
    // The seals freeze what is looked at here, so they come first.
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

/// Does a memfd that was verified still have all of its memory? Of one that several may write ([`Sealing::Shared`]) each of these can
/// punch holes into it at any time; touching a hole charges the reader.
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
    // Memory beyond the end, laid there before the seals, would count for what is missing inside.
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
