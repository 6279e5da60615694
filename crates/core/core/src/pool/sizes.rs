//! How long buffers are: which class a length is of, which is a run of its own, which is sealed.

use super::short::{Kind, Short, rounded};
use tranship_zone::{CachePlace, Classes, PAGE};

/// The lengths of a pool's buffers.
pub(super) struct Sizes {
    /// Of the smallest buffer, and what the size of each is a multiple of: a power of two.
    least_bytes: u64,
    /// The fewest bytes of a large buffer of level `none`.
    seals_from: u64,
    classes: Classes,
    short: Short,
}

impl Sizes {
    /// `place`: of the zone of each class.
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

    /// The size class of a buffer, which is a multiple of the pool's alignment (and then the class is one, too), at level `half` of whole pages.
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

    /// Where threads have what is cached of a class; of `HUGE`, of which nothing is, any.
    pub(super) fn place_of_class(&self, class: u8) -> CachePlace {
        self.short.kind_of_class(class.into()).place
    }

    /// The bytes of a buffer as its pool counts them.
    #[inline(always)]
    pub(super) fn rounded(&self, len: usize) -> u64 {
        rounded(self.least_bytes, len)
    }

    /// The pages of one that is a run of its own.
    pub(super) fn pages_of_run(&self, len: usize) -> u32 {
        u32::try_from(self.rounded(len).div_ceil(PAGE)).unwrap_or(u32::MAX)
    }

    /// Whether a buffer of that length is sealed when it is sent.
    pub(super) fn is_large(&self, len: usize) -> bool {
        self.rounded(len) >= self.seals_from
    }

    /// Whether there is such a length.
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
