//! Copying out of memory that may change under the copy.
//!
//! An ordinary copy would be a data race, and the compiler might read a byte twice. Volatile reads may not be
//! merged, repeated or dropped, but go word by word. For long copies on x86-64 one string instruction is used
//! instead: the compiler does not look inside, the processor reads every byte once, at the speed of `memcpy`.

/// From this length on the string instruction is faster than the words (its start costs some 30 cycles).
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 256;

/// # Safety
/// `from` has `len` readable bytes (others may write them meanwhile), `to` has `len` bytes that only the
/// caller uses, and they do not overlap.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= LONG {
        // SAFETY: the instruction reads `len` bytes at `from` and writes as many at `to`, both in bounds; the
        // direction flag is clear, as the ABI promises. It changes no flags and no stack.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    // SAFETY: the same contract.
    unsafe { copy_words(from, to, len) };
}

/// # Safety
/// As [`copy`].
#[inline]
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    // Bytes up to the first aligned word of the source, or all of a short piece.
    let head = from.align_offset(align_of::<u64>()).min(len);
    // SAFETY, for all three loops: `at` stays below `len`; the word loop reads only whole aligned words.
    while at < head {
        // SAFETY: see above.
        unsafe { to.add(at).write(from.add(at).read_volatile()) };
        at += 1;
    }
    while len - at >= 8 {
        // SAFETY: see above.
        unsafe {
            let word = from.add(at).cast::<u64>().read_volatile();
            to.add(at).cast::<u64>().write_unaligned(word);
        }
        at += 8;
    }
    while at < len {
        // SAFETY: see above.
        unsafe { to.add(at).write(from.add(at).read_volatile()) };
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_ways_copy_the_same() {
        let source: Vec<u8> = (0..1000)
            .map(|i: usize| i.to_le_bytes()[0].wrapping_mul(7))
            .collect();
        for start in 0..9 {
            for len in (0..40).chain([255, 256, 257, 900]) {
                let mut by_words = vec![0; len];
                let mut by_choice = vec![0; len];
                let from = &source[start..start + len];
                // SAFETY: both slices have `len` bytes.
                unsafe {
                    super::copy_words(from.as_ptr(), by_words.as_mut_ptr(), len);
                    super::copy(from.as_ptr(), by_choice.as_mut_ptr(), len);
                }
                assert!(by_words == from && by_choice == from, "{start} {len}");
            }
        }
    }
}
