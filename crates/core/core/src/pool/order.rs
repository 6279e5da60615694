//! Puts slots that came back in no order into the order of their numbers. Sent together, their counters lie in one
//! cache line, and the receiver's processor foresees the next one.

/// Slots of a line: half of those whose counters lie in one cache line.
const EIGHT: usize = 8;
/// The most slots that are put in order: more would take long under the collector's lock.
pub(super) const MOST: usize = 1024;

/// Number of times that buffers which come back in no order are put in order before they are handed out again. Counters
/// of buffers in no order lie in lines of their own, and no receiver can guess the next buffer. The number is several
/// times all that caches and queues hold. Later they are not put in order, until more than one in [`ORDERED`] comes
/// back in order: in a pool whose buffers others hold for long there is no better order.
pub(super) const UNORDERED: u32 = 1024;
/// See [`UNORDERED`].
pub(super) const ORDERED: u32 = 8;

fn line(slot: u32) -> usize {
    slot as usize / EIGHT
}

/// Returns how many slots, from the first on, end one line; the number of all slots if they do not begin so.
pub(super) fn end_of_line(slots: &[u32]) -> usize {
    let follow = slots
        .windows(2)
        .take_while(|two| two[0].checked_add(1) == Some(two[1]))
        .count()
        + 1;
    let end = slots
        .iter()
        .position(|slot| *slot as usize % EIGHT == EIGHT - 1);
    match end {
        Some(last) if last < follow => last + 1,
        _ => slots.len(),
    }
}

/// Moves up to `want` slots from `ready` to `out`: as many whole lines as there are.
pub(super) fn take_lines(ready: &mut Vec<u32>, out: &mut Vec<u32>, want: usize) {
    // Most of them are in order from the last time, which makes this sort fast.
    ready.sort();
    let mut room = want / EIGHT;
    let (mut at, mut kept) = (0, 0);
    while at < ready.len() {
        let same = ready[at..].partition_point(|slot| line(*slot) == line(ready[at]));
        let end = at + same;
        if same == EIGHT && room > 0 {
            out.extend_from_slice(&ready[at..end]);
            room -= 1;
        } else {
            ready.copy_within(at..end, kept);
            kept += same;
        }
        at = end;
    }
    ready.truncate(kept);
}

/// Moves a few of the slots that [`take_lines`] left: those of the fullest lines. The missing slots of the other lines
/// may come back until more are wanted.
pub(super) fn take_fullest(ready: &mut Vec<u32>, out: &mut Vec<u32>, want: usize) {
    let mut want = want.min(EIGHT);
    while want > 0 && !ready.is_empty() {
        let (mut at, mut longest) = (0, 0..0);
        for same in ready.chunk_by(|a, b| line(*a) == line(*b)) {
            if same.len() > longest.len() {
                longest = at..at + same.len();
            }
            at += same.len();
        }
        longest.end = longest.end.min(longest.start + want);
        want -= longest.len();
        out.extend(ready.drain(longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_go_first_and_in_order() {
        let mut ready: Vec<u32> = (8..16).rev().chain([3, 17, 1]).chain(32..40).collect();
        let lines = |ready: &mut Vec<u32>, want| {
            let mut out = Vec::new();
            take_lines(ready, &mut out, want);
            out
        };
        let all: Vec<u32> = (8..16).chain(32..40).collect();
        assert_eq!(lines(&mut ready.clone(), 64), all);
        assert_eq!(lines(&mut ready, 15), all[..8]);
        assert_eq!(ready[..3], [1, 3, 17]);
        assert_eq!(ready.len(), 11);
        assert!(lines(&mut ready, 7).is_empty());
        assert_eq!(lines(&mut ready, 8), all[8..]);
        assert!(lines(&mut ready, 64).is_empty() && lines(&mut Vec::new(), 64).is_empty());
        assert_eq!(ready, [1, 3, 17]);
    }

    #[test]
    fn the_end_of_a_line_is_found() {
        let ends = [
            (vec![36, 37, 38, 39, 8, 9, 10, 11], 4),
            (vec![39, 8, 9, 10, 11, 12, 13, 14], 1),
            (vec![1, 2, 3, 4, 5, 6, 7, 16], 7),
            (vec![36, 38, 39, 8, 9, 10, 11, 12], 8),
            (vec![8, 9, 10, 3, 4, 5, 6, 7], 8),
            (vec![8, 9, 10, 11, 12, 13, 14, 15], 8),
            (vec![84, 87, 80, 86, 82, 96, 90, 110], 8),
            (vec![u32::MAX, 0], 1),
            (vec![], 0),
        ];
        for (slots, end) in ends {
            assert_eq!(end_of_line(&slots), end, "{slots:?}");
        }
    }

    #[test]
    fn without_a_whole_line_a_few_of_the_fullest_go() {
        let mut ready = vec![1, 2, 9, 16, 17, 18, 19, 20, 24, 25, 26, 40];
        let mut taken = |want| {
            let mut out = Vec::new();
            take_fullest(&mut ready, &mut out, want);
            out
        };
        assert_eq!(taken(64), [16, 17, 18, 19, 20, 24, 25, 26]);
        assert_eq!(taken(3), [1, 2, 9]);
        assert_eq!(taken(3), [40]);
        assert!(taken(3).is_empty());
    }
}
