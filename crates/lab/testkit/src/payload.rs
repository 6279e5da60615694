//! Contents that show when the memory under them was given to somebody else.
//!
//! Layout: id, seed, checksum (8 bytes each, little-endian), then words made from id, seed and position.
//! Shorter payloads carry words made from the id alone. Verify at receipt and again just before release:
//! a reuse in between changes the id, the seed or a word.

/// Bytes from which on a payload carries its seed and checksum.
pub const STAMPED: usize = 24;

/// Statement of a payload about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub id: u64,
    /// Seed; none below [`STAMPED`] bytes.
    pub seed: Option<u64>,
}

/// A payload that differs from the sent one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Torn {
    #[error("payload names id {found:#x}, expected {expected:#x}: memory was reused or crossed")]
    Id { found: u64, expected: u64 },
    #[error("payload carries seed {found:#x}, expected {expected:#x}: memory was reused")]
    Seed { found: u64, expected: u64 },
    #[error("byte {offset} of {len} is {found:#04x}, expected {expected:#04x}")]
    Byte {
        offset: usize,
        len: usize,
        found: u8,
        expected: u8,
    },
    #[error("checksum {found:#x}, expected {expected:#x}")]
    Checksum { found: u64, expected: u64 },
}

/// Mixes by SplitMix64's finaliser.
#[must_use]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn word(key: u64, index: usize) -> u64 {
    mix(key ^ (index as u64).wrapping_mul(0x2545_f491_4f6c_dd1d))
}

fn words(key: u64, from: usize, out: &mut [u8]) {
    for (i, chunk) in out.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(key, from + i).to_le_bytes()[..chunk.len()]);
    }
}

fn checksum(id: u64, seed: u64, body: &[u8]) -> u64 {
    body.chunks(8)
        .fold(mix(id) ^ mix(seed.rotate_left(17)), |sum, chunk| {
            let mut w = [0; 8];
            w[..chunk.len()].copy_from_slice(chunk);
            (sum ^ u64::from_le_bytes(w))
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(23)
        })
}

/// Fills `buf`.
pub fn fill(buf: &mut [u8], id: u64, seed: u64) {
    if buf.len() < STAMPED {
        return words(mix(id), 0, buf);
    }
    let (head, body) = buf.split_at_mut(STAMPED);
    words(mix(id) ^ seed, 0, body);
    head[..8].copy_from_slice(&id.to_le_bytes());
    head[8..16].copy_from_slice(&seed.to_le_bytes());
    head[16..].copy_from_slice(&checksum(id, seed, body).to_le_bytes());
}

/// Makes a payload of its own.
#[must_use]
pub fn made(len: usize, id: u64, seed: u64) -> Vec<u8> {
    let mut buf = vec![0; len];
    fill(&mut buf, id, seed);
    buf
}

/// Checks `view` (a copy, if another process can write it) and returns its stamp.
///
/// # Errors
/// The first thing that is not as [`fill`] wrote it.
pub fn verify(view: &[u8], id: u64) -> Result<Stamp, Torn> {
    let differs = |from: usize, part: &[u8], key: u64| {
        let mut expected = [0; 8];
        for (i, chunk) in part.chunks(8).enumerate() {
            words(key, i, &mut expected);
            if let Some(j) = chunk.iter().zip(&expected).position(|(a, b)| a != b) {
                let offset = from + 8 * i + j;
                return Err(Torn::Byte {
                    offset,
                    len: view.len(),
                    found: chunk[j],
                    expected: expected[j],
                });
            }
        }
        Ok(())
    };
    if view.len() < STAMPED {
        differs(0, view, mix(id))?;
        return Ok(Stamp { id, seed: None });
    }
    let at = |o: usize| u64::from_le_bytes(view[o..o + 8].try_into().unwrap_or_default());
    let (found, seed, sum) = (at(0), at(8), at(16));
    if found != id {
        return Err(Torn::Id {
            found,
            expected: id,
        });
    }
    differs(STAMPED, &view[STAMPED..], mix(id) ^ seed)?;
    let expected = checksum(id, seed, &view[STAMPED..]);
    if sum != expected {
        return Err(Torn::Checksum {
            found: sum,
            expected,
        });
    }
    Ok(Stamp {
        id,
        seed: Some(seed),
    })
}

/// Verifies like [`verify`], when the seed is known too.
///
/// # Errors
/// As [`verify`], or another seed.
pub fn verify_seed(view: &[u8], id: u64, seed: u64) -> Result<(), Torn> {
    match verify(view, id)?.seed {
        Some(found) if found != seed => Err(Torn::Seed {
            found,
            expected: seed,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_verifies() {
        for len in [0, 1, 7, 8, 23, 24, 25, 31, 32, 4095, 4096, 65_537] {
            let seed = (len >= STAMPED).then_some(9);
            assert_eq!(
                verify(&made(len, 5, 9), 5),
                Ok(Stamp { id: 5, seed }),
                "{len} bytes"
            );
            assert_eq!(verify_seed(&made(len, 5, 9), 5, 9), Ok(()));
        }
    }

    #[test]
    fn any_changed_byte_is_seen() {
        for len in [1, 23, 24, 40, 100] {
            for at in 0..len {
                let mut buf = made(len, 5, 9);
                buf[at] ^= 0x10;
                assert!(verify(&buf, 5).is_err(), "byte {at} of {len}");
            }
        }
    }

    #[test]
    fn another_id_or_seed_is_seen() {
        assert_eq!(
            verify(&made(64, 5, 9), 6),
            Err(Torn::Id {
                found: 5,
                expected: 6
            })
        );
        assert_eq!(
            verify_seed(&made(64, 5, 9), 5, 8),
            Err(Torn::Seed {
                found: 9,
                expected: 8
            })
        );
        assert!(verify(&made(8, 5, 0), 6).is_err());
    }

    #[test]
    fn half_overwritten_by_the_next_user_is_seen() {
        let mut buf = made(4096, 5, 9);
        buf[2048..].copy_from_slice(&made(4096, 5, 10)[2048..]);
        assert!(matches!(
            verify(&buf, 5),
            Err(Torn::Byte { offset: 2048, .. })
        ));
    }
}
