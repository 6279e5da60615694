//! The numbers of the NBD protocol, and the codec of its transmission phase.
//!
//! Source: the NetworkBlockDevice project's `doc/proto.md`, fixed newstyle. Everything is big-endian.

use crate::{Fault, Info};

pub(super) const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the server, and the client's answer: fixed newstyle, no zeroes after an export's flags.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

/// Options.
pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
}

/// Answers to options.
pub(super) mod reply {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(in super::super) const INVALID: u32 = 1 << 31 | 3;
    pub(in super::super) const UNKNOWN: u32 = 1 << 31 | 6;
}

/// Kinds of information about an export.
pub(super) mod info {
    pub(in super::super) const EXPORT: u16 = 0;
    pub(in super::super) const BLOCK_SIZE: u16 = 3;
}

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const CAN_MULTI_CONN: u16 = 1 << 8;

/// The longest read and write, bytes.
pub(super) const MAX_BYTES: u32 = 32 << 20;
/// Number of bytes that requests should be a multiple of; any will do.
pub(super) const PREFERRED_BYTES: u32 = 4096;

/// Returns the flags of an export. A flush over one connection covers writes that were acknowledged over others.
pub(super) fn export_flags(info: &Info) -> u16 {
    let writes = SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES;
    HAS_FLAGS | SEND_FLUSH | CAN_MULTI_CONN | if info.read_only { READ_ONLY } else { writes }
}

/// Command of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Zero,
    Other(u16),
}

/// A request, as it travels: 28 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub command: Command,
    pub durable: bool,
    pub keep_space: bool,
    /// Flags that the server has not offered.
    pub strange: bool,
    pub cookie: u64,
    pub offset: u64,
    pub len: u32,
}

pub(super) const REQUEST_BYTES: usize = 28;

impl Request {
    /// Decodes a request. None: the bytes are no request, and the bytes after them have no known meaning.
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let two = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| u32::from(two(at)) << 16 | u32::from(two(at + 2));
        let eight = |at: usize| u64::from(four(at)) << 32 | u64::from(four(at + 4));
        if four(0) != REQUEST_MAGIC {
            return None;
        }
        let flags = two(4);
        let command = match two(6) {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::Zero,
            other => Command::Other(other),
        };
        let allowed = match command {
            Command::Zero => 1 | 2,
            _ => 1,
        };
        Some(Request {
            command,
            durable: flags & 1 != 0,
            keep_space: flags & 2 != 0,
            strange: flags & !allowed != 0,
            cookie: eight(8),
            offset: eight(16),
            len: four(24),
        })
    }
}

/// Returns the protocol's number of a fault.
pub(super) fn error_number(fault: Fault) -> u32 {
    let number = match fault {
        Fault::Bounds { .. } | Fault::Invalid => libc::EINVAL,
        Fault::ReadOnly => libc::EPERM,
        Fault::NoSpace => libc::ENOSPC,
        Fault::Unsupported => libc::EOPNOTSUPP,
        Fault::Io(_) | Fault::Corrupt(_) | Fault::Gone | Fault::Lost => libc::EIO,
    };
    number.unsigned_abs()
}

/// Returns a simple reply; a read's bytes follow it.
pub(super) fn simple(cookie: u64, result: Result<(), Fault>) -> Vec<u8> {
    let error = result.map_or_else(error_number, |()| 0);
    [
        &SIMPLE_MAGIC.to_be_bytes()[..],
        &error.to_be_bytes(),
        &cookie.to_be_bytes(),
    ]
    .concat()
}

fn chunk(cookie: u64, done: bool, kind: u16, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    [
        &CHUNK_MAGIC.to_be_bytes()[..],
        &u16::from(done).to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat()
}

/// Returns the head of a chunk with `len` bytes that lie at `offset`.
pub(super) fn data_head(cookie: u64, done: bool, offset: u64, len: usize) -> Vec<u8> {
    let mut head = chunk(cookie, done, 1, len + 8);
    head.extend(offset.to_be_bytes());
    head
}

/// Returns the last chunk of a reply.
pub(super) fn end_chunk(cookie: u64, result: Result<(), Fault>) -> Vec<u8> {
    let Err(fault) = result else {
        return chunk(cookie, true, 0, 0);
    };
    let text = fault.to_string();
    let mut whole = chunk(cookie, true, 1 << 15 | 1, 6 + text.len());
    whole.extend(error_number(fault).to_be_bytes());
    whole.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    whole.extend(text.as_bytes());
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        (bytes[5], bytes[7], bytes[15], bytes[23], bytes[26]) = (1, 1, 9, 5, 16);
        let wants = Request {
            command: Command::Write,
            durable: true,
            keep_space: false,
            strange: false,
            cookie: 9,
            offset: 5,
            len: 4096,
        };
        assert_eq!(Request::decode(&bytes), Some(wants));
        bytes[4] = 1;
        assert!(Request::decode(&bytes).is_some_and(|request| request.strange));
        bytes[0] = 0;
        assert_eq!(Request::decode(&bytes), None);
    }

    #[test]
    fn replies_have_the_lengths_that_they_say() {
        assert_eq!(simple(7, Ok(())).len(), 16);
        assert_eq!(simple(7, Err(Fault::ReadOnly))[4..8], 1u32.to_be_bytes());
        assert_eq!(data_head(7, true, 0, 5).len(), 28);
        for result in [Ok(()), Err(Fault::Lost)] {
            let whole = end_chunk(7, result);
            let says = u32::from_be_bytes([whole[16], whole[17], whole[18], whole[19]]);
            assert_eq!(whole.len() - 20, says as usize);
        }
    }
}
