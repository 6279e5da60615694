//! Size classes: multiples of 16 bytes, four steps per doubling, so that at most a fifth of an item is wasted.

/// Bytes of the largest class; a larger block is a mapping of its own.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The number of classes.
pub(crate) const COUNT: usize = 60;

/// Above this size, each item is a slab by itself.
pub(crate) const LARGEST_CUT: usize = 32 << 10;

/// Bytes of the items of each class.
pub(crate) const BYTES: [u32; COUNT] = {
    let mut bytes = [0; COUNT];
    let mut class = 0;
    let (mut size, mut step) = (16, 16);
    while class < COUNT {
        bytes[class] = size;
        // Eight steps of 16 bytes, then four a doubling.
        if size == 8 * step {
            step *= 2;
        }
        size += step;
        class += 1;
    }
    assert!(bytes[COUNT - 1] as usize == MAX_BYTES);
    bytes
};

/// Returns the smallest class that holds `bytes`, at most [`MAX_BYTES`].
#[inline]
pub(crate) fn class_of(bytes: usize) -> usize {
    let last = bytes.saturating_sub(1);
    // The two bits below the highest choose among the four classes of a doubling; up to 128 bytes there are steps of
    // 16.
    let doubling = (last | 64).ilog2() as usize;
    (last >> (doubling - 2)) + 4 * (doubling - 6)
}

/// Returns the smallest class whose items hold `bytes` and are aligned to `align` (a power of two), or `None`. Slabs
/// begin at pages, so an item is aligned to every power of two that divides its size, up to a page.
pub(crate) fn class_aligned(bytes: usize, align: usize) -> Option<usize> {
    if bytes > MAX_BYTES || align > 4096 {
        return None;
    }
    let fits = |class: &usize| (BYTES[*class] as usize).is_multiple_of(align);
    (class_of(bytes)..COUNT).find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for bytes in 0..=MAX_BYTES {
            let class = class_of(bytes);
            assert!(BYTES[class] as usize >= bytes, "{bytes}");
            assert!(class == 0 || (BYTES[class - 1] as usize) < bytes, "{bytes}");
        }
        assert!(BYTES.windows(2).all(|w| w[0] < w[1] && w[1] % 16 == 0));
    }

    #[test]
    fn little_is_wasted() {
        for bytes in 65..=MAX_BYTES {
            let waste = BYTES[class_of(bytes)] as usize - bytes;
            assert!(
                waste * 5 <= BYTES[class_of(bytes)] as usize,
                "{waste} for {bytes}"
            );
        }
    }

    #[test]
    fn aligned_classes_are_aligned() {
        for align in (0..13).map(|i| 1usize << i) {
            for bytes in (0..=MAX_BYTES).step_by(61) {
                let class =
                    class_aligned(bytes, align).expect("the largest is a multiple of a page");
                let size = BYTES[class] as usize;
                assert!(
                    size >= bytes && size.is_multiple_of(align),
                    "{bytes} aligned to {align}"
                );
            }
        }
        assert_eq!(class_aligned(1, 8192), None);
    }
}
