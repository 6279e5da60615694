//! The header that all kinds but the chunk begin with.

use super::{CreateError, OpenError};
use crate::{Opts, RoMapping, RwMapping, make, verify};
use std::os::fd::{AsFd, OwnedFd};

/// The first 8 bytes: "RANSHIP" and a zero.
pub const MAGIC: u64 = 0x0050_4948_534e_4152;
/// What this code writes and understands.
pub const FORMAT_VERSION: u32 = 1;

/// What is in a shared object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    Table = 2,
    Refs = 3,
    Sent = 4,
    Rcvd = 5,
    LinkSource = 6,
    LinkSink = 7,
    Board = 8,
    Trace = 9,
    Page = 10,
}

impl Kind {
    /// The memfd's name, for people who look into `/proc`.
    fn name(self) -> &'static str {
        match self {
            Kind::Table => "tranship-table",
            Kind::Refs => "tranship-refs",
            Kind::Sent => "tranship-sent",
            Kind::Rcvd => "tranship-rcvd",
            Kind::LinkSource => "tranship-link-source",
            Kind::LinkSink => "tranship-link-sink",
            Kind::Board => "tranship-board",
            Kind::Trace => "tranship-trace",
            Kind::Page => "tranship-page",
        }
    }
}

/// 64 bytes, written once before sealing.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub(super) struct Header {
    magic: u64,
    version: u32,
    kind: u32,
    count: u32,
    zero: u32,
    extra: [u64; 2],
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Header>() == 64);
const _: () = assert!(std::mem::offset_of!(Header, count) == 16);
const _: () = assert!(std::mem::offset_of!(Header, extra) == 24);
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the format is little-endian"
);

/// What a header says, apart from the constants.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    pub kind: Kind,
    pub count: u32,
    pub extra: [u64; 2],
}

impl Says {
    /// Makes an object with this header; `fill` writes what else must be there before it is shown.
    pub fn create(
        self,
        len: usize,
        fill: impl FnOnce(&RwMapping),
    ) -> Result<(OwnedFd, RwMapping), CreateError> {
        let (fd, map) = make(self.kind.name(), len, Opts::default())?;
        self.write(&map);
        fill(&map);
        Ok((fd, map))
    }

    /// Writes the header, before anybody else is shown the object.
    pub(super) fn write(self, map: &RwMapping) {
        let header = Header {
            magic: MAGIC,
            version: FORMAT_VERSION,
            kind: self.kind as u32,
            count: self.count,
            zero: 0,
            extra: self.extra,
            rest: [0; 3],
        };
        // SAFETY: in bounds, aligned (checked by `at`), and nobody else was shown it yet.
        unsafe { map.at::<Header>(0).as_ptr().write(header) };
    }

    /// Verifies and maps what we were shown, and compares its header, copied once.
    pub fn open(self, fd: impl AsFd, len: usize) -> Result<RoMapping, OpenError> {
        verify(fd.as_fd(), len)?;
        let map = RoMapping::map(fd, len).map_err(|source| OpenError::Map {
            len_bytes: len,
            source,
        })?;
        self.check(&map)?;
        Ok(map)
    }

    /// Compares the header, copied once.
    pub(super) fn check(self, map: &RoMapping) -> Result<(), OpenError> {
        // A mapping has at least a page.
        let header: Header = map.view().read(0).unwrap_or(Header {
            magic: 0,
            version: 0,
            kind: 0,
            count: 0,
            zero: 0,
            extra: [0; 2],
            rest: [0; 3],
        });
        let fields = [
            ("magic", header.magic, MAGIC),
            ("version", header.version.into(), FORMAT_VERSION.into()),
            ("kind", header.kind.into(), self.kind as u64),
            ("count", header.count.into(), self.count.into()),
            ("the word at 20", header.zero.into(), 0),
            ("the word at 24", header.extra[0], self.extra[0]),
            ("the word at 32", header.extra[1], self.extra[1]),
            ("the word at 40", header.rest[0], 0),
            ("the word at 48", header.rest[1], 0),
            ("the word at 56", header.rest[2], 0),
        ];
        for (field, found, expected) in fields {
            if found != expected {
                return Err(OpenError::Header {
                    field,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}
