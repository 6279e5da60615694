//! The form of a zone's mbufs when they come from the keg, and how that is undone.

use crate::ext::{self, OwnerPlace};
use crate::header::Header;
use crate::layout::{ExtKind, Raw};
use crate::seg::Seg;
use crate::size::MCLBYTES;
use crate::tag::Tag;
use crate::zones::{Make, Template};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use tranship_items::Object;
use tranship_items::item::{AllocError, Refused, Request, Wait};

impl Object for Template {
    type Arg<'a> = ();
    const INITIALIZED: bool = true;

    fn init(&self, item: NonNull<u8>, wait: Wait) -> Result<(), Refused> {
        let raw = item.cast::<Raw>();
        // SAFETY: an item of the keg, aligned and large enough, that belongs to this call alone.
        let seg = unsafe {
            (*raw.as_ptr()).home = self.home;
            (*raw.as_ptr()).number = self.keg.number_of(item);
            Seg::new(raw)
        };
        match &self.make {
            Make::Mbuf | Make::Mini => {}
            Make::Packet(clusters) => {
                let cluster = clusters.request((), Request::wait(wait));
                let cluster = cluster.map_err(|_: AllocError| Refused)?.as_ptr();
                #[allow(clippy::cast_possible_truncation)] // 2048
                // SAFETY: the item belongs to this call alone; the cluster becomes its own.
                unsafe {
                    ext::describe(seg, cluster, MCLBYTES as u32, ExtKind::Packet, -1);
                }
            }
            Make::Tagged { cookie, id, len } => {
                let tag = Tag::new(*cookie, *id, *len).ok_or(Refused)?;
                // SAFETY: the item belongs to this call alone, and the bytes there are no header.
                unsafe {
                    seg.header().write(Header::default());
                    (*seg.header()).tags.prepend(tag);
                }
            }
            Make::File(file) => {
                let fd = file.as_raw_fd();
                // SAFETY: the item belongs to this call alone.
                unsafe {
                    ext::keep(seg, OwnerPlace::new(file.clone()));
                    ext::describe(seg, std::ptr::null_mut(), 0, ExtKind::File, fd);
                }
            }
        }
        Ok(())
    }

    fn fini(&self, item: NonNull<u8>) {
        // SAFETY: an item that `init` has prepared, and that belongs to this call alone.
        unsafe {
            let seg = Seg::new(item.cast());
            match &self.make {
                Make::Mbuf | Make::Mini => {}
                Make::Packet(clusters) => clusters.free(NonNull::new_unchecked((*seg.ext()).buf)),
                Make::Tagged { .. } => drop(std::mem::take(&mut (*seg.header()).tags)),
                Make::File(_) => ext::drop_owner(seg),
            }
        }
    }
}
