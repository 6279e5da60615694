//! The holes of a file.

use crate::Extent;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;

/// Returns the next pieces of the file: see [`Store::extents`](crate::Store::extents).
pub(super) fn of(file: &File, offset: u64, len: u64, most: usize) -> Vec<Extent> {
    let end = offset.saturating_add(len);
    let mut all = Vec::new();
    let mut at = offset;
    while at < end && all.len() < most {
        let (next, hole) = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data > at => (data, true),
            // What the file system cannot tell of is no hole.
            Ok(_) => (seek(file, SeekFrom::Hole(at)).unwrap_or(end), false),
            Err(Errno::NXIO) => (end, true),
            Err(_) => (end, false),
        };
        // A file that changes meanwhile may say anything.
        let next = next.clamp(at + 1, end);
        all.push(Extent {
            len: next - at,
            hole,
        });
        at = next;
    }
    merged(all)
}

/// Makes one piece of neighbours of one kind.
fn merged(all: Vec<Extent>) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::with_capacity(all.len());
    for extent in all {
        match merged.last_mut() {
            Some(last) if last.hole == extent.hole => last.len += extent.len,
            _ => merged.push(extent),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn extent(len: u64, hole: bool) -> Extent {
        Extent { len, hole }
    }

    #[test]
    fn pieces_cover_what_was_asked_for_and_no_data_is_in_a_hole() {
        let near = std::env::current_exe().expect("this test's path");
        let file = tempfile::tempfile_in(near.parent().expect("a folder")).expect("a file");
        file.set_len(64 << 20).expect("a size");
        file.write_all_at(&[1; 4096], 16 << 20).expect("written");
        let all = of(&file, 0, 64 << 20, 100);
        assert_eq!(all.iter().map(|extent| extent.len).sum::<u64>(), 64 << 20);
        let mut at = 0;
        for extent in &all {
            let has_data = (at..at + extent.len).contains(&(16 << 20));
            assert!(!(has_data && extent.hole), "{all:?}");
            at += extent.len;
        }
        if all.len() == 1 {
            return tranship_testkit::skipped("holes: this file system cannot tell of them");
        }
        assert_eq!(all[0], extent(16 << 20, true));
        assert_eq!(of(&file, 1, 100, 100), [extent(100, true)]);
        assert_eq!(of(&file, 16 << 20, 1, 1), [extent(1, false)]);
        assert_eq!(of(&file, 0, 64 << 20, 1), [extent(16 << 20, true)]);
        assert_eq!(of(&file, 64 << 20, 0, 1), []);
    }

    #[test]
    fn neighbours_of_one_kind_are_one() {
        let all = vec![extent(1, true), extent(2, true), extent(3, false)];
        assert_eq!(merged(all), [extent(3, true), extent(3, false)]);
    }
}
