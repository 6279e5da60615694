//! Reading facts that only owners know: a writer's figures, a channel's cursors. As in `counters`, they are copied out of
//! the page cache.

use super::counters;
use crate::state::{FdToken, Look};
use std::fs::File;
use std::os::unix::fs::FileExt;
use tranship_proto::{ChannelStat, StatRecord};
use tranship_sys::time::monotonic_ns;

const ASLEEP_AT: u64 = 128;
const HEAD_AT: usize = 256 - 128;
const STALLS_AT: u64 = 320;
const LINES_AT: u64 = 4096;
const LINE: u64 = 64;

fn word(raw: &[u8], at: usize) -> u64 {
    let bytes = raw.get(at..at + 8).and_then(|b| b.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// Adds what can be read to a record.
pub(super) fn complete<'a>(
    record: &mut StatRecord,
    look: Look,
    file: &dyn Fn(FdToken) -> Option<&'a File>,
) {
    match (record, look) {
        (StatRecord::Pool(stat), Look::Figures { table }) => {
            let figures = file(table).and_then(|f| counters::figures(f).ok());
            figures.unwrap_or_default().say(stat);
        }
        (StatRecord::Channel(stat), Look::Rings { source, sink }) => {
            let halves = [source, sink].map(|half| file(half?));
            cursors(halves, stat, monotonic_ns());
        }
        _ => {}
    }
}

/// Reads a channel's cursors, as far as its halves (source, sink) are known. Trust: each number is the word of one of its
/// ends.
fn cursors([source, sink]: [Option<&File>; 2], found: &mut ChannelStat, now_ns: u64) {
    let mut raw = [0u8; 136];
    if sink.is_some_and(|f| f.read_exact_at(&mut raw, ASLEEP_AT).is_ok()) {
        let flag = u32::try_from(word(&raw, 0) & 0xffff_ffff);
        found.sink_asleep = flag.is_ok_and(tranship_ring::is_asleep);
        found.taken = word(&raw, HEAD_AT);
    }
    let Some(source) = source else { return };
    let mut raw = [0u8; 56];
    let is_read = source.read_exact_at(&mut raw, STALLS_AT).is_ok();
    // Never 0, if there is such a time.
    let since = |at: usize| match word(&raw, at) {
        0 => 0,
        since => now_ns.saturating_sub(since).max(1),
    };
    if is_read {
        found.stalls = word(&raw, 0);
        found.stalled_ns = word(&raw, 8);
        found.waiting_ns = since(16);
    }
    match u32::try_from(word(&raw, 24)) {
        // A topic's: its messages lie in the ring beside it.
        Ok(lines @ 1..) => {
            found.lines = lines;
            found.taken = word(&raw, 32);
            found.depth = word(&raw, 40).min(lines.into());
            found.behind_ns = since(48);
        }
        _ => found.depth = depth(source, found.taken, found.lines),
    }
}

/// Counts the published lines from the head on: they are written in order, so they end where the sequence ends.
fn depth(source: &File, head: u64, lines: u32) -> u64 {
    let lines = u64::from(lines);
    let is_sent = |i: u64| {
        let at = head.wrapping_add(i);
        let mut raw = [0u8; 4];
        let place = LINES_AT + at.checked_rem(lines).unwrap_or(0) * LINE;
        let expected = at.wrapping_add(1) & 0xffff_ffff;
        let read = source.read_exact_at(&mut raw, place);
        read.is_ok() && u64::from(u32::from_le_bytes(raw)) == expected
    };
    // The most frequent cases are nothing and everything.
    if lines == 0 || !is_sent(0) {
        return 0;
    }
    if is_sent(lines - 1) {
        return lines;
    }
    let (mut sent, mut not) = (0, lines - 1);
    while not - sent > 1 {
        let middle = sent.midpoint(not);
        match is_sent(middle) {
            true => sent = middle,
            false => not = middle,
        }
    }
    sent + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_ring::{Behind, HalfRo, HalfRw, Producer, Publish, Push, Ring, Side};

    /// For every head and depth, also where the sequence wraps around the ring.
    #[test]
    fn cursors_are_where_the_ends_are() {
        const LINES: u32 = 16;
        let source = HalfRw::create(Side::Source, LINES).expect("a half");
        let sink = HalfRw::create(Side::Sink, LINES).expect("a half");
        let files = [&source.0, &sink.0].map(|fd| File::from(fd.try_clone().expect("another")));
        let theirs = |fd, side| HalfRo::open(fd, side, LINES).expect("a half");
        let sees = theirs(&sink.0, Side::Sink);
        let seen = theirs(&source.0, Side::Source);
        let (from, to) = (Ring::new(source.1, sees), Ring::new(sink.1, seen));
        let mut producer = Producer::new();
        let mut taken = 0;
        let look = || {
            let mut found = ChannelStat {
                lines: LINES,
                ..ChannelStat::default()
            };
            cursors([Some(&files[0]), Some(&files[1])], &mut found, 12);
            found
        };
        for round in 0..200u64 {
            let want = 1 + round % u64::from(LINES);
            while producer.tail() - taken < want {
                let head = || from.their_head();
                let pushed = producer.try_push(from.own_lines(), Publish::SeqCst, [0; 8], head);
                assert_eq!(pushed, Ok(Push::Done));
            }
            let found = look();
            assert_eq!((found.taken, found.depth), (taken, producer.tail() - taken));
            taken += round % (want + 1);
            to.give_back(taken);
        }
        from.stall();
        from.wait(5);
        assert_eq!((look().stalls, look().waiting_ns), (1, 7));
        from.stall(); // it waits already
        from.wait_no_more(12);
        let found = look();
        assert_eq!(
            (found.stalls, found.stalled_ns, found.waiting_ns),
            (1, 7, 0)
        );
        assert!(!found.sink_asleep);
        to.spin();
        assert!(!look().sink_asleep, "it looks again and again");
        to.arm();
        assert!(look().sink_asleep);
        let mut behind = Behind {
            lines: 64,
            passed: 9,
            left: 3,
            since_ns: 7,
        };
        for (behind_ns, since_ns) in [(5, 7), (1, 12), (0, 0)] {
            behind.since_ns = since_ns;
            from.say_behind(behind);
            let found = look();
            assert_eq!((found.lines, found.taken, found.depth), (64, 9, 3));
            assert_eq!((found.behind_ns, found.stalls), (behind_ns, 1));
        }
    }
}
