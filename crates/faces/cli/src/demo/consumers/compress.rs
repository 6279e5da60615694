//! LZ4, frame by frame, into a buffer of its own.

use super::work::{Outcome, Work};
use anyhow::{Context, Result};
use lz4_flex::block::{compress_into, get_maximum_output_size};

/// A fast one: the demonstration is about the way to the compressor.
#[derive(Default)]
pub(super) struct Compress {
    out: Vec<u8>,
    len: usize,
    bytes_in: u64,
    bytes_out: u64,
}

impl Work for Compress {
    fn frame(&mut self, _offset: u64, bytes: &[u8]) -> Result<()> {
        let most = get_maximum_output_size(bytes.len());
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        self.len = compress_into(bytes, &mut self.out).context("compressing")?;
        self.bytes_in += bytes.len() as u64;
        self.bytes_out += self.len as u64;
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
        let mut work = Compress::default();
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i.to_le_bytes()[1]).collect();
        work.frame(0, &bytes).expect("a frame");
        let again =
            lz4_flex::block::decompress(&work.out[..work.len], bytes.len()).expect("decompressing");
        assert_eq!(again, bytes);
        let len = work.len as u64;
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
