//! The ring of one writer and any number of readers, one thread: what is received, missed, claimed and held; a wrap of
//! the 48 bits; any words in the lines.
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tranship_ring::broadcast::{
    BellRo, BellRw, Desk, DeskRo, DeskRw, Gaps, Hold, LAST, Limits, LinesRo, LinesRw, Message,
    Quiet, Reader, Reading, Received, SEQUENCES, T_NS, WITHDRAWN, Win, Writer, X_NS, at, let_go,
    sequence, wait,
};
use tranship_ring::{Line, Lines, ROUND, TIMED};
use tranship_sys::time::monotonic_ns;
use tranship_testkit::Watchdog;

const LINES: usize = 4;

/// Memory of one process.
struct Memory {
    lines: Vec<Line>,
    desk: Desk,
    table: Vec<AtomicU32>,
}

impl Memory {
    /// Makes memory whose lines were published up to a position.
    fn new(begin: u64) -> Memory {
        let lines: Vec<Line> = (0..LINES).map(|_| Line::default()).collect();
        for position in begin.saturating_sub(LINES as u64)..begin {
            let index = usize::try_from(position % LINES as u64).expect("small");
            for word in [0, LAST] {
                lines[index].words[word].store(sequence(position), Relaxed);
            }
        }
        Memory {
            lines,
            desk: Desk::default(),
            table: (0..64).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn lines(&self) -> Lines<'_> {
        Lines::new(&self.lines).expect("a power of two")
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            lines: self.lines(),
            desk: &self.desk,
            table: &self.table,
        }
    }

    fn win(&self) -> Win {
        Win::unpack(self.desk.win.load(Relaxed))
    }
}

fn message(n: u64) -> Message {
    Message {
        kind: (n % 100) << 48,
        content: std::array::from_fn(|i| n.wrapping_mul(10) + i as u64),
    }
}

fn publish(memory: &Memory, writer: &mut Writer) -> u64 {
    let n = writer.tail();
    let Ok(position) = writer.publish(&memory.lines(), message(n));
    assert_eq!(position, n);
    n
}

fn receive(memory: &Memory, reader: &mut Reader) -> Received {
    let Ok(received) = reader.receive(&memory.reading());
    received
}

fn finish(memory: &Memory, reader: &mut Reader) {
    let Ok(()) = reader.finish(&memory.reading());
}

fn hold(memory: &Memory, reader: &mut Reader, slot: u32, in_table: u32) -> Option<Hold> {
    let Ok(held) = reader.hold(&memory.reading(), slot, in_table);
    held.ok()
}

#[test]
fn messages_arrive_in_order_across_the_wrap_of_48_bits() {
    for begin in [0, 7, SEQUENCES - 9, (1 << 50) + 3, u64::MAX - 9] {
        let memory = Memory::new(begin);
        let (mut writer, mut reader) = (Writer::new(begin), Reader::new(begin, Limits::new(0)));
        for n in 0..30u64 {
            assert_eq!(receive(&memory, &mut reader), Received::Nothing, "{n}");
            let position = publish(&memory, &mut writer);
            let got = receive(&memory, &mut reader);
            assert_eq!(got, Received::Message(message(position)), "{n}");
            assert!(memory.win().len >= 1, "what is taken is covered");
            assert_eq!(memory.win().low, position & SEQUENCES);
            finish(&memory, &mut reader);
            assert_eq!(memory.win().low, position.wrapping_add(1) & SEQUENCES);
        }
    }
}

#[test]
fn overwritten_lines_are_missed() {
    for begin in [0, SEQUENCES - 3] {
        let memory = Memory::new(begin);
        let (mut writer, mut reader) = (Writer::new(begin), Reader::new(begin, Limits::new(0)));
        for _ in 0..LINES + 3 {
            publish(&memory, &mut writer);
        }
        assert_eq!(
            receive(&memory, &mut reader),
            Received::Missed(LINES as u64)
        );
        for n in LINES..LINES + 3 {
            let got = receive(&memory, &mut reader);
            assert_eq!(got, Received::Message(message(begin + n as u64)));
            finish(&memory, &mut reader);
        }
        assert_eq!(receive(&memory, &mut reader), Received::Nothing);
    }
}

#[test]
fn a_withdrawn_line_is_missed_and_nothing_else() {
    let memory = Memory::new(0);
    let (mut writer, mut reader) = (Writer::new(0), Reader::new(0, Limits::new(0)));
    let first = publish(&memory, &mut writer);
    let second = publish(&memory, &mut writer);
    let Ok(()) = writer.withdraw(&memory.lines(), first);
    assert_eq!(receive(&memory, &mut reader), Received::Missed(1));
    let got = receive(&memory, &mut reader);
    assert_eq!(got, Received::Message(message(second)));
    // What was taken before is not touched.
    let Ok(()) = writer.withdraw(&memory.lines(), second);
    finish(&memory, &mut reader);
    assert_eq!(receive(&memory, &mut reader), Received::Nothing);
}

/// A writer that dies while it overwrites a line stops no reader at that line.
#[test]
fn a_torn_line_is_missed() {
    let memory = Memory::new(0);
    let (mut writer, mut reader) = (Writer::new(0), Reader::new(0, Limits::new(0)));
    for _ in 0..LINES {
        publish(&memory, &mut writer);
    }
    memory.lines[0].words[7].store(sequence(LINES as u64), Relaxed);
    assert_eq!(receive(&memory, &mut reader), Received::Missed(1));
    assert_eq!(receive(&memory, &mut reader), Received::Message(message(1)));
}

#[test]
fn a_window_of_unfinished_messages_is_full() {
    let memory = Memory::new(0);
    let limits = Limits {
        window: 3,
        ..Limits::new(0)
    };
    let (mut writer, mut reader) = (Writer::new(0), Reader::new(0, limits));
    for n in 0..3 {
        publish(&memory, &mut writer);
        let got = receive(&memory, &mut reader);
        assert_eq!(got, Received::Message(message(n)));
    }
    publish(&memory, &mut writer);
    assert_eq!(receive(&memory, &mut reader), Received::Unfinished);
    assert_eq!(reader.unfinished(), 3);
    finish(&memory, &mut reader);
    assert!(matches!(
        receive(&memory, &mut reader),
        Received::Message(_)
    ));
    assert_eq!((memory.win().low, memory.win().len), (1, 3));
    // A line is missed while some are not finished: they stay covered.
    publish(&memory, &mut writer);
    finish(&memory, &mut reader);
    for _ in 0..2 * LINES {
        publish(&memory, &mut writer);
    }
    assert_eq!(receive(&memory, &mut reader), Received::Unfinished);
    assert_eq!(memory.win().low, 2);
    finish(&memory, &mut reader);
    finish(&memory, &mut reader);
    assert!(matches!(receive(&memory, &mut reader), Received::Missed(_)));
}

#[test]
fn holds_fill_kept_then_the_table_up_to_the_limit() {
    let memory = Memory::new(0);
    let limits = Limits {
        entries: 2,
        ..Limits::new(2)
    };
    let (mut writer, mut reader) = (Writer::new(0), Reader::new(0, limits));
    let mut next = |reader: &mut Reader| {
        publish(&memory, &mut writer);
        assert!(matches!(receive(&memory, reader), Received::Message(_)));
    };
    let expected = [
        Hold::Entry(0),
        Hold::Entry(1),
        Hold::Table(12),
        Hold::Table(13),
    ];
    for (i, expected) in (0u32..).zip(expected) {
        next(&mut reader);
        let held = hold(&memory, &mut reader, 10 + i, i.saturating_sub(2));
        assert_eq!(held, Some(expected));
        finish(&memory, &mut reader);
        assert_eq!(u32::from(memory.win().entries), (i + 1).min(2));
        assert_eq!(memory.desk.more.load(Relaxed), u32::from(i >= 2));
    }
    next(&mut reader);
    assert_eq!(hold(&memory, &mut reader, 14, 2), None, "as many as agreed");
    assert_eq!(reader.unfinished(), 1, "the window still covers it");
    // Any thread lets go.
    std::thread::scope(|s| {
        s.spawn(|| let_go(&memory.reading(), Hold::Entry(0)));
        s.spawn(|| let_go(&memory.reading(), Hold::Table(13)));
    });
    assert_eq!(memory.desk.kept[0].load(Relaxed), 0);
    assert_eq!(memory.table[13].load(Relaxed), 0);
    assert_eq!(hold(&memory, &mut reader, 14, 1), Some(Hold::Entry(0)));
    finish(&memory, &mut reader);
    for held in [Hold::Entry(0), Hold::Entry(1), Hold::Table(12)] {
        let Ok(()) = let_go(&memory.reading(), held);
    }
    let Ok(()) = reader.empty_table(&memory.reading(), 0);
    let Ok(_) = reader.claim(&memory.reading());
    let Ok(()) = reader.rest(&memory.reading());
    let idle = Win {
        low: 5,
        entries: 0,
        len: 0,
    };
    assert_eq!((memory.win(), memory.desk.more.load(Relaxed)), (idle, 0));
}

#[test]
fn positions_come_back_from_48_bits() {
    for near in [0, 5, SEQUENCES, SEQUENCES + 5, 1 << 60] {
        for by in [0, 1, 1 << 20, 1 << 46] {
            let ahead = near + by;
            assert_eq!(at(near, ahead & SEQUENCES), ahead);
            assert_eq!(at(ahead, near & SEQUENCES), near);
        }
    }
}

#[test]
fn pages_are_what_was_agreed() {
    let (fd, lines) = LinesRw::create(4).expect("lines");
    assert!(LinesRo::open(&fd, 8).is_err(), "another length");
    let seen = LinesRo::open(&fd, 4).expect("the same");
    let (desk_fd, desk) = DeskRw::create().expect("a desk");
    assert!(DeskRo::open(&fd).is_err() && BellRo::open(&desk_fd).is_err());
    let desk_seen = DeskRo::open(&desk_fd).expect("the same");
    for bad in [0, 1, 3, 1 << 17] {
        assert!(LinesRw::create(bad).is_err() && LinesRo::open(&fd, bad).is_err());
    }
    let (mut writer, mut reader) = (Writer::new(0), Reader::new(0, Limits::new(0)));
    let reading = Reading {
        lines: seen.lines(),
        desk: desk.desk(),
        table: &[],
    };
    let Ok(_) = writer.publish(&lines.lines(), message(0));
    assert_eq!(reader.receive(&reading), Ok(Received::Message(message(0))));
    let shown = Win::unpack(desk_seen.desk().win.load(Relaxed));
    assert_eq!((shown.low, shown.len), (0, 8));
}

/// A reader that found nothing for long sleeps until a publish after a long gap wakes it.
#[test]
fn a_publish_after_a_gap_wakes() {
    let _dog = Watchdog::new();
    let (fd, bell) = BellRw::create().expect("a bell");
    let near = BellRo::open(&fd).expect("the same");
    let memory = Memory::new(0);
    let mut gaps = Gaps::new(X_NS);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut reader = Reader::new(0, Limits::new(0));
            let mut quiet = Quiet::new(T_NS, monotonic_ns());
            for _ in 0..3 {
                loop {
                    let look = || match receive(&memory, &mut reader) {
                        Received::Message(message) => Some(message),
                        _ => None,
                    };
                    let got = wait(&TIMED, near.word(), &quiet, ROUND, monotonic_ns, look);
                    if got.expect("futex").is_some() {
                        break;
                    }
                }
                quiet.saw(monotonic_ns());
                finish(&memory, &mut reader);
            }
        });
        let mut writer = Writer::new(0);
        for n in 1..=3 {
            publish(&memory, &mut writer);
            if gaps.wakes(monotonic_ns()) {
                bell.wake(1);
                assert_eq!(bell.word().load(Relaxed), n);
            }
        }
    });
}

proptest! {
    /// The writer may write anything: a reader takes only whole lines of its own position, and never stands still
    /// except where nothing is there.
    #[test]
    fn any_words_in_the_lines(
        begin in prop_oneof![Just(0), Just(SEQUENCES - 2), any::<u64>()],
        words in prop::collection::vec((0..LINES, 0..8usize, any::<u64>(), 0..3u8, 0..16u64), 1..60),
    ) {
        let memory = Memory::new(begin);
        let mut reader = Reader::new(begin, Limits::new(4));
        for (line, word, any, how, near) in words {
            let close = reader.cursor().wrapping_add(near).wrapping_sub(4) & SEQUENCES;
            let value = match how {
                0 => any,
                1 => close,
                _ => close | WITHDRAWN,
            };
            memory.lines[line].words[word].store(value, Relaxed);
            for _ in 0..3 {
                let before = reader.cursor();
                match receive(&memory, &mut reader) {
                    Received::Nothing => prop_assert_eq!(reader.cursor(), before),
                    Received::Missed(_) => prop_assert_ne!(reader.cursor(), before),
                    Received::Message(_) => {
                        prop_assert_eq!(reader.cursor(), before.wrapping_add(1));
                        finish(&memory, &mut reader);
                    }
                    Received::Unfinished => prop_assert!(false, "all are finished"),
                }
                prop_assert_eq!(memory.win().low, reader.cursor() & SEQUENCES);
                prop_assert!(memory.win().len <= 8);
            }
        }
    }
}
