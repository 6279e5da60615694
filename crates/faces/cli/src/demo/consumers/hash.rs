//! BLAKE3 of every pass over the input.

use super::work::{Outcome, Work};
use anyhow::Result;

/// A hash that begins anew at offset 0. Pieces that do not follow each other make the pass incomplete.
pub(super) struct Hash {
    total: u64,
    hasher: blake3::Hasher,
    /// The offset that must come next; nothing while a pass is incomplete.
    next: Option<u64>,
    last: Option<blake3::Hash>,
    passes: u64,
    changed: u64,
}

impl Hash {
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            hasher: blake3::Hasher::new(),
            next: None,
            last: None,
            passes: 0,
            changed: 0,
        }
    }
}

impl Work for Hash {
    fn frame(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset == 0 {
            self.hasher.reset();
            self.next = Some(0);
        }
        if self.next != Some(offset) {
            self.next = None;
            return Ok(());
        }
        self.hasher.update(bytes);
        let end = offset + bytes.len() as u64;
        self.next = Some(end);
        if end == self.total {
            let hash = self.hasher.finalize();
            self.changed += u64::from(self.last.is_some_and(|last| last != hash));
            self.last = Some(hash);
            self.passes += 1;
        }
        Ok(())
    }

    fn outcome(&mut self) -> Result<Outcome> {
        let hash = self
            .last
            .map(|hash| hash.to_hex().to_string())
            .unwrap_or_default();
        Ok(Outcome::Hash {
            hash,
            passes: self.passes,
            changed: self.changed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(frames: &[(u64, &[u8])]) -> Outcome {
        let mut work = Hash::new(4);
        for (offset, bytes) in frames {
            work.frame(*offset, bytes).expect("a frame");
        }
        work.outcome().expect("an outcome")
    }

    #[test]
    fn every_complete_pass_counts() {
        let hash = blake3::hash(b"abcd").to_hex().to_string();
        let twice = run(&[(0, b"ab"), (2, b"cd"), (0, b"abc"), (3, b"d"), (0, b"a")]);
        assert_eq!(
            twice,
            Outcome::Hash {
                hash: hash.clone(),
                passes: 2,
                changed: 0
            }
        );
        let gap = run(&[(2, b"cd"), (0, b"ab"), (3, b"d"), (0, b"abcd")]);
        assert_eq!(
            gap,
            Outcome::Hash {
                hash,
                passes: 1,
                changed: 0
            }
        );
    }

    #[test]
    fn a_pass_with_other_bytes_is_seen() {
        let Outcome::Hash {
            changed, passes, ..
        } = run(&[(0, b"abcd"), (0, b"abcX")])
        else {
            panic!("a hash")
        };
        assert_eq!((passes, changed), (2, 1));
    }
}
