//! Copying out of memory that may change under the copy.
//!
//! An ordinary copy would be a data race, and the compiler might read a byte twice. Volatile reads may not be
//! merged, repeated or dropped, but go word by word. On x86-64 longer pieces go through a loop in assembler instead:
//! the compiler does not look inside, every byte is read once, at about the speed of `memcpy`. (The string
//! instruction `rep movsb` looks simpler, but was 9 times slower than `memcpy` for some alignments from 1 MiB on.)

/// Bytes of one round of a loop in assembler.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK: usize = 64;

/// # Safety
/// `from` has `len` readable bytes (others may write them meanwhile), `to` has `len` bytes that only the
/// caller uses, and they do not overlap.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let done = match len >= BLOCK {
        // SAFETY: the same contract.
        true => unsafe { copy_blocks(from, to, len / BLOCK) },
        false => 0,
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let done = 0;
    // SAFETY: the same contract, for the rest.
    unsafe { copy_words(from.add(done), to.add(done), len - done) };
}

/// Length from which on a copy to memory that another process reads goes past this processor's caches. The stores then do not
/// fetch the lines that they overwrite, and the copy does not evict what the program works with: out of the caches twice as fast,
/// within them as fast.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PAST_CACHES: usize = 1 << 20;

/// Copies as [`copy`] does, to memory that this processor reads no more.
///
/// # Safety
/// The rules of [`copy`] hold.
#[inline]
pub(super) unsafe fn copy_away(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= PAST_CACHES {
        let head = to.align_offset(BLOCK);
        let blocks = (len - head) / BLOCK;
        let done = head + blocks * BLOCK;
        // SAFETY: the same contract, for three parts; the middle one is aligned, and not empty.
        unsafe {
            copy_words(from, to, head);
            stream_blocks(from.add(head), to.add(head), blocks);
            copy_words(from.add(done), to.add(done), len - done);
        }
        return;
    }
    // SAFETY: the same contract.
    unsafe { copy(from, to, len) };
}

/// Copies blocks of 64 bytes past the caches.
///
/// # Safety
/// The rules of [`copy`] hold for `blocks * 64` bytes; `to` is a multiple of 64, `blocks` is not 0.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_blocks(from: *const u8, to: *mut u8, blocks: usize) {
    // SAFETY: reads and writes exactly `blocks * 64` bytes, in bounds and aligned, says the caller. The fence orders the stores
    // before all later ones, as ordinary stores are.
    unsafe {
        core::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movntps [{to}], {a}",
            "movntps [{to} + 16], {b}",
            "movntps [{to} + 32], {c}",
            "movntps [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {blocks}",
            "jnz 2b",
            "sfence",
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
    blocks * BLOCK
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
    fn long_copies_past_the_caches_are_whole() {
        const LONG: usize = 1 << 20;
        let source: Vec<u8> = (0..LONG + 300)
            .map(|i: usize| i.to_le_bytes()[0].wrapping_mul(7))
            .collect();
        for start in [0, 1, 63] {
            for len in [LONG - 1, LONG, LONG + 1, LONG + 127] {
                let mut copied = vec![0xee; len + 130];
                // SAFETY: both have that many bytes.
                unsafe {
                    let to = copied.as_mut_ptr().add(65 - start);
                    super::copy_away(source.as_ptr().add(start), to, len);
                }
                let (before, rest) = copied.split_at(65 - start);
                let (middle, after) = rest.split_at(len);
                assert!(middle == &source[start..start + len], "{start} {len}");
                assert!(before.iter().chain(after).all(|byte| *byte == 0xee));
            }
        }
    }

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
