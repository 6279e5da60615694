//! Slots in the order of their numbers, out of those that came back in none: sent together, their counters lie in one cache line, and whoever receives them knows
//! which is the next.

/// Slots whose counters lie in one cache line.
const EIGHT: usize = 8;
/// More are not put in order: it would take long, under the collector's lock.
pub(super) const MOST: usize = 1024;

/// Moves up to `want` slots from `ready` to `out`: as many whole lines as there are; if there is none, the lowest few, for what is missing of a line may
/// come back until more is wanted.
pub(super) fn take_in_order(ready: &mut Vec<u32>, out: &mut Vec<u32>, want: usize) {
    ready.sort_unstable();
    let line = |slot: &u32| *slot as usize / EIGHT;
    let mut left = Vec::with_capacity(ready.len());
    let mut room = want / EIGHT;
    for same in ready.chunk_by(|a, b| line(a) == line(b)) {
        if same.len() == EIGHT && room > 0 {
            out.extend_from_slice(same);
            room -= 1;
        } else {
            left.extend_from_slice(same);
        }
    }
    if out.is_empty() {
        out.extend(left.drain(..left.len().min(EIGHT).min(want)));
    }
    *ready = left;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(ready: &mut Vec<u32>, want: usize) -> Vec<u32> {
        let mut out = Vec::new();
        take_in_order(ready, &mut out, want);
        out
    }

    #[test]
    fn whole_lines_go_first_and_in_order() {
        let mut ready: Vec<u32> = (8..16).rev().chain([3, 17, 1]).chain(32..40).collect();
        let all: Vec<u32> = (8..16).chain(32..40).collect();
        assert_eq!(taken(&mut ready.clone(), 64), all);
        assert_eq!(taken(&mut ready, 15), all[..8]);
        assert_eq!(ready[..3], [1, 3, 17]);
        assert_eq!(ready.len(), 11);
    }

    #[test]
    fn without_a_whole_line_a_few_go() {
        let mut ready: Vec<u32> = (0..40).filter(|n| n % 2 == 1).rev().collect();
        assert_eq!(taken(&mut ready, 64), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(ready.len(), 12);
        // The others have come back.
        ready.extend((0..40).filter(|n| n % 2 == 0));
        assert_eq!(taken(&mut ready, 64), (16..40).collect::<Vec<_>>());
        assert_eq!(taken(&mut ready, 3), [0, 2, 4]);
        assert!(taken(&mut Vec::new(), 64).is_empty());
    }
}
