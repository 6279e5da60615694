//! Checksums that travel with the data: made where it comes from, checked where it is used, and where it is kept.

use crate::limits::BLOCK_BYTES;
use crate::{Data, Fault};

/// Returns a request's bytes block by block: where each piece begins in the request, and its length. A piece ends where
/// a block of the store ends.
pub(crate) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let block = BLOCK_BYTES as u64;
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let inside = usize::try_from((offset + at as u64) % block).unwrap_or(0);
        let piece = (BLOCK_BYTES - inside).min(len - at);
        at += piece;
        Some((at - piece, piece))
    })
}

/// Returns the CRC-32C of each piece of bytes that lie at `offset` of a store.
#[must_use]
pub fn sums(offset: u64, bytes: &[u8]) -> Vec<u32> {
    pieces(offset, bytes.len())
        .map(|(at, len)| crc32c::crc32c(&bytes[at..at + len]))
        .collect()
}

/// Returns [`sums`] of the first `len` bytes of `data`, which others may be able to write: each piece is copied once.
pub(crate) fn sums_of(offset: u64, data: &Data, len: usize) -> Result<Vec<u32>, Fault> {
    if let Some(bytes) = data.slice() {
        return bytes
            .get(..len)
            .map(|b| sums(offset, b))
            .ok_or(Fault::Invalid);
    }
    let mut block = [0; BLOCK_BYTES];
    pieces(offset, len)
        .map(|(at, len)| {
            data.read(at, &mut block[..len])?;
            Ok(crc32c::crc32c(&block[..len]))
        })
        .collect()
}

/// Checks that these are the sums of the bytes at `offset`.
pub(crate) fn check(offset: u64, bytes: &[u8], given: &[u32]) -> Result<(), Fault> {
    compare(offset, bytes.len(), &sums(offset, bytes), given)
}

/// Checks like [`check`] the first `len` bytes of `data`.
pub(crate) fn check_data(offset: u64, data: &Data, len: usize, given: &[u32]) -> Result<(), Fault> {
    compare(offset, len, &sums_of(offset, data, len)?, given)
}

fn compare(offset: u64, len: usize, found: &[u32], given: &[u32]) -> Result<(), Fault> {
    if found.len() != given.len() {
        return Err(Fault::Invalid);
    }
    let mut both = pieces(offset, len).zip(found.iter().zip(given));
    match both.find(|(_, (found, given))| found != given) {
        Some(((at, _), _)) => Err(Fault::Corrupt(offset + at as u64)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_blocks_end() {
        let all = |offset, len| pieces(offset, len).collect::<Vec<_>>();
        assert_eq!(all(0, 8192), [(0, 4096), (4096, 4096)]);
        assert_eq!(all(4000, 200), [(0, 96), (96, 104)]);
        assert_eq!(all(4096, 1), [(0, 1)]);
        assert_eq!(all(7, 0), []);
    }

    #[test]
    fn a_changed_byte_is_found_and_its_block_named() {
        let mut bytes: Vec<u8> = (0..10_000).map(|n: u32| n.to_le_bytes()[0]).collect();
        let given = sums(100, &bytes);
        assert_eq!(check(100, &bytes, &given), Ok(()));
        assert_eq!(check(100, &bytes, &given[1..]), Err(Fault::Invalid));
        bytes[5000] ^= 1;
        assert_eq!(check(100, &bytes, &given), Err(Fault::Corrupt(4096)));
        let mut data = Data::heap(bytes.len());
        data.write(0, &bytes).expect("in bounds");
        assert_eq!(
            check_data(100, &data, bytes.len(), &given),
            Err(Fault::Corrupt(4096))
        );
    }
}
