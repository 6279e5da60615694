//! One mbuf, with or without a cluster: every allocation consists of these.

use crate::counts::{Routine, count};
use crate::error::{NoBuffers, What};
use crate::ext::{self, OwnerPlace};
use crate::flags::{Flags, Kind};
use crate::layout::ExtKind;
use crate::seg::Seg;
use crate::size::{ClusterSize, MHLEN, MLEN};
use crate::zones::{Fresh, How, Inner};
use std::time::Instant;

impl Fresh {
    /// Returns the mbuf.
    #[inline(always)]
    pub(crate) fn seg(&self) -> Seg {
        // SAFETY: fresh from its zone, so the caller's alone.
        unsafe { Seg::new(self.item.cast()) }
    }
}

/// Makes a fresh mbuf an empty one, without next, of a kind, beginning at `data`.
#[inline(always)]
pub(crate) fn begin(fresh: Fresh, kind: Kind, flags: Flags, data: *mut u8) -> Seg {
    let seg = fresh.seg();
    seg.set_next(None);
    seg.set_nextpkt(None);
    seg.set_data(data);
    seg.set_len(0);
    seg.set_flags(flags.with_kind(kind));
    if flags.contains(Flags::PKTHDR) {
        seg.set_number_only(fresh.number);
        ext::new_header(seg);
    }
    seg
}

const CHOSEN: Flags = Flags(Flags::FREE.0 | Flags::PKTHDR.0);

impl Inner {
    #[inline(always)]
    pub(crate) fn get(&self, how: How, kind: Kind, flags: Flags) -> Result<Seg, NoBuffers> {
        let fresh = self.mbuf.alloc(how)?;
        let seg = begin(fresh, kind, flags & CHOSEN, std::ptr::null_mut());
        seg.set_data(seg.start());
        Ok(seg)
    }

    #[inline(always)]
    pub(crate) fn getcl(&self, how: How, kind: Kind, flags: Flags) -> Result<Seg, NoBuffers> {
        if self.pool.is_some() {
            return self.get_and_clget(how, ClusterSize::Std, kind, flags);
        }
        let fresh = self.packet.alloc(how)?;
        // SAFETY: a packet's external part is filled in when it gets into its zone's cache.
        let data = unsafe { (*fresh.seg().ext()).buf };
        Ok(begin(fresh, kind, flags & CHOSEN | Flags::EXT, data))
    }

    pub(crate) fn getjcl(
        &self,
        how: How,
        size: ClusterSize,
        kind: Kind,
        flags: Flags,
    ) -> Result<Seg, NoBuffers> {
        match size {
            ClusterSize::Std => self.getcl(how, kind, flags),
            _ => self.get_and_clget(how, size, kind, flags),
        }
    }

    #[inline(never)]
    fn get_and_clget(
        &self,
        how: How,
        size: ClusterSize,
        kind: Kind,
        flags: Flags,
    ) -> Result<Seg, NoBuffers> {
        let seg = self.get(how, kind, flags)?;
        // SAFETY: fresh, so without data or storage; without a cluster nothing else refers to it.
        match unsafe { self.clget(seg, size, how) } {
            Ok(()) => Ok(seg),
            Err(none) => {
                // SAFETY: as above.
                unsafe { ext::free_one(seg) };
                Err(none)
            }
        }
    }

    pub(crate) fn mini(&self, how: How, kind: Kind, flags: Flags) -> Result<Seg, NoBuffers> {
        let fresh = self.mini.alloc(how)?;
        let seg = begin(fresh, kind, flags & CHOSEN, std::ptr::null_mut());
        seg.set_data(seg.start());
        Ok(seg)
    }

    /// Attaches a cluster.
    ///
    /// # Safety
    /// The mbuf is the caller's and has neither data nor storage.
    pub(crate) unsafe fn clget(
        &self,
        seg: Seg,
        size: ClusterSize,
        how: How,
    ) -> Result<(), NoBuffers> {
        count(Routine::Clget);
        #[allow(clippy::cast_possible_truncation)] // at most 16 KiB
        let bytes = size.bytes() as u32;
        let Some(pool) = &self.pool else {
            let at = self.cluster(size, how)?;
            // SAFETY: as the caller promises; the cluster is fresh.
            unsafe {
                ext::describe(seg, at.as_ptr(), bytes, ExtKind::Cluster, -1);
                ext::attach(seg, Flags::NONE);
            }
            return Ok(());
        };
        if crate::inject::fails() {
            return Err(What::Pool.into());
        }
        let buf = match how {
            How::NoWait => pool.try_alloc(size.bytes()),
            How::Until(None) => pool.alloc(size.bytes()),
            How::Until(Some(end)) => {
                pool.alloc_timeout(size.bytes(), end.saturating_duration_since(Instant::now()))
            }
        };
        let mut buf = buf.map_err(NoBuffers::pool)?;
        let at = buf.as_mut_ptr();
        // SAFETY: as the caller promises; the buffer is fresh, and its handle is kept as long as the storage. It is
        // written only while it is unique, which `Seg::writable` asks.
        unsafe {
            ext::describe(seg, at, bytes, ExtKind::Buffer, -1);
            ext::keep(seg, OwnerPlace::new(buf.freeze()));
            ext::attach(seg, Flags::NONE);
        }
        Ok(())
    }

    /// Allocates one mbuf with room for `len` bytes, at most 16 KiB.
    pub(crate) fn fit(
        &self,
        how: How,
        len: usize,
        kind: Kind,
        flags: Flags,
    ) -> Result<Seg, NoBuffers> {
        let inside = if flags.contains(Flags::PKTHDR) {
            MHLEN
        } else {
            MLEN
        };
        if len <= inside {
            return self.get(how, kind, flags);
        }
        let size = ClusterSize::for_bytes(len).unwrap_or(ClusterSize::Jumbo16);
        self.getjcl(how, size, kind, flags)
    }
}
