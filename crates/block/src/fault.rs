//! Faults of a request, as they travel.

use serde::{Deserialize, Serialize};

/// Reason for which a request was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Fault {
    /// The request is beyond the end of the store.
    #[error("{len} bytes at {offset} reach beyond the {size} bytes there are")]
    Bounds {
        /// Position in bytes.
        #[serde(with = "postcard::fixint::le")]
        offset: u64,
        /// Number of bytes.
        #[serde(with = "postcard::fixint::le")]
        len: u64,
        /// Size of the store in bytes.
        #[serde(with = "postcard::fixint::le")]
        size: u64,
    },
    /// Writes are refused.
    #[error("the store is read-only")]
    ReadOnly,
    /// The disk is full.
    #[error("no space is left on the server's disk")]
    NoSpace,
    /// An input or output error with the system's number.
    #[error("input or output error {0} of the server's disk")]
    Io(i32),
    /// The block at this offset does not match its checksum.
    #[error("the block at byte {0} does not match its checksum")]
    Corrupt(u64),
    /// The disk cannot do that.
    #[error("not supported by the server's disk")]
    Unsupported,
    /// The bytes are not a valid request.
    #[error(
        "the request is not valid: an operation that there is not, or a length that it does not allow"
    )]
    Invalid,
    /// The server is gone: it may have done the request.
    #[error("the server is gone")]
    Gone,
    /// The server's machine went down while writes that it had acknowledged were not flushed.
    #[error("the server's machine went down with writes that were not flushed")]
    Lost,
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Fault::NoSpace,
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Fault::Unsupported,
            Some(number) => Fault::Io(number),
            None => Fault::Io(libc::EIO),
        }
    }
}
