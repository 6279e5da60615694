//! The sleeping protocol step by step, with a futex that records the calls. Lost wake-ups are loom's task
//! (`loom_models/wait.rs`).
//!
//! Seen failing: flags not cleared after a sleep; the first wait of a lazy waker not shortened; only the first group of
//! words waited on; a wake-up although the flag says awake; an ended sleep that goes on.
use std::{
    cell::{Cell, RefCell},
    io,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tranship_ring::{
    Futex, HalfRo, HalfRw, MAX_WORDS, Point, Publish, ROUND, Ring, SETTLE, Side, Slept, TIMED,
    Waited, Waker, doorbell, sleep, sleep_once,
};

/// Makes the two ends of a ring: the sleeper here, and its waker.
fn ends() -> [Ring; 2] {
    let half = |side| HalfRw::create(side, 2).expect("a half");
    let ((source, ours), (sink, theirs)) = (half(Side::Source), half(Side::Sink));
    let open = |fd, side| HalfRo::open(fd, side, 2).expect("the same");
    [
        Ring::new(ours, open(&sink, Side::Sink)),
        Ring::new(theirs, open(&source, Side::Source)),
    ]
}

/// Returns the flag by which an end says that it sleeps.
fn flag(end: &Ring) -> u32 {
    end.own().asleep().load(Ordering::Relaxed)
}

/// Returns how often this end was woken.
fn woken(end: &Ring) -> u32 {
    end.theirs().wake().load(Ordering::Relaxed)
}

/// A futex that returns at once from every wait, and records it.
#[derive(Default)]
struct Record<'a> {
    /// The sleeping ends.
    ends: Vec<&'a Ring>,
    /// For each wait: its number of words, its time, and the flag meanwhile.
    waits: RefCell<Vec<(usize, Duration, u32)>>,
    /// Runs during each wait.
    meanwhile: Option<&'a dyn Fn()>,
    fails: bool,
}

impl Futex for Record<'_> {
    type Error = io::Error;
    fn wait_any(&self, points: &[Point<'_>], limit: Duration) -> io::Result<Waited> {
        let flags: Vec<u32> = self.ends.iter().map(|end| flag(end)).collect();
        let first = flags.first().copied().unwrap_or_default();
        self.waits.borrow_mut().push((points.len(), limit, first));
        if self.fails {
            return Err(io::Error::other("no"));
        }
        assert!(flags.iter().all(|flag| flag & 3 == 1), "{flags:?}");
        if let Some(meanwhile) = self.meanwhile {
            meanwhile();
        }
        Ok(Waited::TimedOut)
    }
}

impl Record<'_> {
    fn of(end: &Ring) -> Record<'_> {
        Record {
            ends: vec![end],
            ..Record::default()
        }
    }

    fn limits(&self) -> Vec<Duration> {
        self.waits
            .borrow()
            .iter()
            .map(|(_, limit, _)| *limit)
            .collect()
    }

    fn flags(&self) -> Vec<u32> {
        self.waits
            .borrow()
            .iter()
            .map(|(_, _, flag)| *flag)
            .collect()
    }
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
    let [end, _other] = ends();
    let futex = Record::of(&end);
    let slept = sleep(&futex, &mut [end.point()], Waker::Fences, None, after(0));
    assert_eq!(slept.unwrap(), Slept::Ready(1));
    assert!(futex.limits().is_empty());
    assert_eq!(flag(&end), 0);
}

#[test]
fn waits_in_rounds() {
    for (waker, first) in [(Waker::Fences, ROUND), (Waker::Lazy, SETTLE)] {
        let [end, _other] = ends();
        let futex = Record::of(&end);
        let slept = sleep(&futex, &mut [end.point()], waker, None, after(3));
        assert_eq!(slept.unwrap(), Slept::Ready(4));
        assert_eq!(futex.limits(), [first, ROUND, ROUND]);
        assert_eq!(flag(&end), 0);
    }
}

/// A sleep shows one flag until it is ended, and a new sleep shows another. If a waker does not fence, the first wait
/// of the new sleep is short, because that waker may have seen the old flag.
#[test]
fn a_sleep_that_was_ended_goes_on_as_another() {
    let [end, other] = ends();
    let round = Cell::new(0);
    let wakes = || {
        round.set(round.get() + 1);
        if round.get() == 2 {
            other.notify(|| panic!("it sleeps on the word"));
        }
    };
    let mut futex = Record::of(&end);
    futex.meanwhile = Some(&wakes);
    let slept = sleep(&futex, &mut [end.point()], Waker::Lazy, None, after(4));
    assert_eq!(slept.unwrap(), Slept::Ready(5));
    assert_eq!(futex.limits(), [SETTLE, ROUND, SETTLE, ROUND]);
    let flags = futex.flags();
    assert!(flags[0] == flags[1] && flags[1] != flags[2] && flags[2] == flags[3]);
    let slept = sleep(&futex, &mut [end.point()], Waker::Lazy, None, after(1));
    assert_eq!(slept.unwrap(), Slept::Ready(2));
    assert_eq!((futex.flags()[4], futex.limits()[4]), (flags[3], SETTLE));
}

#[test]
fn waits_once() {
    for (looks, waits, result) in [(0, 0, Some(1)), (1, 1, Some(2)), (2, 1, None)] {
        let [end, _other] = ends();
        let futex = Record::of(&end);
        let slept = sleep_once(&futex, &mut [end.point()], ROUND, after(looks));
        assert_eq!(slept.unwrap(), result);
        assert_eq!(futex.limits(), vec![ROUND; waits]);
        assert_eq!(flag(&end), 0);
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
        .map(|&(n, limit, _)| (n, limit == SETTLE))
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
    let [end, _other] = ends();
    let mut points = [end.point()];
    let futex = Record::of(&end);
    let never = || None::<()>;
    let past = Some(Instant::now());
    assert_eq!(
        sleep(&futex, &mut points, Waker::Fences, past, never).unwrap(),
        Slept::TimedOut
    );
    assert!(futex.limits().is_empty());
    assert_eq!(
        sleep(&futex, &mut [], Waker::Fences, None, never).unwrap(),
        Slept::TimedOut
    );

    let soon = Some(Instant::now() + ROUND / 2);
    assert_eq!(
        sleep(&futex, &mut points, Waker::Fences, soon, never).unwrap(),
        Slept::TimedOut
    );
    assert!(futex.limits().iter().all(|limit| *limit <= ROUND / 2));

    let futex = Record {
        fails: true,
        ..Record::of(&end)
    };
    assert!(sleep(&futex, &mut points, Waker::Fences, None, never).is_err());
    assert_eq!(flag(&end), 0);
}

#[test]
fn wakes_only_who_sleeps_and_how_it_sleeps() {
    let [end, other] = ends();
    other.own().wake().store(u32::MAX, Ordering::Relaxed);
    let awake = || panic!("it does not sleep on its descriptor");
    other.notify(awake);
    other.fence_then_notify(awake);
    assert_eq!(woken(&end), u32::MAX);

    let pressed = Cell::new(0);
    let press = || {
        pressed.set(pressed.get() + 1);
        true
    };
    for times in 1..3 {
        end.arm();
        other.notify(press);
        assert_eq!(pressed.get(), times);
        other.fence_then_notify(awake);
        end.disarm();
        other.notify(awake);
    }
    assert_eq!(
        woken(&end),
        1,
        "the word wraps, and each sleep was ended once"
    );
    // Flags that the format does not name.
    for garbage in [7, 8, u32::MAX] {
        end.own().asleep().store(garbage, Ordering::Relaxed);
        other.fence_then_notify(awake);
    }
    assert_eq!(woken(&end), 4);
}

#[test]
fn a_bell_that_could_not_be_pressed_is_pressed_again() {
    let [end, other] = ends();
    let pressed = Cell::new(0);
    let press = || {
        pressed.set(pressed.get() + 1);
        pressed.get() == 2
    };
    end.arm();
    for times in [1, 2, 2, 2] {
        other.fence_then_notify(press);
        assert_eq!(pressed.get(), times);
    }
}

#[test]
fn a_bell_is_pressed_until_it_is_full_or_gone() {
    let (near, far) = tranship_sys::socket::pair().expect("a pair");
    for _ in 0..10_000 {
        assert!(doorbell::press(&far), "a full one is readable");
    }
    doorbell::clear(&near);
    assert!(doorbell::press(&far));
    drop(near);
    assert!(!doorbell::press(&far));
}

#[test]
fn an_end_wakes_itself_if_it_sleeps() {
    let [end, other] = ends();
    let _dog = tranship_testkit::Watchdog::new();
    end.nudge();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            // No timer ends the wait.
            let kernel = tranship_ring::Kernel { timed: false };
            sleep_once(&kernel, &mut [end.point()], ROUND, || None::<()>)
        });
        while !sleeper.is_finished() {
            end.nudge();
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap().unwrap(), None);
    });
    assert_eq!(woken(&end), 0);
    drop(other);
}

#[test]
fn both_ends_sleep_and_wake_each_other() {
    let _dog = tranship_testkit::Watchdog::new();
    let [ping, pong] = ends();
    let turn = AtomicU32::new(0);
    let play = |end: &Ring, mine: u32| {
        for round in 0..1000 {
            let ready = || (turn.load(Ordering::Acquire) == 2 * round + mine).then_some(());
            let slept = sleep(&TIMED, &mut [end.point()], Waker::Fences, None, ready);
            assert_eq!(slept.unwrap(), Slept::Ready(()));
            turn.store(2 * round + mine + 1, Ordering::Release);
            end.fence_then_notify(|| panic!("it sleeps on the word"));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(&pong, 1));
        play(&ping, 0);
    });
}

#[test]
fn who_spins_is_published_to_without_a_fence_and_never_woken() {
    let [end, other] = ends();
    assert_eq!(other.how_to_publish(), Publish::SeqCst);
    end.spin();
    assert_eq!(other.how_to_publish(), Publish::Release);
    assert!(!other.is_awaited());
    let never = || panic!("it spins");
    other.notify_of(Publish::Release, never);
    other.fence_then_notify(never);
    other.notify(never);
    end.nudge();
    assert_eq!(woken(&other), 0);
    // Once it sleeps on its descriptor it does not spin, even if it says so then.
    end.arm();
    end.spin();
    assert_eq!(other.how_to_publish(), Publish::SeqCst);
    let pressed = Cell::new(0);
    other.notify_of(Publish::Release, || {
        pressed.set(pressed.get() + 1);
        true
    });
    assert_eq!(pressed.get(), 1);
}

/// An end that publishes to a spinning one has not fenced. Only the next sleep may change that: it makes all threads
/// fence.
#[test]
fn who_spins_does_so_until_it_sleeps() {
    let [end, other] = ends();
    end.spin();
    end.disarm();
    assert_eq!(other.how_to_publish(), Publish::Release);
    for how in ["spinning", "awake"] {
        end.arm();
        assert!(other.is_awaited(), "{how}");
        end.disarm();
        assert!(!other.is_awaited());
        assert_eq!(other.how_to_publish(), Publish::SeqCst);
    }
}

/// The publisher fences only if it finds that the other end no longer spins.
#[test]
fn who_goes_over_from_spinning_to_sleeping_misses_nothing() {
    let _dog = tranship_testkit::Watchdog::new();
    let [source, sink] = ends();
    let (sent, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=200 {
                let how = source.how_to_publish();
                match how {
                    Publish::Release => sent.store(n, Ordering::Release),
                    Publish::SeqCst => _ = sent.swap(n, Ordering::SeqCst),
                }
                source.notify_of(how, || panic!("it sleeps on the word"));
                while taken.load(Ordering::Acquire) < n {
                    std::thread::yield_now();
                }
            }
        });
        for n in 1..=200 {
            sink.spin();
            // No timer ends the wait, and no other thread wakes it.
            let kernel = tranship_ring::Kernel { timed: false };
            let ready = || (sent.load(Ordering::Acquire) == n).then_some(());
            while sleep_once(&kernel, &mut [sink.point()], ROUND, ready)
                .unwrap()
                .is_none()
            {}
            taken.store(n, Ordering::Release);
        }
    });
}
