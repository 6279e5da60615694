//! The page's file. Every user that may connect to the socket may read it, because `stat` tells them everything too.
//! Only the manager's user may write it.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tranship_region::layout::{PageRw, page};
use tranship_sys::{memfd, process};

/// Words of the first file's areas.
const LEAST: usize = 4096;

/// The page's path, and its mode for readers.
#[derive(Debug)]
pub(in crate::shell) struct PagePath {
    path: PathBuf,
    mode: u32,
}

impl PagePath {
    /// Makes the place beside a socket. Permission bits cannot express rules by user: with such rules, only the
    /// manager's own user may read the page.
    pub fn beside(socket: &Path, rules: bool) -> io::Result<PagePath> {
        let socket_mode = std::fs::symlink_metadata(socket)?.mode();
        let others = match rules {
            true => 0,
            // A user that may write to a socket may connect to it.
            false => (socket_mode & 0o022) << 1,
        };
        Ok(PagePath {
            path: crate::page::path_of(socket),
            mode: 0o600 | others,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file for `words` words, in place of the present one.
    // Crash: before the rename the old file is there, after it the new one, without a publication.
    pub fn make(&self, words: usize, instance: u64) -> io::Result<PageRw> {
        let most = page::MAX_WORDS as usize;
        let words = words.max(LEAST / 2).saturating_mul(2).min(most);
        let words = u32::try_from(words).unwrap_or(page::MAX_WORDS);
        let new = self.path.with_added_extension("new");
        let _ = std::fs::remove_file(&new);
        let file: File = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&new)?;
        let made = self.fill(&file, words, instance);
        let made = made.and_then(|page| std::fs::rename(&new, &self.path).map(|()| page));
        made.inspect_err(|_| {
            let _ = std::fs::remove_file(&new);
        })
    }

    fn fill(&self, file: &File, words: u32, instance: u64) -> io::Result<PageRw> {
        // The file gets all of its memory now: a page without memory would end this process at a write.
        memfd::fallocate(file, page::len(words) as u64)?;
        let page = PageRw::create(file, words, instance, process::getpid())?;
        file.set_permissions(Permissions::from_mode(self.mode))?;
        Ok(page)
    }

    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_connect_may_read_it_and_nobody_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("manager.sock");
        File::create(&socket).expect("a file");
        let modes = [
            (0o600, 0o600),
            (0o660, 0o640),
            (0o666, 0o644),
            (0o777, 0o644),
        ];
        for (of_socket, of_page) in modes {
            let bits = Permissions::from_mode(of_socket);
            std::fs::set_permissions(&socket, bits).expect("a mode");
            for (rules, mode) in [(false, of_page), (true, 0o600)] {
                let place = PagePath::beside(&socket, rules).expect("a place");
                let page = place.make(10, 1).expect("a page");
                let made = std::fs::metadata(place.path()).expect("it");
                assert_eq!(made.mode() & 0o777, mode);
                assert!(page.capacity() >= 10 && made.len() == page::len(4096) as u64);
                place.remove();
            }
        }
        let left = std::fs::read_dir(dir.path()).expect("it").count();
        assert_eq!(left, 1, "nothing but the socket");
    }
}
