//! Checks of a chain's consistency (`m_sanity`).

use crate::chain::Chain;
use crate::flags::Flags;
use crate::layout::ExtKind;
use crate::seg::Seg;

/// An error in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Insane {
    /// The data begins before its storage or ends behind it.
    #[error(
        "mbuf {mbuf}: {len} bytes of data at {offset} do not lie in the {size} bytes of its storage"
    )]
    Outside {
        /// The mbuf's position, from 0.
        mbuf: usize,
        /// The offset of the data from the storage's start.
        offset: i64,
        /// Bytes of data.
        len: usize,
        /// Bytes of storage.
        size: usize,
    },
    /// The header's length is not the sum of the mbufs'.
    #[error("the header says {header} bytes, the mbufs have {mbufs}")]
    Length {
        /// The header's number.
        header: usize,
        /// The sum over the mbufs.
        mbufs: usize,
    },
    /// A header elsewhere than in the first mbuf.
    #[error("mbuf {mbuf} has a header, but is not the first")]
    Header {
        /// The mbuf's position, from 0.
        mbuf: usize,
    },
    /// Flags contradict the storage.
    #[error("mbuf {mbuf}: flags {flags:?} contradict its storage")]
    Storage {
        /// The mbuf's position, from 0.
        mbuf: usize,
        /// The mbuf's flags.
        flags: Flags,
    },
    /// The storage has no references.
    #[error("mbuf {mbuf}: its storage has no references")]
    Unreferenced {
        /// The mbuf's position, from 0.
        mbuf: usize,
    },
    /// A pointer that each mbuf, or each external storage, has is null, or not aligned for its target.
    #[error("mbuf {mbuf}: its pointer to its {what} is {at:#x}: null, or misaligned")]
    Pointer {
        /// The mbuf's position, from 0.
        mbuf: usize,
        /// The pointer's target: its zone, the holder of its storage, the next mbuf.
        what: &'static str,
        /// The pointer's value.
        at: usize,
    },
    /// The chain leads back into itself.
    #[error("mbuf {mbuf} is in the chain already: the chain has no end")]
    Circle {
        /// The mbuf's position, from 0.
        mbuf: usize,
    },
    /// The mbuf is in a list of packets, though not the first of a chain.
    #[error("mbuf {mbuf} has a next packet, but is not the first")]
    NextPacket {
        /// The mbuf's position, from 0.
        mbuf: usize,
    },
}

impl Chain {
    /// Checks every mbuf. No operation of this library makes an inconsistent chain: the check is for tests, and for
    /// programs whose memory was written over. A pointer is followed only if it is neither null nor misaligned. The
    /// check cannot tell whether it leads to memory of this process.
    ///
    /// # Errors
    /// The error, and its place.
    #[doc(alias = "m_sanity")]
    pub fn sanity(&self) -> Result<(), Insane> {
        let (mut total, mut mbuf) = (0, 0);
        // The slower pointer jumps to the faster one each time the number of steps has doubled: in a chain without end,
        // the faster one meets it again.
        let (mut behind, mut until) = (self.first(), 1);
        let mut at = Some(self.first());
        while let Some(seg) = at {
            check(mbuf, seg)?;
            total += seg.len();
            if mbuf == until {
                (behind, until) = (seg, 2 * until);
            }
            mbuf += 1;
            let next = seg.next();
            if next == Some(behind) {
                return Err(Insane::Circle { mbuf });
            }
            at = next;
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

/// Says whether a pointer could lead to a `T`.
fn leads<T>(mbuf: usize, what: &'static str, to: *const T) -> Result<(), Insane> {
    if to.is_null() || !to.is_aligned() {
        let at = to.addr();
        return Err(Insane::Pointer { mbuf, what, at });
    }
    Ok(())
}

fn check(mbuf: usize, seg: Seg) -> Result<(), Insane> {
    let flags = seg.flags();
    let pointers = seg.pointers();
    leads(mbuf, "zone", pointers.home)?;
    if let Some(holder) = pointers.holder {
        leads(mbuf, "storage's holder", holder)?;
    }
    if !pointers.next.is_null() {
        leads(mbuf, "next mbuf", pointers.next)?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Mbufs;
    use crate::layout::Raw;
    use std::ptr;

    /// Returns the error found after `break_it` wrote over mbuf `at` of a packet over shared storage; the packet is
    /// repaired after that.
    fn found(at: usize, break_it: impl Fn(&mut Raw)) -> Insane {
        let mbufs = Mbufs::new().expect("addresses");
        let whole = mbufs.devget(&[1; 9000], 0).expect("memory");
        let mut chain = whole.copypacket().expect("memory");
        // In front of them an mbuf with its own bytes.
        chain.push_front(&[2; 100]).expect("memory");
        let raw = chain.segs().nth(at).expect("as many").raw();
        // SAFETY: an mbuf of the chain, which nothing else uses meanwhile; its bytes are put back before anything is
        // dropped.
        let insane = unsafe {
            let before = ptr::read(raw);
            break_it(&mut *raw);
            let insane = chain.sanity();
            ptr::write(raw, before);
            insane
        };
        chain.sanity().expect("healed");
        insane.expect_err("broken")
    }

    #[test]
    fn a_pointer_that_leads_nowhere_is_not_followed() {
        let null = |what| move |insane| matches!(insane, Insane::Pointer { what: is, at: 0, .. } if is == what);
        for at in [0, 1] {
            let no_home = found(at, |raw| raw.home = ptr::null());
            assert!(null("zone")(no_home), "{no_home}");
            let no_holder = found(at + 1, |raw| raw.ext.holder = ptr::null_mut());
            assert!(null("storage's holder")(no_holder), "{no_holder}");
            let odd = found(at, |raw| raw.next = raw.next.wrapping_byte_add(1));
            assert!(
                matches!(odd, Insane::Pointer { mbuf, .. } if mbuf == at),
                "{odd}"
            );
            let odd = found(at, |raw| raw.home = raw.home.wrapping_byte_add(1));
            assert!(
                odd.to_string().contains("its pointer to its zone is 0x"),
                "{odd}"
            );
        }
    }

    #[test]
    fn a_chain_without_an_end_is_found() {
        let _dog = tranship_testkit::Watchdog::new();
        for at in [0, 1, 2] {
            let circle = found(at, |raw| raw.next = raw);
            assert!(
                matches!(circle, Insane::Circle { .. } | Insane::Header { .. }),
                "{circle}"
            );
        }
    }
}
