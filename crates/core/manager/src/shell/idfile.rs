//! The file that keeps ids from being handed out twice over a restart: two decimal numbers.

use super::machine;
use crate::state::IdStart;
use std::io;
use std::path::Path;
use tranship_sys::crash;

/// Reads the first ids; they are random if the file does not exist or cannot be read.
pub(super) fn load(path: Option<&Path>) -> IdStart {
    let read = path.and_then(|p| std::fs::read_to_string(p).ok());
    let kept = read.and_then(|text| {
        let mut words = text.split_whitespace().map(str::parse::<u32>);
        Some(IdStart {
            next: words.next()?.ok()?,
            next_pool: words.next()?.ok()?,
        })
    });
    kept.unwrap_or_else(|| {
        let r = machine::random();
        #[allow(clippy::cast_possible_truncation)] // two independent halves
        IdStart {
            next: r as u32,
            next_pool: (r >> 32) as u32 % ((1 << 20) - 1),
        }
    })
}

/// Crash: before the rename the old reservation is valid, after it the new one; ids are skipped, never reused.
pub(super) fn save(path: &Path, next: u32, next_pool: u32) -> io::Result<()> {
    let new = path.with_added_extension("new");
    std::fs::write(&new, format!("{next} {next_pool}\n"))?;
    crash::point("manager.before_rename");
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_where_it_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        save(&path, 7, 9).unwrap();
        save(&path, 8, 10).unwrap();
        assert_eq!(
            load(Some(&path)),
            IdStart {
                next: 8,
                next_pool: 10
            }
        );
        std::fs::write(&path, "discarded").unwrap();
        assert_ne!(load(Some(&path)), load(Some(&path)));
    }
}
