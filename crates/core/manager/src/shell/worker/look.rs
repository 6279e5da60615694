//! The facts about a descriptor from a client, before anything in it is believed.

use crate::state::{Facts, Header, Sealed};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use tranship_region::Sealing;
use tranship_region::layout::{FORMAT_VERSION, MAGIC};
use tranship_sys::memfd;

/// Memory up to this size is closed at once, by its holder.
pub(in crate::shell) const SMALL_BYTES: u64 = 1 << 20;

/// Returns `None` for a descriptor that is not sealed memory; it is then not asked anything more.
pub(in crate::shell) fn look(fd: &OwnedFd) -> Option<Facts> {
    if !memfd::has_seals(fd) {
        return None;
    }
    let found = memfd::facts(fd).ok()?;
    let len = usize::try_from(found.size).ok().filter(|len| *len > 0)?;
    let is = |sealing| tranship_region::verify_as(fd.as_fd(), len, sealing).is_ok();
    let sealed = match () {
        () if is(Sealing::OneWriter) => Sealed::OneWriter,
        () if is(Sealing::Shared) => Sealed::Shared,
        () if is(Sealing::Open) => Sealed::Open,
        () if is(Sealing::Nobody) => Sealed::Nobody,
        () => return None,
    };
    let file = File::from(fd.try_clone().ok()?);
    Some(Facts {
        sealed,
        size: found.size,
        header: header(&file),
        made_here: false,
        inode: found.inode,
    })
}

fn header(file: &File) -> Option<Header> {
    let mut raw = [0u8; 64];
    file.read_exact_at(&mut raw, 0).ok()?;
    let u32_at = |at: usize| raw.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let u64_at = |at: usize| raw.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    if u64_at(0)? != MAGIC || u32_at(8)? != FORMAT_VERSION || u32_at(20)? != 0 {
        return None;
    }
    Some(Header {
        kind: u32_at(12)?,
        count: u32_at(16)?,
        max_bytes: u64_at(24)?,
        chunk_bytes: u64_at(32)?,
    })
}
