//! The arithmetic of generations.
//!
//! A slot's generation is odd while nobody but the writer can name the buffer (free, cached, being filled) and
//! even from its first send until the collector has found it dead. It is [`BITS`] wide, never 0, and goes from
//! all ones to 1. The `_in` forms take the width, so that the models can wrap around within a few steps.

/// Width of a generation in a table and in an id.
pub const BITS: u32 = 24;

/// All ones: the last one.
const MASK: u32 = (1 << BITS) - 1;

/// The generation of a slot that was never used. The writer fills its table with this before it seals it.
pub const FIRST: u32 = 1;

/// The id names an earlier or a future use of its slot: its sender did not hold it (or counted wrongly).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The reference is stale: its id has generation {named}, the slot is at {found}")]
pub struct StaleReference {
    /// The id's generation.
    pub named: u32,
    /// The table's.
    pub found: u32,
}

/// Whether a buffer of this generation was ever sent, so that others may know its id.
#[must_use]
#[inline]
pub const fn is_published(generation: u32) -> bool {
    generation & 1 == 0
}

/// Odd to even: what a slot's generation becomes at the first send of its buffer. An even one stays.
#[must_use]
#[inline]
pub const fn published(free: u32) -> u32 {
    published_in(BITS, free)
}

/// Odd to even, for a generation that is known to be odd.
#[must_use]
#[inline]
pub const fn published_first(free: u32) -> u32 {
    debug_assert!(!is_published(free));
    if free >= MASK { 2 } else { free + 1 }
}

/// Even to odd: what a slot's generation becomes when its buffer was found dead. An odd one stays.
#[must_use]
#[inline]
pub const fn next_free(published: u32) -> u32 {
    next_free_in(BITS, published)
}

/// Returns the even generation from which [`next_free`] made this one, if there was one.
#[must_use]
#[inline]
pub const fn published_before(free: u32) -> u32 {
    free & !1
}

/// [`published`] at a width of `bits`, from 2 to 31.
#[must_use]
#[inline]
pub const fn published_in(bits: u32, free: u32) -> u32 {
    let mask = (1 << bits) - 1;
    if is_published(free) {
        free & mask
    } else if free & mask == mask {
        2
    } else {
        (free & mask) + 1
    }
}

/// [`next_free`] at a width of `bits`, from 2 to 31.
#[must_use]
#[inline]
pub const fn next_free_in(bits: u32, published: u32) -> u32 {
    let mask = (1 << bits) - 1;
    (published | 1) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_turn_never_meets_zero_and_visits_every_even_value_once() {
        for bits in 2..=12 {
            let mut seen = std::collections::HashSet::new();
            let mut free = FIRST;
            loop {
                let sent = published_in(bits, free);
                assert!(
                    is_published(sent) && sent != 0 && sent < 1 << bits,
                    "{bits} bits: {free} became {sent}"
                );
                if !seen.insert(sent) {
                    break;
                }
                free = next_free_in(bits, sent);
                assert_eq!(published_before(free), sent);
                assert!(
                    !is_published(free) && free < 1 << bits,
                    "{bits} bits: {sent} became {free}"
                );
            }
            assert_eq!(seen.len(), (1 << (bits - 1)) - 1);
        }
    }

    #[test]
    fn the_real_width_wraps_as_the_format_says() {
        assert_eq!(next_free(0x00ff_fffe), 0x00ff_ffff);
        assert_eq!(published(0x00ff_ffff), 2);
        assert_eq!(published(FIRST), 2);
        for odd in [FIRST, 3, 0x00ff_fffd, 0x00ff_ffff] {
            assert_eq!(published_first(odd), published(odd));
        }
        assert_eq!(next_free(2), 3);
        assert_eq!(published(2), 2);
        assert_eq!(next_free(3), 3);
    }
}
