//! Tests of numbers of 32 bits that wrap around: the sequence of lines, and the word that wakes a sleeper.

use crate::line::Line;
use crate::{
    Consumer, HalfRo, HalfRw, Lines, Point, Producer, Publish, Push, Ring, Side, Slept, TIMED,
    Waker, sleep,
};
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_testkit::Watchdog;

const WRAP: u64 = 1 << 32;
const COUNT: u64 = 8;

fn push(producer: &mut Producer, lines: Lines<'_>, head: u64) -> bool {
    let n = producer.tail();
    let words = [n << 32, n, n, n, n, n, n, n];
    producer.try_push(lines, Publish::Release, words, || head) == Ok(Push::Done)
}

/// Positions have 64 bits, and the line holds the lower half of them: a line of an earlier cycle is not taken for the
/// next line.
#[test]
fn a_line_of_an_earlier_lap_is_not_there() {
    let memory: Vec<Line> = (0..COUNT).map(|_| Line::default()).collect();
    let lines = Lines::new(&memory).expect("a power of two");
    // A multiple of the count of lines, and then some.
    let begin = WRAP - 2 * COUNT - 3;
    let (mut producer, mut consumer) = (Producer::at(begin), Consumer::at(begin));
    let mut taken = begin;
    while taken < WRAP + 3 * COUNT {
        while push(&mut producer, lines, taken) {}
        assert_eq!(producer.tail() - taken, COUNT, "full");
        for _ in 0..COUNT {
            let words = consumer.try_pop(lines).expect("a line");
            let low = taken << 32;
            assert_eq!(
                words,
                [low, taken, taken, taken, taken, taken, taken, taken]
            );
            taken += 1;
        }
        assert!(!consumer.ready(lines), "{taken}: what was taken is there");
        assert_eq!(consumer.try_pop(lines), None);
    }
}

/// A head cut to 32 bits, by a peer that counts so or lies, is a violation.
#[test]
fn a_head_of_32_bits_is_a_violation() {
    let memory: Vec<Line> = (0..COUNT).map(|_| Line::default()).collect();
    let lines = Lines::new(&memory).expect("a power of two");
    let begin = WRAP - 2;
    let mut producer = Producer::at(begin);
    while push(&mut producer, lines, begin) {}
    for lie in [0, 1, 2, begin - 1, begin + COUNT + 1, 2 * WRAP, u64::MAX] {
        let error = producer.room(lines, 1, || lie).expect_err("a lie");
        assert_eq!((error.head, error.before), (lie, begin));
    }
    assert_eq!(producer.room(lines, 1, || WRAP), Ok(2));
}

/// A peer whose sequence is a whole cycle ahead or behind shows only its own words, and a peer may write any words.
#[test]
fn a_sequence_that_runs_ahead_is_no_line() {
    let memory: Vec<Line> = (0..COUNT).map(|_| Line::default()).collect();
    let lines = Lines::new(&memory).expect("a power of two");
    let mut consumer = Consumer::at(WRAP - 1);
    for (sequence, there) in [(WRAP - 1, false), (1, false), (COUNT, false), (0, true)] {
        memory[usize::try_from((WRAP - 1) % COUNT).expect("small")].words[0]
            .store(7 << 32 | sequence, Ordering::Release);
        assert_eq!(consumer.ready(lines), there, "{sequence}");
        assert_eq!(consumer.peek(lines).is_some(), there, "{sequence}");
    }
    assert_eq!(consumer.try_pop(lines).map(|words| words[0]), Some(7 << 32));
    assert_eq!(consumer.head(), WRAP);
}

/// A sleeper is woken even if the word wraps around, or the part of the word in its flag does.
#[test]
fn a_word_that_begins_anew_wakes() {
    let _dog = Watchdog::new();
    for begin in [u32::MAX - 2, (1 << 30) - 2] {
        let half = |side| HalfRw::create(side, 2).expect("a half");
        let ((a, waker), (b, sleeper)) = (half(Side::Source), half(Side::Sink));
        let open = |fd, side| HalfRo::open(fd, side, 2).expect("the same");
        let (a, b) = (open(&a, Side::Source), open(&b, Side::Sink));
        let (waker, sleeper) = (Ring::new(waker, b), Ring::new(sleeper, a));
        waker.own().wake().store(begin, Ordering::SeqCst);
        let (value, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in 1..=8 {
                    let points: &mut [Point<'_>] = &mut [sleeper.point()];
                    let slept = sleep(&TIMED, points, Waker::Fences, None, || {
                        (value.load(Ordering::Acquire) >= n).then_some(())
                    });
                    assert_eq!(slept.expect("futex"), Slept::Ready(()));
                    seen.store(n, Ordering::Release);
                }
            });
            for n in 1..=8 {
                // Each is a separate sleep.
                while !waker.is_awaited() {
                    std::thread::yield_now();
                }
                value.store(n, Ordering::Release);
                waker.fence_then_notify(|| panic!("it sleeps on the word"));
                while seen.load(Ordering::Acquire) < n {
                    std::thread::yield_now();
                }
            }
        });
        let woken = waker.own().wake().load(Ordering::SeqCst);
        assert_eq!(woken, begin.wrapping_add(8), "once a sleep");
    }
}
