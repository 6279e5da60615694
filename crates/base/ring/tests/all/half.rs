//! The place of everything in a half, and the halves that are refused.
use std::sync::atomic::Ordering::Relaxed;
use tranship_region::RwMapping;
use tranship_region::layout::CreateError;
use tranship_ring::{Ending, HalfRo, HalfRw, MAX_TYPE_BYTES, Ring, Side};

fn word(map: &RwMapping, offset: usize) -> u32 {
    map.view().read::<u32>(offset).expect("in bounds")
}

#[test]
fn a_half_is_where_the_format_says() {
    for (side, kind) in [(Side::Source, 6), (Side::Sink, 7)] {
        let (fd, rw) = HalfRw::create(side, 64).expect("create");
        let ro = HalfRo::open(&fd, side, 64).expect("open");
        rw.wake().store(1, Relaxed);
        rw.asleep().store(2, Relaxed);
        rw.closed().store(3, Relaxed);
        rw.head().store(4, Relaxed);
        rw.lines()[63].words[7].store(5, Relaxed);
        let seen = (ro.wake().load(Relaxed), ro.asleep().load(Relaxed));
        assert_eq!(seen, (1, 2));
        assert_eq!((ro.closed().load(Relaxed), ro.head().load(Relaxed)), (3, 4));
        assert_eq!(ro.lines()[63].words[7].load(Relaxed), 5);
        let words = [64, 128, 192, 256, 4096 + 64 * 63 + 56, 12];
        let words = words.map(|offset| word(rw.mapping(), offset));
        assert_eq!(words, [1, 2, 3, 4, 5, kind]);
        assert_eq!(ro.wake().as_ptr().addr() - ro.mapping().base().addr(), 64);
        assert_eq!((ro.count(), ro.side(), ro.lines().len()), (64, side, 64));
    }
}

#[test]
fn what_was_agreed_counts() {
    let (fd, _rw) = HalfRw::create(Side::Source, 64).expect("create");
    assert!(HalfRo::open(&fd, Side::Sink, 64).is_err());
    assert!(HalfRo::open(&fd, Side::Source, 128).is_err());
}

#[test]
fn numbers_out_of_range_are_errors_before_anything_is_made() {
    for lines in [0, 1, 3, 100, 65_537, 1 << 17, u32::MAX] {
        let error = HalfRw::create(Side::Sink, lines).expect_err("lines");
        assert!(matches!(error, CreateError::Count { count, .. } if count == lines));
    }
}

#[test]
fn an_end_says_once_how_it_ended() {
    let (fd, source) = HalfRw::create(Side::Source, 2).expect("create");
    let (_, sink) = HalfRw::create(Side::Sink, 2).expect("create");
    let end = Ring::new(sink, HalfRo::open(&fd, Side::Source, 2).expect("open"));
    assert_eq!(end.their_ending(), Ending::Open);
    source.end(Ending::Abandoned);
    source.end(Ending::Closed);
    assert_eq!(end.their_ending(), Ending::Abandoned);
    let words = [
        (1, Ending::Closed),
        (3, Ending::Never),
        (4, Ending::Abandoned),
        (u32::MAX, Ending::Abandoned),
    ];
    for (word, means) in words {
        source.closed().store(word, Relaxed);
        assert_eq!(end.their_ending(), means);
    }
}

#[test]
fn a_description_is_read_however_its_writer_lies() {
    let (fd, rw) = HalfRw::create(Side::Source, 64).expect("create");
    let ro = HalfRo::open(&fd, Side::Source, 64).expect("open");
    assert_eq!(ro.description(), "");
    rw.describe("Frame: 8 bytes");
    assert_eq!(ro.description(), "Frame: 8 bytes");
    rw.describe(&"x".repeat(MAX_TYPE_BYTES + 1));
    assert_eq!(ro.description(), "x".repeat(MAX_TYPE_BYTES));
    // The last byte before the lines.
    assert_eq!(word(rw.mapping(), 4096 - 4), u32::from_le_bytes(*b"xxxx"));
    assert_eq!(ro.lines()[0].words[0].load(Relaxed), 0);
    // SAFETY: the length's place, which only this test writes.
    unsafe { rw.mapping().at::<u32>(512).write(u32::MAX) };
    assert_eq!(ro.description().len(), MAX_TYPE_BYTES);
}
