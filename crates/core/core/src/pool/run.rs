//! Runs of consecutive slots, as buffers that are sent one after the other mostly have. Their words are found from the
//! first slot's.

use tranship_ledger::{Few, Slots};

/// Buffers that a sender looks at together after it has sent.
pub(crate) const FEW: u32 = 8;
/// [`FEW`] as the length of an array.
pub(super) const FEW_SLOTS: usize = FEW as usize;

/// `N` consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run<const N: usize> {
    /// The first slot, at most `u32::MAX - N`.
    first: u32,
}

impl<const N: usize> Run<N> {
    /// Returns these slots as a run, if they are consecutive.
    #[inline(always)]
    pub(super) fn of(slots: &[u32; N]) -> Option<Run<N>> {
        let first = *slots.first()?;
        #[allow(clippy::cast_possible_truncation)] // a few
        let most = u32::MAX - N as u32;
        let is_run = first < most
            && (0u32..)
                .zip(slots)
                .all(|(i, slot)| slot.wrapping_sub(first) == i);
        is_run.then_some(Run { first })
    }
}

impl<const N: usize> Slots for Run<N> {
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = u32> {
        (self.first..).take(N)
    }
    #[inline(always)]
    fn run(self) -> Option<(u32, usize)> {
        Some((self.first, N))
    }
}

impl<const N: usize> Few<N> for Run<N> {}

/// Goes through the entries of the slots in `all`, each with its item.
///
/// # Safety
/// `all` is valid during `'a`, and has one for each of the slots.
#[inline(always)]
pub(super) unsafe fn each_among<'a, E: 'a, T>(
    all: *const E,
    slots: impl Slots,
    beside: impl Iterator<Item = T>,
    mut take: impl FnMut(T, &'a E),
) {
    // SAFETY: as the caller says.
    let at = |first: *const E, index: usize| unsafe { &*first.add(index) };
    match slots.run() {
        Some((first, count)) => {
            let first = all.wrapping_add(first as usize);
            (0..count)
                .zip(beside)
                .for_each(|(i, t)| take(t, at(first, i)));
        }
        None => {
            let both = slots.each().zip(beside);
            both.for_each(|(slot, t)| take(t, at(all, slot as usize)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_of_slots_one_after_the_other() {
        let last = u32::MAX - 8;
        for few in [[7, 8, 9], [0, 1, 2], [last, last + 1, last + 2]] {
            let run = Run::of(&few).expect("a run");
            assert_eq!(run.each().collect::<Vec<_>>(), few);
            assert_eq!(run.run(), Some((few[0], 3)));
        }
        let wraps = [u32::MAX - 1, u32::MAX, 0];
        for few in [[7, 8, 10], [7, 9, 8], [9, 8, 7], [7, 7, 7], wraps] {
            assert_eq!(Run::of(&few), None, "{few:?}");
        }
    }

    #[test]
    fn each_slot_finds_its_own_however_it_is_found() {
        let all: Vec<u32> = (100..200).collect();
        let found = |slots: &[u32; 3], as_run: bool| {
            let mut found = Vec::new();
            let beside = 1..;
            let take = |beside: i32, it: &u32| found.push((beside, *it));
            match Run::of(slots) {
                // SAFETY: there are a hundred.
                Some(run) if as_run => unsafe { each_among(all.as_ptr(), run, beside, take) },
                // SAFETY: as above.
                _ => unsafe { each_among(all.as_ptr(), slots, beside, take) },
            }
            found
        };
        for as_run in [true, false] {
            assert_eq!(found(&[3, 4, 5], as_run), [(1, 103), (2, 104), (3, 105)]);
            assert_eq!(found(&[97, 98, 99], as_run), [(1, 197), (2, 198), (3, 199)]);
            assert_eq!(found(&[9, 0, 9], as_run), [(1, 109), (2, 100), (3, 109)]);
        }
    }
}
