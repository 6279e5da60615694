//! Lengths of buffers: the class of a length, lengths with a run of their own, sealed lengths.

use super::short::{Kind, Short, rounded};
use tranship_zone::{CachePlace, Classes, PAGE};

/// The lengths of a pool's buffers.
pub(super) struct Sizes {
    /// Bytes of the smallest buffer, a power of two. The size of each buffer is a multiple of it.
    least_bytes: u64,
    /// The fewest bytes of a large buffer of level `none`.
    seals_from: u64,
    classes: Classes,
    short: Short,
}

impl Sizes {
    /// Makes the sizes of a pool. `place`: the place of each class's zone.
    pub(super) fn new(
        classes: Classes,
        least_bytes: u64,
        seals_from: u64,
        place: impl Fn(usize) -> CachePlace,
    ) -> Sizes {
        Sizes {
            least_bytes,
            seals_from,
            short: Short::new(&classes, least_bytes, place),
            classes,
        }
    }

    /// Returns the kind of a buffer. Its size is a multiple of the pool's alignment, at level `half` of whole pages.
    #[inline(always)]
    pub(super) fn kind_of(&self, len: usize) -> Option<Kind> {
        match self.short.kind_of(len) {
            None => {
                let class = self.classes.class_of(self.rounded(len))?;
                Some(self.short.kind_of_class(class))
            }
            short => short,
        }
    }

    /// Returns the place of a class's caches; any place for `HUGE`, which is never cached.
    pub(super) fn place_of_class(&self, class: u8) -> CachePlace {
        self.short.kind_of_class(class.into()).place
    }

    /// Returns the bytes of a buffer as its pool counts them.
    #[inline(always)]
    pub(super) fn rounded(&self, len: usize) -> u64 {
        rounded(self.least_bytes, len)
    }

    /// Returns the pages of a buffer with a run of its own.
    pub(super) fn pages_of_run(&self, len: usize) -> u32 {
        u32::try_from(self.rounded(len).div_ceil(PAGE)).unwrap_or(u32::MAX)
    }

    /// Whether a buffer of that length is sealed when it is sent.
    pub(super) fn is_large(&self, len: usize) -> bool {
        self.rounded(len) >= self.seals_from
    }

    /// Whether the pool has such lengths.
    pub(super) fn has_large(&self) -> bool {
        self.seals_from != u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_class_a_run_or_sealed() {
        let (chunk, seals_from) = (64 << 10, 32 << 10);
        let sizes = |seals_from| {
            let classes = Classes::up_to(chunk, seals_from - 1);
            Sizes::new(classes, PAGE, seals_from, |_| CachePlace::numbered(0))
        };
        let sealing = sizes(seals_from);
        assert!(sealing.has_large() && sealing.is_large((28 << 10) + 1));
        assert!(!sealing.is_large(28 << 10));
        assert!(sealing.kind_of(28 << 10).is_some(), "below what is sealed");
        assert!(sealing.kind_of(32 << 10).is_none());
        let other = sizes(u64::MAX);
        assert!(!other.has_large() && !other.is_large(1 << 40));
        assert!(other.kind_of(64 << 10).is_some());
        assert!(other.kind_of((64 << 10) + 1).is_none());
        assert_eq!(other.pages_of_run((64 << 10) + 1), 17);
        assert_eq!(other.pages_of_run(usize::MAX), u32::MAX);
    }
}
