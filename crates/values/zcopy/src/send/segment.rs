//! Data to send: pieces as the program names them, segments as the kernel is told.

use super::way::Cause;
use crate::arena::Inner;
use crate::{Arena, Value};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use tranship_core::Buffer;

/// A piece of a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Piece<'a> {
    /// A value, whole.
    Value(&'a Value),
    /// A part of a value.
    ///
    /// Sending panics if the range is not inside it.
    Part(&'a Value, Range<usize>),
    /// Memory that may change afterwards: always copied.
    Bytes(&'a [u8]),
    /// Memory that never changes again as long as the process lives, like a constant: sent by reference.
    ReadOnly(&'static [u8]),
    /// Memory of [`Arena::alloc_raw`], see [`Piece::raw`].
    Raw(Raw<'a>),
    /// A buffer of a shared pool, this process's own or one that another process sent. A buffer that goes out by
    /// reference has a handle in the [`crate::Socket`] until the kernel reports that it needs its pages no more. So its
    /// memory is not used again before. Its writer can change it meanwhile if the pool's level of trust allows that.
    Buffer(&'a Buffer),
    /// A part of one.
    ///
    /// Sending panics if the range is not inside it.
    BufferPart(&'a Buffer, Range<usize>),
    /// The bytes of a range of a file, by sendfile(2): as there, a process that writes the file changes the bytes under
    /// way. Streams only.
    File(&'a File, Range<u64>),
}

/// Memory that C manages.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    pub(super) arena: &'a Arena,
    pub(super) at: *const u8,
    pub(super) len: usize,
}

impl<'a> Piece<'a> {
    /// Returns the rest of pieces of which so many bytes were sent.
    #[must_use]
    pub fn after(pieces: &[Piece<'a>], mut sent: usize) -> Vec<Piece<'a>> {
        let mut rest = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let now = sent.min(piece.len());
            sent -= now;
            if now == piece.len() {
                continue;
            }
            rest.push(match piece {
                Piece::Value(value) => Piece::Part(value, now..value.len()),
                Piece::Part(value, range) => Piece::Part(value, range.start + now..range.end),
                Piece::Bytes(bytes) => Piece::Bytes(&bytes[now..]),
                Piece::ReadOnly(bytes) => Piece::ReadOnly(&bytes[now..]),
                Piece::Raw(raw) => Piece::Raw(Raw {
                    at: raw.at.wrapping_add(now),
                    len: raw.len - now,
                    ..*raw
                }),
                Piece::Buffer(buffer) => Piece::BufferPart(buffer, now..buffer.len()),
                Piece::BufferPart(buffer, range) => {
                    Piece::BufferPart(buffer, range.start + now..range.end)
                }
                Piece::File(file, range) => Piece::File(file, range.start + now as u64..range.end),
            });
        }
        rest
    }

    /// Returns its bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a piece of nothing is a piece")]
    pub fn len(&self) -> usize {
        match self {
            Piece::Value(value) => value.len(),
            Piece::Part(_, range) => range.len(),
            Piece::Bytes(bytes) => bytes.len(),
            Piece::ReadOnly(bytes) => bytes.len(),
            Piece::Raw(raw) => raw.len,
            Piece::Buffer(buffer) => buffer.len(),
            Piece::BufferPart(_, range) => range.len(),
            Piece::File(_, range) => {
                usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
            }
        }
    }

    /// Notes that the kernel is about to be given the pages of this; it is likely to be of the arena that is `known`.
    pub(super) fn lend(&self, known: Option<&Arc<Inner>>) {
        match self {
            Piece::Value(value) => value.arena_or(known).lend(value.as_ptr(), value.len()),
            Piece::Part(value, range) => {
                let bytes = &value[range.clone()];
                value.arena_or(known).lend(bytes.as_ptr(), bytes.len());
            }
            Piece::Raw(raw) => raw.arena.inner.lend(raw.at, raw.len),
            _ => {}
        }
    }

    /// Prefetches the data that will be read into the caches.
    pub(super) fn prefetch(&self) {
        if let Piece::Value(value) | Piece::Part(value, _) = self {
            value.prefetch();
        }
    }

    /// Returns the arena that it belongs to.
    pub(super) fn arena(&self) -> Option<&'a Arc<Inner>> {
        match self {
            Piece::Value(value) | Piece::Part(value, _) => Some(value.arena()),
            Piece::Raw(raw) => Some(&raw.arena.inner),
            _ => None,
        }
    }

    /// Returns whether it can go by reference, if its pages are protected.
    pub(super) fn may_refer(&self) -> bool {
        matches!(
            self,
            Piece::Value(_) | Piece::Part(..) | Piece::Raw(_) | Piece::ReadOnly(_)
        )
    }

    /// Returns the buffer of a shared pool that it belongs to.
    pub(super) fn buffer(&self) -> Option<&'a Buffer> {
        match self {
            Piece::Buffer(buffer) | Piece::BufferPart(buffer, _) => Some(buffer),
            _ => None,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Piece::File(..))
    }

    /// Makes a piece of memory of [`Arena::alloc_raw`], which the program may have written at any time. Costs a system
    /// call that asks the page tables whether it was; memory of other allocators is copied.
    ///
    /// # Safety
    /// The bytes are mapped memory until the send returns.
    #[must_use]
    pub unsafe fn raw(arena: &'a Arena, at: *const u8, len: usize) -> Piece<'a> {
        Piece::Raw(Raw { arena, at, len })
    }
}

/// Bytes in a row that go one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Address that the program sees; a copy reads from it.
    pub(super) at: *const u8,
    pub(super) len: usize,
    /// Pages with the same bytes that never change again.
    pub(super) pages: Option<Pages>,
    /// Cause for which it is copied, if there are no pages.
    pub(super) cause: Cause,
    /// The file they are of.
    pub(super) file: Option<InFile>,
    /// The bytes are of a shared pool: others may write them, and they stay only as long as they are held.
    pub(super) shared: bool,
    /// The owner may have written since: the pages may not be those that the program sees.
    pub(super) unsure: bool,
}

/// A datagram's segments, and its length.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub segments: Range<usize>,
    pub len: usize,
}

/// Bytes in an arena's file.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFile {
    /// The file, by its device and inode.
    identity: (u64, u64),
    pub(super) offset: u64,
}

impl InFile {
    pub(super) fn is_of(&self, identity: (u64, u64)) -> bool {
        self.identity == identity
    }
}

/// Address where the kernel finds pages.
pub(super) type Pages = *const u8;

impl Segment {
    pub(super) fn of_arena(arena: &Inner, at: *const u8, len: usize) -> Segment {
        arena.sent(at, len);
        let offset = arena.frozen(at, len);
        Segment {
            at,
            len,
            cause: Cause::Unprotected,
            shared: false,
            pages: offset.map(|offset| arena.pages_at(offset).as_ptr().cast_const()),
            file: offset.map(|offset| InFile {
                identity: arena.file().1,
                offset: offset as u64,
            }),
            unsure: false,
        }
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Segment {
        Segment {
            at: bytes.as_ptr(),
            len: bytes.len(),
            cause: Cause::Plain,
            pages: None,
            file: None,
            shared: false,
            unsure: false,
        }
    }

    pub(super) fn of_buffer(buffer: &Buffer, range: Range<usize>) -> Segment {
        assert!(
            range.start <= range.end && range.end <= buffer.len(),
            "bytes {range:?} of a buffer of {}",
            buffer.len()
        );
        Segment {
            at: buffer.view().as_ptr().wrapping_add(range.start),
            len: range.len(),
            cause: Cause::Shared,
            pages: None,
            file: None,
            shared: true,
            unsure: false,
        }
    }

    pub(super) fn of_read_only(bytes: &'static [u8]) -> Segment {
        Segment {
            pages: Some(bytes.as_ptr()),
            ..Segment::of_bytes(bytes)
        }
    }

    /// Returns the address to copy from. Pages that never change are better known to the page tables, and to the
    /// caches, than the program's view of them, which was mapped anew when they were protected.
    pub(super) fn source(&self) -> *const u8 {
        match self.pages {
            Some(pages) if !self.unsure => pages,
            _ => self.at,
        }
    }

    /// Returns the segment to be copied, although there are pages: they were written.
    pub(super) fn copied(self) -> Segment {
        Segment {
            cause: Cause::Written,
            pages: None,
            file: None,
            ..self
        }
    }

    /// Splits it into its first bytes and the rest.
    pub(super) fn split(self, len: usize) -> (Segment, Segment) {
        let len = len.min(self.len);
        let rest = Segment {
            at: self.at.wrapping_add(len),
            len: self.len - len,
            cause: self.cause,
            shared: self.shared,
            pages: self.pages.map(|pages| pages.wrapping_add(len)),
            file: self.file.map(|place| InFile {
                offset: place.offset + len as u64,
                ..place
            }),
            unsure: self.unsure,
        };
        (Segment { len, ..self }, rest)
    }
}

/// Returns how many bytes may go by reference.
pub(super) fn referable(segments: &[Segment]) -> usize {
    let referable = segments.iter().filter(|segment| segment.pages.is_some());
    referable.map(|segment| segment.len).sum()
}
