//! Writing and reading payloads, the same way for every system.

use anyhow::{Result, ensure};

/// Fills a payload with one byte of `stamp`, then puts the whole stamp in front.
///
/// # Safety
/// `at` is valid for writes of `len` bytes, `len >= 8`, and aligned to 8.
#[inline(never)]
pub unsafe fn fill(at: *mut u8, len: usize, stamp: u64) {
    // SAFETY: the caller's promise, above.
    unsafe {
        at.write_bytes(stamp.to_le_bytes()[0], len);
        at.cast::<u64>().write(stamp);
    }
    std::hint::black_box(at);
}

/// Reads a whole payload; gives its sum of words (so that no read can be left out).
///
/// # Safety
/// `at` is valid for reads of `len` bytes and aligned to 8; nobody writes there meanwhile.
#[inline(never)]
unsafe fn sum(at: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's promise, above.
    let words = unsafe { std::slice::from_raw_parts(at.cast::<u64>(), len / 8) };
    std::hint::black_box(words.iter().fold(0u64, |a, w| a.wrapping_add(*w)))
}

/// Reads a whole payload that [`fill`] wrote; gives the stamp.
///
/// # Safety
/// As of [`sum`].
#[inline(always)]
pub unsafe fn check(at: *const u8, len: usize) -> Result<u64> {
    // SAFETY: the caller's promise.
    let (stamp, sum) = unsafe { (at.cast::<u64>().read(), sum(at, len)) };
    ensure!(
        sum == expected(len, stamp),
        "bytes of message {stamp} changed"
    );
    Ok(stamp)
}

/// The sum of a payload of `len` bytes that [`fill`] wrote.
fn expected(len: usize, stamp: u64) -> u64 {
    let word = u64::from_le_bytes([stamp.to_le_bytes()[0]; 8]);
    let rest = (len / 8 - 1) as u64;
    stamp.wrapping_add(word.wrapping_mul(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_what_fill_wrote() {
        for len in [8usize, 64, 4096] {
            let mut words = vec![0u64; len / 8];
            for stamp in [0, 1, 0x1234_5678_9abc, u64::MAX] {
                // SAFETY: a vector of words of exactly that length, ours alone.
                let got = unsafe {
                    fill(words.as_mut_ptr().cast(), len, stamp);
                    sum(words.as_ptr().cast(), len)
                };
                assert_eq!(got, expected(len, stamp));
                words[len / 8 - 1] ^= 1 << 40;
                // SAFETY: as above.
                let other = unsafe { sum(words.as_ptr().cast(), len) };
                assert_ne!(other, expected(len, stamp));
            }
        }
    }
}
