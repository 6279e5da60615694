//! The sleeping protocol step by step, with a futex that records what it is asked. Lost wake-ups are loom's
//! business (`loom_wait.rs`).
//!
//! Seen failing: flags not cleared after a sleep; the first wait of a lazy waker not shortened; only the first
//! group of words waited on; a wake-up although the flag says awake.
#![cfg(not(loom))]

use std::{
    cell::RefCell,
    io,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tranship_sync::{
    Asleep, Futex, MAX_WORDS, Point, ROUND, SETTLE, Slept, Waited, Waker, arm, disarm,
    fence_then_notify, notify, sleep, sleep_once,
};

/// Returns at once from every wait, and remembers it.
#[derive(Default)]
struct Record {
    waits: RefCell<Vec<(usize, Duration)>>,
    fails: bool,
}

impl Futex for Record {
    type Error = io::Error;
    fn wait_any(&self, points: &[Point<'_>], limit: Duration) -> io::Result<Waited> {
        self.waits.borrow_mut().push((points.len(), limit));
        if self.fails {
            return Err(io::Error::other("no"));
        }
        assert!(points.iter().all(|p| {
            p.asleep
                .is_none_or(|flag| flag.load(Ordering::Relaxed) == 1)
        }));
        Ok(Waited::TimedOut)
    }
    fn wake_all(&self, _word: &AtomicU32) {}
}

fn after(looks: u32) -> impl FnMut() -> Option<u32> {
    let mut done = 0;
    move || {
        done += 1;
        (done > looks).then_some(done)
    }
}

#[test]
fn looks_again_before_it_waits() {
    let (wake, asleep, futex) = (AtomicU32::new(5), AtomicU32::new(0), Record::default());
    let mut points = [Point::peer(&wake, &asleep)];
    let slept = sleep(&futex, &mut points, Waker::Fences, None, after(0));
    assert_eq!(slept.unwrap(), Slept::Ready(1));
    assert!(futex.waits.borrow().is_empty());
    assert_eq!((points[0].seen, asleep.load(Ordering::Relaxed)), (5, 0));
}

#[test]
fn waits_in_rounds() {
    for (waker, first) in [(Waker::Fences, ROUND), (Waker::Lazy, SETTLE)] {
        let (wake, asleep, futex) = (AtomicU32::new(0), AtomicU32::new(0), Record::default());
        let slept = sleep(
            &futex,
            &mut [Point::peer(&wake, &asleep)],
            waker,
            None,
            after(3),
        );
        assert_eq!(slept.unwrap(), Slept::Ready(4));
        assert_eq!(*futex.waits.borrow(), [(1, first), (1, ROUND), (1, ROUND)]);
        assert_eq!(asleep.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn waits_once() {
    for (looks, waits, result) in [(0, 0, Some(1)), (1, 1, Some(2)), (2, 1, None)] {
        let (wake, asleep, futex) = (AtomicU32::new(0), AtomicU32::new(0), Record::default());
        let mut points = [Point::peer(&wake, &asleep)];
        let slept = sleep_once(&futex, &mut points, ROUND, after(looks));
        assert_eq!(slept.unwrap(), result);
        assert_eq!(*futex.waits.borrow(), vec![(1, ROUND); waits]);
        assert_eq!(asleep.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn many_words_in_turn() {
    let words: Vec<_> = (0..2 * MAX_WORDS + 3).map(|_| AtomicU32::new(0)).collect();
    let mut points: Vec<_> = words.iter().map(Point::always).collect();
    let futex = Record::default();
    let slept = sleep(&futex, &mut points, Waker::Fences, None, after(4));
    assert_eq!(slept.unwrap(), Slept::Ready(5));
    let groups: Vec<_> = futex
        .waits
        .borrow()
        .iter()
        .map(|&(n, limit)| (n, limit == SETTLE))
        .collect();
    assert_eq!(
        groups,
        [
            (MAX_WORDS, true),
            (MAX_WORDS, true),
            (3, true),
            (MAX_WORDS, true)
        ]
    );
}

#[test]
fn ends_at_the_deadline_and_on_errors() {
    let (wake, asleep) = (AtomicU32::new(0), AtomicU32::new(0));
    let mut points = [Point::peer(&wake, &asleep)];
    let futex = Record::default();
    let never = || None::<()>;
    let past = Some(Instant::now());
    assert_eq!(
        sleep(&futex, &mut points, Waker::Fences, past, never).unwrap(),
        Slept::TimedOut
    );
    assert!(futex.waits.borrow().is_empty());
    assert_eq!(
        sleep(&futex, &mut [], Waker::Fences, None, never).unwrap(),
        Slept::TimedOut
    );

    let soon = Some(Instant::now() + ROUND / 2);
    assert_eq!(
        sleep(&futex, &mut points, Waker::Fences, soon, never).unwrap(),
        Slept::TimedOut
    );
    assert!(
        futex
            .waits
            .borrow()
            .iter()
            .all(|(_, limit)| *limit <= ROUND / 2)
    );

    let futex = Record {
        fails: true,
        ..Record::default()
    };
    assert!(sleep(&futex, &mut points, Waker::Fences, None, never).is_err());
    assert_eq!(asleep.load(Ordering::Relaxed), 0);
}

#[test]
fn wakes_only_who_sleeps_and_how_it_sleeps() {
    let (wake, asleep) = (AtomicU32::new(u32::MAX), AtomicU32::new(0));
    notify(&asleep, &wake, |_| panic!("nobody sleeps"));
    fence_then_notify(&asleep, &wake, |_| panic!("nobody sleeps"));
    assert_eq!(wake.load(Ordering::Relaxed), u32::MAX);

    let mut points = [Point::peer(&wake, &asleep)];
    let mut told = Vec::new();
    for how in [Asleep::Futex, Asleep::Descriptor] {
        arm(&mut points, how);
        notify(&asleep, &wake, |how| told.push(how));
        disarm(&points);
        notify(&asleep, &wake, |_| panic!("it is awake"));
    }
    // A flag that the format does not name.
    asleep.store(77, Ordering::Relaxed);
    fence_then_notify(&asleep, &wake, |how| told.push(how));
    assert_eq!(told, [Asleep::Futex, Asleep::Descriptor, Asleep::Futex]);
    assert_eq!(wake.load(Ordering::Relaxed), 2, "the word wraps");
}
