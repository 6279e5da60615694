//! The classes of short buffers, by their length: one load instead of the rounding.

use tranship_zone::{Classes, PAGE};

/// Bytes of a line.
const LINE: usize = 64;
/// Lengths of up to a page, in lines.
#[allow(clippy::cast_possible_truncation)] // a page
const LINES: usize = PAGE as usize / LINE + 1;

/// A pool's classes, of those below `end` bytes by their length in lines.
pub(super) struct Short {
    classes: [u8; LINES],
    end: usize,
}

impl Short {
    /// Of a pool whose smallest buffer has so many bytes, of which the size of each is a multiple. None are short where a short one may be larger
    /// than the classes go.
    pub(super) fn new(classes: &Classes, least_bytes: u64) -> Short {
        let mut short = Short {
            classes: [0; LINES],
            end: (LINES - 1) * LINE + 1,
        };
        for (lines, class) in short.classes.iter_mut().enumerate() {
            let found = classes.class_of(rounded(least_bytes, lines * LINE));
            match found.and_then(|found| u8::try_from(found).ok()) {
                Some(found) => *class = found,
                None => short.end = 0,
            }
        }
        short
    }

    /// `None` for what is not short.
    #[inline(always)]
    pub(super) fn class_of(&self, len: usize) -> Option<usize> {
        (len < self.end).then(|| {
            // SAFETY: at most a page.
            usize::from(*unsafe { self.classes.get_unchecked(len.div_ceil(LINE)) })
        })
    }
}

/// A length as the pool counts it.
#[inline(always)]
pub(super) fn rounded(least_bytes: u64, len: usize) -> u64 {
    // Without overflow: no class is as large as the largest number.
    ((len as u64).saturating_sub(1) | (least_bytes - 1)).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lengths_have_the_class_of_their_rounded_ones() {
        let chunk = 64 << 10;
        let classes = Classes::new(chunk);
        for least_bytes in (0..=17).map(|shift| 1 << shift) {
            let short = Short::new(&classes, least_bytes);
            for len in 0..=4097 {
                let long = classes.class_of(rounded(least_bytes, len));
                let is_short = len <= 4096 && least_bytes <= chunk;
                let expected = long.filter(|_| is_short);
                assert_eq!(short.class_of(len), expected, "{len} of {least_bytes}");
            }
        }
    }
}
