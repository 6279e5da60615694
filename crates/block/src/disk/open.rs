//! Opening a file or a block device.

use super::options::{ALIGN, Access, DiskOptions};
use rustix::fs::{FlockOperation, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Reason for which a disk cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel refused.
    #[error("{path}: {error}")]
    System {
        /// The file or device.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// A folder, a pipe or the like.
    #[error("{0} is neither a file nor a block device")]
    FileType(PathBuf),
    /// Another program serves it.
    #[error("{0} is in use by another server")]
    InUse(PathBuf),
    /// Another size was asked for than the file has.
    #[error(
        "{path} has {has} bytes, not {wants}: an existing one is not cut, and a device has the size that it has"
    )]
    Size {
        /// The file or device.
        path: PathBuf,
        /// Size that the file has, in bytes.
        has: u64,
        /// Size that was asked for, in bytes.
        wants: u64,
    },
    /// A new or empty file, and no size.
    #[error("{0} has no bytes: give its size")]
    Empty(PathBuf),
    /// Direct input and output was asked for.
    #[error(
        "{0} cannot be read and written without the page cache: its file system, or its size, does not allow it"
    )]
    Direct(PathBuf),
}

/// File that was opened.
pub(super) struct Opened {
    pub file: File,
    pub size: u64,
    pub direct: bool,
}

/// Longest time that an ending server may keep the file.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two checks whether it is gone.
const ROUND: Duration = Duration::from_millis(5);

pub(super) fn open(path: &Path, options: &DiskOptions) -> Result<Opened, OpenError> {
    let system = |error| OpenError::System {
        path: path.to_owned(),
        error,
    };
    let (file, size) = plain(path, options)?;
    if size == 0 {
        return Err(OpenError::Empty(path.to_owned()));
    }
    // Whole blocks only: the last one would make the file longer.
    let whole = size.is_multiple_of(ALIGN);
    let without = (options.access != Access::Buffered && whole)
        .then(|| open_file(path, options, OFlags::DIRECT));
    let (file, direct) = match (without, options.access) {
        (Some(Ok(direct)), _) if takes_direct(&direct) => (direct, true),
        (_, Access::Direct) => return Err(OpenError::Direct(path.to_owned())),
        (tried, _) => {
            if tried.is_some() || !whole {
                tracing::info!("{}: through the page cache", path.display());
            }
            (file, false)
        }
    };
    lock(&file, options.read_only)
        .map_err(system)?
        .then_some(())
        .ok_or_else(|| OpenError::InUse(path.to_owned()))?;
    Ok(Opened { file, size, direct })
}

fn open_file(path: &Path, options: &DiskOptions, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .create(!options.read_only && options.size.is_some())
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
}

/// Opens it through the page cache, with the wanted size.
fn plain(path: &Path, options: &DiskOptions) -> Result<(File, u64), OpenError> {
    let system = |error| OpenError::System {
        path: path.to_owned(),
        error,
    };
    let mut file = open_file(path, options, OFlags::empty()).map_err(system)?;
    let kind = file.metadata().map_err(system)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::FileType(path.to_owned()));
    }
    let has = file.seek(SeekFrom::End(0)).map_err(system)?;
    match options.size {
        Some(wants) if wants > has && kind.is_file() && !options.read_only => {
            file.set_len(wants).map_err(system)?;
            // A length that a crash takes back would take flushed writes with it.
            file.sync_all().map_err(system)?;
            Ok((file, wants))
        }
        Some(wants) if wants != has => Err(OpenError::Size {
            path: path.to_owned(),
            has,
            wants,
        }),
        _ => Ok((file, has)),
    }
}

/// Returns whether the flag works. Some file systems accept the flag and refuse to read.
fn takes_direct(file: &File) -> bool {
    let mut page = crate::Data::heap(crate::BLOCK_BYTES);
    let (then, done) = std::sync::mpsc::channel();
    let step = super::step::Step {
        action: super::step::Action::Read,
        offset: 0,
        len: page.len(),
        at: 0,
        data: std::mem::replace(&mut page, crate::Data::None),
        then: Box::new(move |_, result| {
            let _ = then.send(result.is_ok());
        }),
    };
    step.run(std::os::fd::AsFd::as_fd(file));
    done.recv().unwrap_or(false)
}

/// Locks the file for one writing server at a time. The lock lasts as long as anything of the kernel still works on the
/// file, also after its server was killed. Thus no write of an earlier server comes after a write of a later one.
fn lock(file: &File, shared: bool) -> io::Result<bool> {
    let how = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(ROUND);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}
