//! Copying out of memory that may change under the copy.
//!
//! An ordinary copy would be a data race, and the compiler might read a byte twice. Volatile reads may not be
//! merged, repeated or dropped, but go word by word. On x86-64 longer pieces go through a loop in assembler instead:
//! the compiler does not look inside, every byte is read once, at about the speed of `memcpy`. (The string
//! instruction `rep movsb` looks simpler, but was 9 times slower than `memcpy` for some alignments from 1 MiB on.)

/// # Safety
/// `from` has `len` readable bytes (others may write them meanwhile), `to` has `len` bytes that only the
/// caller uses, and they do not overlap.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let done = match len >= 64 {
        // SAFETY: the same contract.
        true => unsafe { copy_blocks(from, to, len / 64) },
        false => 0,
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let done = 0;
    // SAFETY: the same contract, for the rest.
    unsafe { copy_words(from.add(done), to.add(done), len - done) };
}

/// Copies blocks of 64 bytes, and returns the number of bytes copied.
///
/// # Safety
/// The rules of [`copy`] hold for `blocks * 64` bytes; `blocks` is not 0.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, blocks: usize) -> usize {
    // SAFETY: reads and writes exactly `blocks * 64` bytes, in bounds, says the caller; any alignment will do.
    unsafe {
        core::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {blocks}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            blocks = inout(reg) blocks => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
    blocks * 64
}

/// # Safety
/// The rules of [`copy`] hold.
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
