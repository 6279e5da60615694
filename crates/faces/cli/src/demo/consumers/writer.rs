//! Writes every frame to its place in the output.

use super::work::{Outcome, Work};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(super) struct Writer {
    /// Opened before the lock-down.
    file: File,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(file: File) -> Self {
        Self { file, bytes: 0 }
    }
}

impl Work for Writer {
    fn frame(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .context("writing the output")?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn outcome(&mut self) -> Result<Outcome> {
        Ok(Outcome::Written { bytes: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_land_at_their_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("out");
        let mut work = Writer::new(File::create(&path).expect("a file"));
        for (offset, bytes) in [(2, b"cd"), (0, b"ab")] {
            work.frame(offset, bytes).expect("a frame");
        }
        assert_eq!(std::fs::read(&path).expect("the file"), b"abcd");
        assert_eq!(
            work.outcome().expect("an outcome"),
            Outcome::Written { bytes: 4 }
        );
    }
}
