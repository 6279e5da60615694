//! Zones whose mbufs come out of the cache with an attachment: a tag, a piece of a file.

use crate::alloc::Mbufs;
use crate::chain::Chain;
use crate::error::{Error, NoBuffers, What};
use crate::flags::{Flags, Kind};
use crate::get::begin;
use crate::tag::Tag;
use crate::zones::{Home, Make};
use std::fmt;
use std::fs::File;
use std::sync::Arc;

/// Flags of an mbuf whose storage comes with it.
const UNIT_FILE: Flags = Flags(Flags::EXT.0 | Flags::RDONLY.0 | Flags::EXTPG.0);

/// A secondary zone of mbufs with a header that already has one tag. The tag stays with the mbuf when the mbuf is
/// freed. Its bytes are zero again at the next allocation.
pub struct TaggedZone {
    home: Arc<Home>,
    from: Mbufs,
    cookie: u32,
    id: u16,
    len: usize,
}

/// A secondary zone of mini-mbufs that refer to one file already: a piece of it costs one allocation from a cache
/// (the sendfile buffers of old).
pub struct FileZone {
    home: Arc<Home>,
    from: Mbufs,
}

impl Mbufs {
    /// Makes a zone of mbufs with a tag of `len` bytes. The zone stays as long as the allocator: make one for each use,
    /// not for each packet.
    #[must_use]
    pub fn tagged_zone(&self, cookie: u32, id: u16, len: usize) -> TaggedZone {
        let make = Make::Tagged { cookie, id, len };
        TaggedZone {
            home: self
                .inner
                .add_zone(make, &format!("mbuf_tag_{cookie:x}_{id}")),
            from: self.clone(),
            cookie,
            id,
            len,
        }
    }

    /// Makes a zone of pieces of a file. The zone stays, and keeps the file open, as long as the allocator.
    #[must_use]
    pub fn file_zone(&self, file: Arc<File>, name: &str) -> FileZone {
        FileZone {
            home: self
                .inner
                .add_zone(Make::File(file), &format!("mbuf_file_{name}")),
            from: self.clone(),
        }
    }
}

impl TaggedZone {
    /// Allocates an mbuf with a header that has the tag, zeroed.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    pub fn gethdr(&self) -> Result<Chain, NoBuffers> {
        let fresh = self.home.alloc(self.from.how)?;
        // SAFETY: a cached mbuf of this zone has a valid header with its tag, or without if the last user took it.
        let mut tags = std::mem::take(unsafe { &mut (*fresh.seg().header()).tags });
        let seg = begin(fresh, Kind::DATA, Flags::PKTHDR, std::ptr::null_mut());
        seg.set_data(seg.start());
        let mut chain = Chain::new(seg);
        match tags.find_mut(self.cookie, self.id) {
            Some(tag) if tag.data().len() == self.len => tag.data_mut().fill(0),
            _ => {
                tags.clear();
                let tag = Tag::new(self.cookie, self.id, self.len);
                tags.prepend(tag.ok_or(What::Tag)?);
            }
        }
        if let Some(header) = chain.header_mut() {
            header.tags = tags;
        }
        Ok(chain)
    }
}

impl FileZone {
    /// Allocates a packet of the file's `len` bytes from `offset` on.
    ///
    /// # Errors
    /// `TooLong` for more than a piece of a file can hold; `NoBuffers` when there is no memory, or a limit is reached.
    /// It waits only if this handle does ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    pub fn get(&self, offset: u64, len: usize) -> Result<Chain, Error> {
        let limit = u32::MAX as usize;
        let (Ok(start), Ok(size)) = (usize::try_from(offset), u32::try_from(len)) else {
            return Err(Error::TooLong { wanted: len, limit });
        };
        if start.checked_add(len).is_none() {
            return Err(Error::TooLong { wanted: len, limit });
        }
        let fresh = self.home.alloc(self.from.how)?;
        let at = std::ptr::without_provenance_mut(start);
        // SAFETY: a cached mbuf of this zone has a valid external part, and no other reference to it exists.
        unsafe {
            (*fresh.seg().ext()).buf = at;
            (*fresh.seg().ext()).size = size;
        }
        let seg = begin(fresh, Kind::DATA, Flags::PKTHDR | UNIT_FILE, at);
        seg.set_len(len);
        seg.set_pkt_len(len);
        Ok(Chain::new(seg))
    }
}

impl fmt::Debug for TaggedZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaggedZone")
            .field("zone", self.home.zone())
            .finish()
    }
}

impl fmt::Debug for FileZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileZone")
            .field("zone", self.home.zone())
            .finish()
    }
}
