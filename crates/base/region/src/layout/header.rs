//! The header at the beginning of every kind except the chunk.

use super::{CreateError, OpenError};
use crate::{Opts, RoMapping, RwMapping, Sealing, make, verify, verify_as};
use std::os::fd::{AsFd, OwnedFd};

/// The first 8 bytes: "RANSHIP" and a zero.
pub const MAGIC: u64 = 0x0050_4948_534e_4152;
/// The format version that this code writes and understands.
pub const FORMAT_VERSION: u32 = 1;

/// The kind of a shared object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    Table = 2,
    Refs = 3,
    Sent = 4,
    Rcvd = 5,
    LinkSource = 6,
    LinkSink = 7,
    ControlPage = 8,
    Trace = 9,
    Page = 10,
    Lines = 11,
    Desk = 12,
    Bell = 13,
    /// Written by all that are shown it.
    Claims = 14,
}

impl Kind {
    /// Returns the memfd's name, for people who look into `/proc`.
    fn name(self) -> &'static str {
        match self {
            Kind::Table => "tranship-table",
            Kind::Refs => "tranship-refs",
            Kind::Sent => "tranship-sent",
            Kind::Rcvd => "tranship-rcvd",
            Kind::LinkSource => "tranship-link-source",
            Kind::LinkSink => "tranship-link-sink",
            Kind::ControlPage => "tranship-control-page",
            Kind::Trace => "tranship-trace",
            Kind::Page => "tranship-page",
            Kind::Lines => "tranship-lines",
            Kind::Desk => "tranship-desk",
            Kind::Bell => "tranship-bell",
            Kind::Claims => "tranship-claims",
        }
    }
}

/// 64 bytes, written once before sealing: the magic number, version, kind, count, a zero, two words of the kind's own,
/// three zeros.
type Words = [u64; 8];

/// Verifies and maps an object that all which are shown it can write.
pub fn open_shared(fd: impl AsFd, len: usize) -> Result<RwMapping, OpenError> {
    verify_as(fd.as_fd(), len, Sealing::Shared)?;
    RwMapping::map(fd, len).map_err(|source| OpenError::Map {
        len_bytes: len,
        source,
    })
}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "the format is little-endian"
);

/// The fields of a header that are not constants.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    pub kind: Kind,
    pub count: u32,
    pub extra: [u64; 2],
}

impl Says {
    /// Makes an object with this header. `fill` writes everything else that must be there before the object is shown.
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

    /// Makes an object with this header that all which are shown it can write.
    pub fn create_shared(self, len: usize) -> Result<(OwnedFd, RwMapping), CreateError> {
        let opts = Opts {
            sealing: Sealing::Shared,
            ..Opts::default()
        };
        let (fd, map) = make(self.kind.name(), len, opts)?;
        self.write(&map);
        Ok((fd, map))
    }

    /// Writes the header, before the object is shown to another process.
    pub(super) fn write(self, map: &RwMapping) {
        // SAFETY: in bounds, aligned (checked by `at`), and no other process or thread has been shown it yet.
        unsafe { map.at::<Words>(0).as_ptr().write(self.words()) };
    }

    fn words(self) -> Words {
        let [first, second] = self.extra;
        let version = u64::from(FORMAT_VERSION) | (self.kind as u64) << 32;
        [MAGIC, version, self.count.into(), first, second, 0, 0, 0]
    }

    /// Verifies and maps a descriptor from a peer, and compares a single copy of its header.
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
        let found: Words = map.view().read(0).unwrap_or_default();
        let expected = self.words();
        let half = |at: usize| [found[at], expected[at]].map(|word| word & u64::from(u32::MAX));
        let upper = |at: usize| [found[at], expected[at]].map(|word| word >> 32);
        let word = |at: usize| [found[at], expected[at]];
        let fields = [
            ("magic", word(0)),
            ("version", half(1)),
            ("kind", upper(1)),
            ("count", half(2)),
            ("the word at 20", upper(2)),
            ("the word at 24", word(3)),
            ("the word at 32", word(4)),
            ("the word at 40", word(5)),
            ("the word at 48", word(6)),
            ("the word at 56", word(7)),
        ];
        for (field, [found, expected]) in fields {
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
