//! Pieces of files that are not mapped here.

use crate::error::Error;
use std::io;
use std::os::fd::BorrowedFd;

/// Reads all of `to` at an offset; a file that has become too short is an error.
pub(crate) fn read_exact(fd: BorrowedFd<'_>, offset: u64, to: &mut [u8]) -> Result<(), Error> {
    let len = to.len();
    let mut done = 0;
    while done < len {
        let source = match rustix::io::pread(fd, &mut to[done..], offset + done as u64) {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(n) => {
                done += n;
                continue;
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => errno.into(),
        };
        return Err(Error::File {
            offset,
            len,
            source,
        });
    }
    Ok(())
}
