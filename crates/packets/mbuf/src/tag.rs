//! Tags: a packet's list of meta-data (`m_tag`).

use crate::inject;
use std::fmt;
use std::ptr::NonNull;

/// Set in the id of a tag that `delete_nonpersistent` leaves (`MTAG_PERSISTENT`).
#[doc(alias = "MTAG_PERSISTENT")]
pub const PERSISTENT: u16 = 0x800;

/// One tag: its module, its number there, and its bytes.
#[doc(alias = "m_tag")]
pub struct Tag {
    next: Option<Box<Tag>>,
    cookie: u32,
    id: u16,
    data: Box<[u8]>,
}

impl Tag {
    /// Makes a tag with `len` zero bytes (`m_tag_alloc`, and `m_tag_get` with cookie 0).
    ///
    /// `cookie` names the module that defines `id`. Returns `None` if there is no memory.
    #[doc(alias = "m_tag_alloc")]
    #[doc(alias = "m_tag_get")]
    #[must_use]
    pub fn new(cookie: u32, id: u16, len: usize) -> Option<Box<Tag>> {
        if inject::fails() {
            return None;
        }
        let mut data = Vec::new();
        data.try_reserve_exact(len).ok()?;
        data.resize(len, 0);
        Some(Box::new(Tag {
            next: None,
            cookie,
            id,
            data: data.into(),
        }))
    }

    /// Returns the module that defines the id.
    #[must_use]
    pub fn cookie(&self) -> u32 {
        self.cookie
    }
    /// Returns the tag's number in its module.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }
    /// Returns the tag's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }
    /// Returns the tag's bytes, for writing.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
    fn is(&self, cookie: u32, id: u16) -> bool {
        self.cookie == cookie && self.id == id
    }
    /// Makes a copy, in no list (`m_tag_copy`). `None` if there is no memory.
    #[doc(alias = "m_tag_copy")]
    #[must_use]
    pub fn copy(&self) -> Option<Box<Tag>> {
        let mut copy = Tag::new(self.cookie, self.id, self.data.len())?;
        copy.data.copy_from_slice(&self.data);
        Some(copy)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tag")
            .field("cookie", &self.cookie)
            .field("id", &self.id)
            .field("bytes", &self.data.len())
            .finish()
    }
}

/// A packet's tags, the newest first.
#[derive(Default)]
#[repr(transparent)]
pub struct Tags {
    first: Option<Box<Tag>>,
}

impl Tags {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Tags {
        Tags { first: None }
    }

    /// Says whether there are no tags.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Puts a tag in front (`m_tag_prepend`).
    #[doc(alias = "m_tag_prepend")]
    pub fn prepend(&mut self, mut tag: Box<Tag>) {
        tag.next = self.first.take();
        self.first = Some(tag);
    }

    /// Returns all tags (`m_tag_first`, `m_tag_next`).
    #[doc(alias = "m_tag_first")]
    #[doc(alias = "m_tag_next")]
    pub fn iter(&self) -> impl Iterator<Item = &Tag> {
        std::iter::successors(self.first.as_deref(), |tag| tag.next.as_deref())
    }

    /// Returns the first tag of this kind (`m_tag_find`, `m_tag_locate`); for later ones, use [`iter`](Self::iter) and
    /// filter.
    #[doc(alias = "m_tag_find")]
    #[doc(alias = "m_tag_locate")]
    #[must_use]
    pub fn find(&self, cookie: u32, id: u16) -> Option<&Tag> {
        self.iter().find(|tag| tag.is(cookie, id))
    }

    /// Returns the first tag of this kind, for writing.
    pub fn find_mut(&mut self, cookie: u32, id: u16) -> Option<&mut Tag> {
        let mut at = self.first.as_deref_mut();
        while let Some(tag) = at {
            if tag.is(cookie, id) {
                return Some(tag);
            }
            at = tag.next.as_deref_mut();
        }
        None
    }

    /// Takes the first tag of this kind out of the list (`m_tag_unlink`); dropping it is `m_tag_delete`.
    #[doc(alias = "m_tag_unlink")]
    #[doc(alias = "m_tag_delete")]
    #[doc(alias = "m_tag_free")]
    pub fn unlink(&mut self, cookie: u32, id: u16) -> Option<Box<Tag>> {
        self.unlink_if(|tag| tag.is(cookie, id))
    }

    fn unlink_if(&mut self, mut wanted: impl FnMut(&Tag) -> bool) -> Option<Box<Tag>> {
        let mut at = &mut self.first;
        while at.as_ref().is_some_and(|tag| !wanted(tag)) {
            at = &mut at.as_mut()?.next;
        }
        let mut tag = at.take()?;
        *at = tag.next.take();
        Some(tag)
    }

    /// Returns all tags, as plain pointers for C programs: each is valid until its tag is dropped.
    pub fn pointers(&mut self) -> impl Iterator<Item = NonNull<Tag>> {
        let after = |tag: Option<&mut Box<Tag>>| tag.map(|tag| NonNull::from(&mut **tag));
        std::iter::successors(after(self.first.as_mut()), move |tag| {
            // SAFETY: in the list, which is borrowed mutably. Code that read one of the pointers meanwhile does not use
            // it any more.
            after(unsafe { &mut *tag.as_ptr() }.next.as_mut())
        })
    }

    /// Takes this very tag out of the list, wherever it is (`m_tag_unlink`).
    pub fn unlink_at(&mut self, tag: *const Tag) -> Option<Box<Tag>> {
        self.unlink_if(|other| std::ptr::eq(other, tag))
    }

    /// Deletes all (`m_tag_delete_chain`).
    #[doc(alias = "m_tag_delete_chain")]
    pub fn clear(&mut self) {
        // Drops the tags one after another, because the compiler's drop of a list recurses.
        let mut next = self.first.take();
        while let Some(mut tag) = next {
            next = tag.next.take();
        }
    }

    /// Deletes tags without [`PERSISTENT`] in their id (`m_tag_delete_nonpersistent`).
    #[doc(alias = "m_tag_delete_nonpersistent")]
    pub fn delete_nonpersistent(&mut self) {
        while self.unlink_if(|tag| tag.id & PERSISTENT == 0).is_some() {}
    }

    /// Makes copies of all tags, in the same order (`m_tag_copy_chain`). `None` if there is no memory for all of them.
    #[doc(alias = "m_tag_copy_chain")]
    #[must_use]
    pub fn copy_chain(&self) -> Option<Tags> {
        let mut copies = Tags::new();
        let mut end = &mut copies.first;
        for tag in self.iter() {
            end = &mut end.insert(tag.copy()?).next;
        }
        Some(copies)
    }

    /// Keeps one tag of this kind and deletes all others; returns whether there was one.
    pub(crate) fn keep_only(&mut self, cookie: u32, id: u16) -> bool {
        let kept = self.unlink(cookie, id);
        self.clear();
        self.first = kept;
        self.first.is_some()
    }
}

impl Drop for Tags {
    #[inline]
    fn drop(&mut self) {
        if self.first.is_some() {
            self.clear();
        }
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(ids: &[u16]) -> Tags {
        let mut tags = Tags::new();
        for id in ids.iter().rev() {
            let mut tag = Tag::new(7, *id, 3).expect("memory");
            tag.data_mut().fill(id.to_le_bytes()[0]);
            tags.prepend(tag);
        }
        tags
    }

    fn ids(tags: &Tags) -> Vec<u16> {
        tags.iter().map(Tag::id).collect()
    }

    #[test]
    fn a_list_with_the_newest_first() {
        let mut list = tags(&[1, 2, 3, 2]);
        assert_eq!(ids(&list), [1, 2, 3, 2]);
        assert_eq!(list.find(7, 3).map(Tag::data), Some(&[3, 3, 3][..]));
        assert!(list.find(8, 3).is_none());
        assert_eq!(list.unlink(7, 2).map(|tag| tag.id()), Some(2));
        assert_eq!(ids(&list), [1, 3, 2], "the first of them");
        list.find_mut(7, 2).expect("the other").data_mut()[0] = 9;
        assert_eq!(list.find(7, 2).map(Tag::data), Some(&[9, 2, 2][..]));
        list.clear();
        assert!(list.is_empty() && list.unlink(7, 1).is_none());
    }

    #[test]
    fn copies_are_deep_and_in_order() {
        let mut list = tags(&[1, 2 | PERSISTENT, 3]);
        let copy = list.copy_chain().expect("memory");
        list.find_mut(7, 1).expect("there").data_mut().fill(0);
        assert_eq!(ids(&copy), ids(&list));
        assert_eq!(copy.find(7, 1).map(Tag::data), Some(&[1, 1, 1][..]));
        list.delete_nonpersistent();
        assert_eq!(ids(&list), [2 | PERSISTENT]);
        let mut copy = copy;
        assert!(copy.keep_only(7, 3));
        assert_eq!(ids(&copy), [3]);
        assert!(!copy.keep_only(7, 1) && copy.is_empty());
    }

    #[test]
    fn this_very_tag_is_found_among_its_like() {
        let mut list = tags(&[1, 2, 2, 2]);
        let all: Vec<_> = list.pointers().collect();
        assert_eq!(all.len(), 4);
        // SAFETY: in the list, and nothing else reads it.
        unsafe { &mut *all[2].as_ptr() }.data_mut().fill(9);
        assert_eq!(
            list.unlink_at(all[2].as_ptr()).map(|tag| tag.data[0]),
            Some(9)
        );
        assert!(
            list.unlink_at(all[2].as_ptr()).is_none(),
            "not in it any more"
        );
        assert!(list.pointers().eq([all[0], all[1], all[3]]));
        assert_eq!(ids(&list), [1, 2, 2]);
    }

    #[test]
    fn a_long_list_is_dropped_without_recursion() {
        drop(tags(&vec![1; 1_000_000]));
    }
}
