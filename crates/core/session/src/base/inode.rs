//! The file that a descriptor belongs to.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// Returns a number that distinguishes a shared object from every other on this machine; 0 if the kernel does not tell.
pub fn inode(fd: &OwnedFd) -> u64 {
    fd.try_clone()
        .and_then(|fd| File::from(fd).metadata())
        .map_or(0, |meta| meta.ino())
}
