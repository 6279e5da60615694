//! Tags of a packet.

use super::{Mbuf, borrowed, length};
use crate::status::quietly;
use facade::mbuf::{Tag as Held, Tags};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// One tag: its module, its number, and its bytes.
#[derive(Debug)]
pub struct Tag(());

/// The packet's list; `None` if it is no packet.
fn with<T>(m: *mut Mbuf, otherwise: T, work: impl FnOnce(&mut Tags) -> T) -> T {
    let Some(mut chain) = borrowed(m) else {
        return otherwise;
    };
    quietly(None, || {
        chain.header_mut().map(|header| work(&mut header.tags))
    })
    .unwrap_or(otherwise)
}

fn tag<'a>(t: *mut Tag) -> Option<&'a mut Held> {
    // SAFETY: the caller's word: a tag, which no other thread uses.
    unsafe { t.cast::<Held>().as_mut() }
}

/// A tag that is in no list: the caller's word.
fn free_tag(t: *mut Tag) -> Option<Box<Held>> {
    // SAFETY: it is one that `tranship_m_tag_alloc` or `tranship_m_tag_unlink` gave out, and the caller does not use it again.
    NonNull::new(t).map(|t| unsafe { Box::from_raw(t.cast::<Held>().as_ptr()) })
}

fn out(tag: Option<Box<Held>>) -> *mut Tag {
    tag.map_or(null_mut(), |tag| Box::into_raw(tag).cast())
}

fn pointer(tag: Option<NonNull<Held>>) -> *mut Tag {
    tag.map_or(null_mut(), |tag| tag.as_ptr().cast())
}

/// A tag with `len` zero bytes, in no list (m_tag_alloc; m_tag_get has cookie 0). NULL: there was no memory.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_alloc(cookie: u32, r#type: i32, len: i32, how: i32) -> *mut Tag {
    let _ = how;
    quietly(null_mut(), || match (u16::try_from(r#type), length(len)) {
        (Ok(id), Some(len)) => out(Held::new(cookie, id, len)),
        _ => null_mut(),
    })
}

/// Frees a tag that is in no list (m_tag_free). NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_free(t: *mut Tag) {
    quietly((), || drop(free_tag(t)));
}

/// Returns the tag's bytes (which FreeBSD has behind the struct).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_data(t: *mut Tag) -> *mut c_void {
    tag(t).map_or(null_mut(), |tag| tag.data_mut().as_mut_ptr().cast())
}

/// Returns the number of the tag's bytes (m_tag_len).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_len(t: *mut Tag) -> i32 {
    tag(t).map_or(0, |tag| super::int(tag.data().len()))
}

/// Returns the tag's number within its module (m_tag_id).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_id(t: *mut Tag) -> i32 {
    tag(t).map_or(0, |tag| tag.id().into())
}

/// Returns the tag's module (m_tag_cookie).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_cookie(t: *mut Tag) -> u32 {
    tag(t).map_or(0, |tag| tag.cookie())
}

/// Puts a tag in front of a packet's list, to which it belongs from here on (m_tag_prepend). A chain that is no packet
/// has no list: then the tag is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_prepend(m: *mut Mbuf, t: *mut Tag) {
    if let Some(tag) = free_tag(t) {
        with(m, (), |tags| tags.prepend(tag));
    }
}

/// Takes a tag out of a packet's list: it is the caller's (m_tag_unlink). One that is not in it stays where it is.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_unlink(m: *mut Mbuf, t: *mut Tag) {
    with(m, (), |tags| {
        out(tags.unlink_at(t.cast()));
    });
}

/// Takes a tag out of a packet's list and frees it (m_tag_delete).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_delete(m: *mut Mbuf, t: *mut Tag) {
    with(m, (), |tags| drop(tags.unlink_at(t.cast())));
}

/// Frees all tags from `t` on; NULL: all (m_tag_delete_chain).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_delete_chain(m: *mut Mbuf, t: *mut Tag) {
    with(m, (), |tags| {
        let all: Vec<_> = tags.pointers().collect();
        let is = |tag: &NonNull<Held>| t.is_null() || std::ptr::eq(tag.as_ptr(), t.cast());
        for tag in all.iter().skip_while(|tag| !is(tag)) {
            drop(tags.unlink_at(tag.as_ptr()));
        }
    });
}

/// Frees all tags that do not stay with a packet from one layer to another: without 0x800 in their type (m_tag_delete_nonpersistent).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_delete_nonpersistent(m: *mut Mbuf) {
    with(m, (), Tags::delete_nonpersistent);
}

/// The first tag of this kind behind `t`; NULL: in the whole list (m_tag_locate; m_tag_find has cookie 0).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_locate(
    m: *mut Mbuf,
    cookie: u32,
    r#type: i32,
    t: *mut Tag,
) -> *mut Tag {
    with(m, null_mut(), |tags| {
        let is = |tag: &NonNull<Held>| {
            // SAFETY: in the list, which is borrowed.
            let tag = unsafe { tag.as_ref() };
            tag.cookie() == cookie && i32::from(tag.id()) == r#type
        };
        pointer(behind(tags, t).find(is))
    })
}

/// The first tag (m_tag_first); with `t`, the one behind it (m_tag_next).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_next(m: *mut Mbuf, t: *mut Tag) -> *mut Tag {
    with(m, null_mut(), |tags| pointer(behind(tags, t).next()))
}

/// All, or those behind one of them.
fn behind(tags: &mut Tags, t: *mut Tag) -> impl Iterator<Item = NonNull<Held>> {
    let mut found = t.is_null();
    tags.pointers().filter(move |tag| {
        let was = found;
        found |= std::ptr::eq(tag.as_ptr(), t.cast());
        was
    })
}

/// A copy, in no list (m_tag_copy). NULL: there was no memory.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_copy(t: *mut Tag, how: i32) -> *mut Tag {
    let _ = how;
    quietly(null_mut(), || out(tag(t).and_then(|tag| tag.copy())))
}

/// Gives a packet copies of another's tags instead of its own (m_tag_copy_chain). 1, or 0: there was no memory, or one is no packet.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tag_copy_chain(to: *mut Mbuf, from: *mut Mbuf, how: i32) -> i32 {
    let _ = how;
    let copies = with(from, None, |tags| tags.copy_chain());
    let Some(copies) = copies else { return 0 };
    with(to, 0, |tags| {
        *tags = copies;
        1
    })
}
