//! A notice when another process opens a file, once. Until the next request, further opens cost this process nothing.

use rustix::fs::inotify;
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Becomes readable when the file is opened.
#[derive(Debug)]
pub struct Notice(OwnedFd);

impl Notice {
    /// Makes a notice without a request.
    pub fn new() -> io::Result<Notice> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Notice(inotify::init(flags)?))
    }

    /// Asks for a notice when the file at a path is opened next.
    pub fn ask(&self, path: &Path) -> io::Result<()> {
        let once = inotify::WatchFlags::OPEN | inotify::WatchFlags::ONESHOT;
        inotify::add_watch(&self.0, path, once)?;
        Ok(())
    }

    /// Clears the notice; says whether the file was opened. A request that was not answered yet stays.
    pub fn drain(&self) -> bool {
        let mut room = [MaybeUninit::<u8>::uninit(); 512];
        let mut reader = inotify::Reader::new(&self.0, &mut room);
        let mut opened = false;
        loop {
            match reader.next() {
                Ok(event) => opened |= event.events().contains(inotify::ReadFlags::OPEN),
                Err(Errno::INTR) => {}
                Err(_) => return opened,
            }
        }
    }
}

impl AsFd for Notice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_first_who_opens_is_told_of_and_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        File::create(&path).expect("a file");
        let Ok(notice) = Notice::new() else {
            return; // the user has as many as it may
        };
        assert!(!notice.drain());
        notice.ask(&path).expect("asked");
        for _ in 0..1000 {
            File::open(&path).expect("it");
        }
        assert!(notice.drain());
        File::open(&path).expect("it");
        assert!(!notice.drain());
        notice.ask(&path).expect("asked");
        File::open(&path).expect("it");
        assert!(notice.drain());
    }
}
