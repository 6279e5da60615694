//! The classes of short buffers, by their length: one load instead of the rounding.

use tranship_zone::{CachePlace, Classes, PAGE};

/// Bytes of a line.
const LINE: usize = 64;
/// Lengths of up to a page, in lines.
#[allow(clippy::cast_possible_truncation)] // a page
const LINES: usize = PAGE as usize / LINE + 1;

/// The zone of a buffer: its class, and the place of the zone's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) class: u8,
    pub(super) place: CachePlace,
}

/// A pool's classes; for buffers below `end` bytes by the length in lines. They have the zones' places: to find these
/// by the class would cost each allocation two more dependent loads.
pub(super) struct Short {
    kinds: [Kind; LINES],
    end: usize,
    /// Kinds of buffers that are not short, by class.
    of_class: [Kind; 1 << u8::BITS],
}

impl Short {
    /// Makes the classes of a pool whose smallest buffer has so many bytes; the size of each buffer is a multiple of
    /// it. No buffer is short where a short one may be larger than the largest class.
    pub(super) fn new(
        classes: &Classes,
        least_bytes: u64,
        place: impl Fn(usize) -> CachePlace,
    ) -> Short {
        let kind = |class: u8| Kind {
            class,
            place: place(class.into()),
        };
        let mut short = Short {
            kinds: [kind(0); LINES],
            end: (LINES - 1) * LINE + 1,
            of_class: [kind(0); 1 << u8::BITS],
        };
        for (class, of) in (0..=u8::MAX).zip(&mut short.of_class) {
            if usize::from(class) < classes.count() {
                *of = kind(class);
            }
        }
        for (lines, short_kind) in short.kinds.iter_mut().enumerate() {
            let found = classes.class_of(rounded(least_bytes, lines * LINE));
            match found.and_then(|found| u8::try_from(found).ok()) {
                Some(found) => *short_kind = kind(found),
                None => short.end = 0,
            }
        }
        short
    }

    /// Returns the kind of a class of the pool.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // there are fewer than 255 classes
    pub(super) fn kind_of_class(&self, class: usize) -> Kind {
        self.of_class[usize::from(class as u8)]
    }

    /// Returns the kind of a short length, `None` for others.
    #[inline(always)]
    pub(super) fn kind_of(&self, len: usize) -> Option<Kind> {
        (len < self.end).then(|| {
            // Not `div_ceil`, which guards against an impossible overflow.
            #[allow(clippy::manual_div_ceil)]
            let lines = (len + (LINE - 1)) / LINE;
            // SAFETY: at most a page.
            *unsafe { self.kinds.get_unchecked(lines) }
        })
    }
}

/// Returns a length as the pool counts it.
#[inline(always)]
pub(super) fn rounded(least_bytes: u64, len: usize) -> u64 {
    // Without overflow: no class is as large as the largest number.
    ((len as u64).saturating_sub(1) | (least_bytes - 1)).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::cast_possible_truncation)] // there are fewer than 255 classes
    fn short_lengths_have_the_class_of_their_rounded_ones() {
        let chunk = 64 << 10;
        let classes = Classes::new(chunk);
        for least_bytes in (0..=17).map(|shift| 1 << shift) {
            let place = |class: usize| CachePlace::numbered(class as u8);
            let short = Short::new(&classes, least_bytes, place);
            for len in 0..=4097 {
                let long = classes.class_of(rounded(least_bytes, len));
                let is_short = len <= 4096 && least_bytes <= chunk;
                let kind = |class| Kind {
                    class: class as u8,
                    place: place(class),
                };
                if let Some(class) = long {
                    assert_eq!(short.kind_of_class(class), kind(class));
                }
                let expected = long.filter(|_| is_short).map(kind);
                assert_eq!(short.kind_of(len), expected, "{len} of {least_bytes}");
            }
        }
    }
}
