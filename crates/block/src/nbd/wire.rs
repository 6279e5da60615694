//! The numbers of the NBD protocol, and the codec of its transmission phase.
//!
//! Source: the NetworkBlockDevice project's `doc/proto.md`, fixed newstyle. Everything is big-endian.

use crate::{Extent, Fault, Info};

pub(super) const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// The context whose answers say which bytes are holes, and its number here.
pub(super) const ALLOCATION: &str = "base:allocation";
pub(super) const ALLOCATION_ID: u32 = 1;
/// The most pieces of one answer about them.
pub(super) const MOST_EXTENTS: usize = 1024;

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
    pub(in super::super) const LIST_CONTEXTS: u32 = 9;
    pub(in super::super) const SET_CONTEXTS: u32 = 10;
    pub(in super::super) const EXTENDED_HEADERS: u32 = 11;
}

/// Answers to options.
pub(super) mod reply {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const META_CONTEXT: u32 = 4;
    pub(in super::super) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(in super::super) const INVALID: u32 = 1 << 31 | 3;
    pub(in super::super) const UNKNOWN: u32 = 1 << 31 | 6;
    pub(in super::super) const EXTENDED_ALREADY: u32 = 1 << 31 | 10;
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
    Status,
    Other(u16),
}

/// A request, as it travels: 28 bytes, or 32 with an extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub command: Command,
    pub durable: bool,
    pub keep_space: bool,
    /// One piece is enough of an answer.
    pub one: bool,
    /// Bytes of a payload follow, although the command has none.
    pub payload: bool,
    /// Flags that the server has not offered.
    pub strange: bool,
    pub cookie: u64,
    pub offset: u64,
    pub len: u64,
}

/// Returns the length of a request.
pub(super) fn request_bytes(extended: bool) -> usize {
    if extended { MOST_REQUEST_BYTES } else { 28 }
}

pub(super) const MOST_REQUEST_BYTES: usize = 32;

impl Request {
    /// Decodes a request. None: the bytes are no request, and the bytes after them have no known meaning.
    pub(super) fn decode(bytes: &[u8; MOST_REQUEST_BYTES], extended: bool) -> Option<Request> {
        let two = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| u32::from(two(at)) << 16 | u32::from(two(at + 2));
        let eight = |at: usize| u64::from(four(at)) << 32 | u64::from(four(at + 4));
        let (magic, len) = match extended {
            true => (EXTENDED_REQUEST_MAGIC, eight(24)),
            false => (REQUEST_MAGIC, four(24).into()),
        };
        if four(0) != magic {
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
            7 => Command::Status,
            other => Command::Other(other),
        };
        let allowed = match command {
            Command::Zero => 1 | 2,
            Command::Status => 1 | 8,
            Command::Write if extended => 1 | 32,
            _ => 1,
        };
        let payload = extended && flags & 32 != 0 && command != Command::Write;
        Some(Request {
            command,
            durable: flags & 1 != 0,
            keep_space: flags & 2 != 0,
            one: flags & 8 != 0,
            payload,
            strange: flags & !allowed != 0,
            cookie: eight(8),
            offset: eight(16),
            len,
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

/// Request that chunks answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Of {
    pub cookie: u64,
    /// Offset of the request, where headers are extended.
    pub extended: Option<u64>,
}

fn chunk(of: Of, done: bool, kind: u16, len: usize) -> Vec<u8> {
    let cookie = of.cookie;
    if let Some(offset) = of.extended {
        return [
            &EXTENDED_CHUNK_MAGIC.to_be_bytes()[..],
            &u16::from(done).to_be_bytes(),
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &(len as u64).to_be_bytes(),
        ]
        .concat();
    }
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
pub(super) fn data_head(of: Of, done: bool, offset: u64, len: usize) -> Vec<u8> {
    let mut head = chunk(of, done, 1, len + 8);
    head.extend(offset.to_be_bytes());
    head
}

/// Returns the chunk that says which bytes are holes.
pub(super) fn extents_chunk(of: Of, extents: &[Extent]) -> Vec<u8> {
    let wide = of.extended.is_some();
    let each = if wide { 16 } else { 8 };
    let (kind, before) = if wide { (6, 8) } else { (5, 4) };
    let mut whole = chunk(of, true, kind, before + each * extents.len());
    whole.extend(ALLOCATION_ID.to_be_bytes());
    if wide {
        whole.extend(u32::try_from(extents.len()).unwrap_or(0).to_be_bytes());
    }
    for extent in extents {
        // A hole, and reads as zeros.
        let flags: u32 = if extent.hole { 1 | 2 } else { 0 };
        match wide {
            true => {
                whole.extend(extent.len.to_be_bytes());
                whole.extend(u64::from(flags).to_be_bytes());
            }
            // No longer than the request, whose length has 32 bits.
            false => {
                whole.extend(u32::try_from(extent.len).unwrap_or(0).to_be_bytes());
                whole.extend(flags.to_be_bytes());
            }
        }
    }
    whole
}

/// Returns the last chunk of a reply.
pub(super) fn end_chunk(of: Of, result: Result<(), Fault>) -> Vec<u8> {
    let Err(fault) = result else {
        return chunk(of, true, 0, 0);
    };
    let text = fault.to_string();
    let mut whole = chunk(of, true, 1 << 15 | 1, 6 + text.len());
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
        let mut bytes = [0; MOST_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        (bytes[5], bytes[7], bytes[15], bytes[23], bytes[26]) = (1, 1, 9, 5, 16);
        let wants = Request {
            command: Command::Write,
            durable: true,
            keep_space: false,
            one: false,
            payload: false,
            strange: false,
            cookie: 9,
            offset: 5,
            len: 4096,
        };
        assert_eq!(Request::decode(&bytes, false), Some(wants));
        assert_eq!(Request::decode(&bytes, true), None);
        bytes[4] = 1;
        assert!(Request::decode(&bytes, false).is_some_and(|request| request.strange));
        bytes[0] = 0;
        assert_eq!(Request::decode(&bytes, false), None);
        bytes = [0; MOST_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&EXTENDED_REQUEST_MAGIC.to_be_bytes());
        (bytes[5], bytes[7], bytes[26]) = (32 | 8, 7, 1);
        let request = Request::decode(&bytes, true).expect("a request");
        assert_eq!((request.command, request.len), (Command::Status, 1 << 40));
        assert!(request.one && request.payload && request.strange);
    }

    #[test]
    fn replies_have_the_lengths_that_they_say() {
        assert_eq!(simple(7, Ok(())).len(), 16);
        assert_eq!(simple(7, Err(Fault::ReadOnly))[4..8], 1u32.to_be_bytes());
        let [short, wide] = [None, Some(3)].map(|extended| Of {
            cookie: 7,
            extended,
        });
        assert_eq!(data_head(short, true, 0, 5).len(), 28);
        assert_eq!(data_head(wide, true, 0, 5).len(), 40);
        let holes = [true, false].map(|hole| Extent { len: 5, hole });
        for of in [short, wide] {
            let all = [
                end_chunk(of, Ok(())),
                end_chunk(of, Err(Fault::Lost)),
                extents_chunk(of, &holes),
            ];
            for whole in all {
                let head = if of == wide { 32 } else { 20 };
                let says = u32::from_be_bytes([
                    whole[head - 4],
                    whole[head - 3],
                    whole[head - 2],
                    whole[head - 1],
                ]);
                assert_eq!(whole.len() - head, says as usize);
            }
        }
    }
}
