//! External storage, from the program's side.

use crate::chain::Chain;
use crate::counts::Routine;
use crate::error::{Error, NoBuffers, What};
use crate::ext::{self, OwnerPlace};
use crate::flags::Flags;
use crate::inject;
use crate::layout::{Counted, ExtKind, OWNER_WORDS};
use crate::seg::Seg;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use tranship_core::Buffer;

impl Chain {
    /// Attaches an owner of bytes, read-only: the bytes become the data of the first mbuf, which has none yet, and
    /// `owner` is dropped, once, with the last mbuf that refers to them (`m_extadd`).
    ///
    /// An owner of at most 56 bytes lies in the mbuf. An owner may count references by itself (an `Arc`, `Bytes`). On
    /// failure the owner is returned.
    ///
    /// # Errors
    /// Returns the owner, with `Occupied` if the mbuf has data or storage, or `NoBuffers` if a large owner has no room.
    #[doc(alias = "m_extadd")]
    pub fn attach<T>(&mut self, owner: T) -> Result<(), (Error, T)>
    where
        T: AsRef<[u8]> + Send + 'static,
    {
        self.attach_owner(owner, Flags::RDONLY, |owner| {
            // SAFETY: the owner was just put there, and no other code knows it.
            let bytes = unsafe { owner.as_ref() }.as_ref();
            (bytes.as_ptr().cast_mut(), bytes.len())
        })
    }

    /// Attaches an owner of bytes that may be written as long as only one mbuf refers to them. All of them become data;
    /// to begin with an empty mbuf, [`truncate`](Self::truncate) it.
    ///
    /// # Errors
    /// Those of [`attach`](Self::attach).
    #[doc(alias = "m_extadd")]
    #[doc(alias = "m_cljset")]
    pub fn attach_mut<T>(&mut self, owner: T) -> Result<(), (Error, T)>
    where
        T: AsMut<[u8]> + Send + 'static,
    {
        self.attach_owner(owner, Flags::NONE, |mut owner| {
            // SAFETY: as above.
            let bytes = unsafe { owner.as_mut() }.as_mut();
            (bytes.as_mut_ptr(), bytes.len())
        })
    }

    /// Attaches an owner of bytes, read-only, with a routine. The routine gets the owner when the last mbuf that refers
    /// to it is freed, on the thread that frees it (`ext_free`).
    ///
    /// # Errors
    /// Those of [`attach`](Self::attach); the owner and the routine are dropped, without a call.
    #[doc(alias = "ext_free")]
    pub fn attach_with<T, F>(&mut self, owner: T, free: F) -> Result<(), Error>
    where
        T: AsRef<[u8]> + Send + 'static,
        F: FnOnce(T) + Send + 'static,
    {
        struct Freed<T, F: FnOnce(T)>(Option<(T, F)>);
        impl<T: AsRef<[u8]>, F: FnOnce(T)> AsRef<[u8]> for Freed<T, F> {
            fn as_ref(&self) -> &[u8] {
                self.0.as_ref().map_or(&[], |(owner, _)| owner.as_ref())
            }
        }
        impl<T, F: FnOnce(T)> Drop for Freed<T, F> {
            fn drop(&mut self) {
                if let Some((owner, free)) = self.0.take() {
                    free(owner);
                }
            }
        }
        self.attach(Freed(Some((owner, free))))
            .map_err(|(error, _)| error)
    }

    /// Attaches memory whose references the caller counts as well (`m_extaddref`): several mbufs may attach the same
    /// memory, one after the other, and the program may refer to it itself. All of it becomes data.
    ///
    /// ```
    /// # mod tranship { pub use tranship_mbuf as mbuf; }
    /// use std::ptr::NonNull;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use tranship::mbuf::{Counted, Mbufs};
    ///
    /// static COUNT: AtomicU32 = AtomicU32::new(1); // this program's own reference
    /// let bytes = NonNull::from(Box::leak(vec![7; 100].into_boxed_slice()));
    /// let counted = Counted { bytes, count: NonNull::from(&COUNT), free: None, args: [std::ptr::null_mut(); 2] };
    /// let mut packet = Mbufs::new()?.gethdr()?;
    /// // SAFETY: the memory stays, and nothing writes it.
    /// unsafe { packet.attach_counted(counted)? };
    /// assert_eq!((COUNT.load(Ordering::Relaxed), packet.is_writable()), (2, false));
    /// drop(packet);
    /// assert_eq!(COUNT.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Occupied` if the mbuf has data or storage; `TooLong` for 4 GiB or more. Then nothing is counted.
    ///
    /// # Safety
    /// Memory, counter and arguments stay until the counter is 0, and any thread may use them. Nothing else writes
    /// the memory while an mbuf refers to it.
    #[doc(alias = "m_extaddref")]
    pub unsafe fn attach_counted(&mut self, counted: Counted) -> Result<(), Error> {
        let (at, len) = (counted.bytes.as_ptr().cast::<u8>(), counted.bytes.len());
        let place = OwnerPlace::Inside(counted);
        let put = self.put(place, at, len, ExtKind::Counted, -1, Flags::NONE);
        put.map_err(|(error, _)| error)?;
        // Relaxed: the caller refers to the memory, so it stays.
        counted.counter().fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Attaches a buffer, an own or a received one. The buffer stays referenced as long as an mbuf points to it.
    ///
    /// Bytes of a buffer whose writer is not trusted cannot be read in place; [`pullup`](Self::pullup),
    /// [`copydata`](Self::copydata) and the like copy them out.
    ///
    /// # Errors
    /// The buffer, with `Occupied` if the mbuf has data or storage, `NoBuffers`, or `TooLong`.
    pub fn attach_buffer(&mut self, buf: Buffer) -> Result<(), (Error, Buffer)> {
        let storage = if buf.bytes().is_some() {
            Flags::RDONLY
        } else {
            Flags::RDONLY | Flags::VOLATILE
        };
        let (at, len) = (buf.view().as_ptr().cast_mut(), buf.len());
        self.put(
            OwnerPlace::Inside(buf),
            at,
            len,
            ExtKind::Buffer,
            -1,
            storage,
        )
        .map_err(|(error, place)| (error, unplace(place)))
    }

    /// Attaches a piece of a file, which is not mapped here (`M_EXTPG`; a sendfile buffer): it can be sent on with
    /// `sendfile`, read, cut and shared like any other data. The file is read only when its bytes are requested.
    ///
    /// # Errors
    /// Returns the file, with `TooLong` for more than a piece can hold, or those of [`attach`](Self::attach).
    #[doc(alias = "M_EXTPG")]
    #[doc(alias = "mb_alloc_ext_pgs")]
    #[doc(alias = "sf_buf")]
    pub fn attach_file<T>(&mut self, file: T, offset: u64, len: usize) -> Result<(), (Error, T)>
    where
        T: AsFd + Send + 'static,
    {
        let limit = usize::MAX - len;
        let Some(start) = usize::try_from(offset).ok().filter(|at| *at <= limit) else {
            return Err((Error::TooLong { wanted: len, limit }, file));
        };
        let fd = file.as_fd().as_raw_fd();
        let at = std::ptr::without_provenance_mut(start);
        let storage = Flags::RDONLY | Flags::EXTPG;
        let place = self.place(file)?;
        self.put(place, at, len, ExtKind::File, fd, storage)
            .map_err(|(error, place)| (error, unplace(place)))
    }

    fn place<T>(&self, owner: T) -> Result<OwnerPlace<T>, (Error, T)> {
        let heap = size_of::<T>() > OWNER_WORDS * 8 || align_of::<T>() > 8;
        if heap && inject::fails() {
            return Err((NoBuffers::from(What::Owner).into(), owner));
        }
        Ok(OwnerPlace::new(owner))
    }

    fn attach_owner<T: Send + 'static>(
        &mut self,
        owner: T,
        storage: Flags,
        bytes: impl FnOnce(NonNull<T>) -> (*mut u8, usize),
    ) -> Result<(), (Error, T)> {
        if let Err(error) = self.check_vacant() {
            return Err((error, owner));
        }
        let place = self.place(owner)?;
        self.routine(Routine::Extadd);
        let seg = self.first();
        // SAFETY: without data or storage, as was just checked, and borrowed mutably. The bytes are asked for where
        // the owner stays, so they stay as long as it does.
        unsafe {
            let (at, len) = bytes(ext::keep(seg, place));
            let size = u32::try_from(len).unwrap_or(u32::MAX); // the first 4 GiB of it
            ext::describe(seg, at, size, ExtKind::Owned, -1);
            ext::attach(seg, storage);
            self.fill(seg, size as usize);
        }
        Ok(())
    }

    fn put<T: Send + 'static>(
        &mut self,
        place: OwnerPlace<T>,
        at: *mut u8,
        len: usize,
        kind: ExtKind,
        fd: i32,
        storage: Flags,
    ) -> Result<(), (Error, OwnerPlace<T>)> {
        if let Err(error) = self.check_vacant() {
            return Err((error, place));
        }
        let Ok(size) = u32::try_from(len) else {
            let limit = u32::MAX as usize;
            return Err((Error::TooLong { wanted: len, limit }, place));
        };
        self.routine(Routine::Extadd);
        let seg = self.first();
        // SAFETY: without data or storage, as was just checked, and borrowed mutably; the owner keeps the storage.
        unsafe {
            ext::keep(seg, place);
            ext::describe(seg, at, size, kind, fd);
            ext::attach(seg, storage);
        }
        self.fill(seg, len);
        Ok(())
    }

    /// Makes all of the first mbuf's storage data.
    fn fill(&mut self, seg: Seg, len: usize) {
        seg.set_len(len);
        seg.grow_packet(len);
    }
}

fn unplace<T>(place: OwnerPlace<T>) -> T {
    match place {
        OwnerPlace::Inside(value) => value,
        OwnerPlace::Heap(value) => *value,
    }
}
