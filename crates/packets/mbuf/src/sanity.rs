//! Whether a chain is what it should be (`m_sanity`).

use crate::chain::Chain;
use crate::flags::Flags;
use crate::layout::ExtKind;
use crate::seg::Seg;

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Insane {
    /// Data begins before its storage or ends behind it.
    #[error(
        "mbuf {mbuf}: {len} bytes of data at {offset} do not lie in the {size} bytes of its storage"
    )]
    Outside {
        /// Which mbuf, from 0.
        mbuf: usize,
        /// Where data begins, from the storage's start.
        offset: i64,
        /// Bytes of data.
        len: usize,
        /// Bytes of storage.
        size: usize,
    },
    /// The header's length is not the sum of the mbufs'.
    #[error("the header says {header} bytes, the mbufs have {mbufs}")]
    Length {
        /// What the header says.
        header: usize,
        /// What there is.
        mbufs: usize,
    },
    /// A header elsewhere than in the first mbuf.
    #[error("mbuf {mbuf} has a header, but is not the first")]
    Header {
        /// Which mbuf, from 0.
        mbuf: usize,
    },
    /// Flags contradict the storage.
    #[error("mbuf {mbuf}: flags {flags:?} contradict its storage")]
    Storage {
        /// Which mbuf, from 0.
        mbuf: usize,
        /// Its flags.
        flags: Flags,
    },
    /// The storage has no references.
    #[error("mbuf {mbuf}: its storage has no references")]
    Unreferenced {
        /// Which mbuf, from 0.
        mbuf: usize,
    },
    /// It is in a list of packets, though not the first of a chain.
    #[error("mbuf {mbuf} has a next packet, but is not the first")]
    NextPacket {
        /// Which mbuf, from 0.
        mbuf: usize,
    },
}

impl Chain {
    /// Looks at every mbuf. No operation of this library makes a chain that is not sane: it is for tests, and for programs
    /// that look for who wrote over their memory.
    ///
    /// # Errors
    /// What is wrong, and where.
    #[doc(alias = "m_sanity")]
    pub fn sanity(&self) -> Result<(), Insane> {
        let mut total = 0;
        for (mbuf, seg) in self.segs().enumerate() {
            check(mbuf, seg)?;
            total += seg.len();
        }
        let first = self.first();
        if self.is_packet() && first.pkt_len() != total.min(u32::MAX as usize) {
            return Err(Insane::Length {
                header: first.pkt_len(),
                mbufs: total,
            });
        }
        Ok(())
    }
}

fn check(mbuf: usize, seg: Seg) -> Result<(), Insane> {
    let flags = seg.flags();
    if mbuf > 0 && flags.contains(Flags::PKTHDR) {
        return Err(Insane::Header { mbuf });
    }
    if mbuf > 0 && seg.nextpkt().is_some() {
        return Err(Insane::NextPacket { mbuf });
    }
    let storage = flags & Flags::STORAGE;
    let file = seg.ext_kind() == Some(ExtKind::File);
    let bare = !flags.contains(Flags::EXT) && storage != Flags::NONE;
    if bare || file != flags.contains(Flags::EXTPG) {
        return Err(Insane::Storage { mbuf, flags });
    }
    if flags.contains(Flags::EXT) && seg.references() == 0 {
        return Err(Insane::Unreferenced { mbuf });
    }
    let size = seg.size();
    let offset = seg.data().addr().wrapping_sub(seg.start().addr());
    if offset > size || seg.len() > size - offset {
        return Err(Insane::Outside {
            mbuf,
            offset: offset.cast_signed() as i64,
            len: seg.len(),
            size,
        });
    }
    Ok(())
}
