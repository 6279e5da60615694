//! Counters that processes share with the test, and that outlive them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A file of numbers. Each has one writer at a time, which goes on where the one before it was killed.
#[derive(Debug)]
pub struct Gauge(File);

impl Gauge {
    /// Opens it, and makes it where it is not there yet: every number is 0 then.
    ///
    /// # Panics
    /// When it cannot be opened.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        Self(file.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    }

    /// # Panics
    /// When the file cannot be read.
    #[must_use]
    pub fn read(&self, number: usize) -> u64 {
        let mut bytes = [0; 8];
        // A short file has zeros behind its end.
        let n = self.0.read_at(&mut bytes, 8 * number as u64);
        assert!(matches!(n, Ok(0 | 8)), "gauge {number}: {n:?}");
        u64::from_le_bytes(bytes)
    }

    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, number: usize, to: u64) {
        let written = self.0.write_all_at(&to.to_le_bytes(), 8 * number as u64);
        assert!(written.is_ok(), "gauge {number}: {written:?}");
    }

    /// Counts one more, by its only writer.
    pub fn tick(&self, number: usize) {
        self.set(number, self.read(number) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_after_goes_on_where_the_last_one_was() {
        let dir = crate::folder().expect("a folder");
        let path = dir.path().join("gauge");
        let first = Gauge::open(&path);
        first.tick(2);
        drop(first);
        let second = Gauge::open(&path);
        second.tick(2);
        second.set(0, 7);
        let all: Vec<u64> = (0..4).map(|n| second.read(n)).collect();
        assert_eq!(all, [7, 0, 2, 0]);
    }
}
