//! zstd, frame by frame, into a buffer of its own.

use super::{Outcome, Work};
use anyhow::{Context, Result};
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

/// The fastest of the regular levels: the demonstration is about the way to the compressor.
const LEVEL: i32 = 1;

pub(super) struct Compress {
    compressor: Compressor<'static>,
    out: Vec<u8>,
    bytes_in: u64,
    bytes_out: u64,
}

impl Compress {
    pub(super) fn new() -> Result<Self> {
        let compressor = Compressor::new(LEVEL).context("starting zstd")?;
        Ok(Self {
            compressor,
            out: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
        })
    }
}

impl Work for Compress {
    fn frame(&mut self, _offset: u64, bytes: &[u8]) -> Result<()> {
        self.out.clear();
        self.out.reserve(compress_bound(bytes.len()));
        let len = self
            .compressor
            .compress_to_buffer(bytes, &mut self.out)
            .context("compressing")?;
        self.bytes_in += bytes.len() as u64;
        self.bytes_out += len as u64;
        Ok(())
    }

    fn outcome(&mut self) -> Result<Outcome> {
        Ok(Outcome::Compressed {
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_what_went_in() {
        let mut work = Compress::new().expect("a compressor");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i.to_le_bytes()[1]).collect();
        work.frame(0, &bytes).expect("a frame");
        let again = zstd::bulk::decompress(&work.out, bytes.len()).expect("decompressing");
        assert_eq!(again, bytes);
        let len = work.out.len() as u64;
        let outcome = work.outcome().expect("an outcome");
        assert_eq!(
            outcome,
            Outcome::Compressed {
                bytes_in: 100_000,
                bytes_out: len
            }
        );
        assert!(len < 50_000);
    }
}
