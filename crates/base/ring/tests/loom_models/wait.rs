//! The sleeping protocol under loom: no wake-up is lost, with weak memory. A lost one is a deadlock.
//!
//! Seen failing: without the fence in `arm`; without the fence in `fence_then_notify`, or after the swap of
//! `Publish::SeqCst`; with the word read after `ready`; without the increment of the word; with `ready` called
//! before `arm` only; waiting on the first point only; never waking. Not seen: the word's acquire and release
//! relaxed, for which the fences stand in here.

use crate::model;
use loom::sync::Arc;
use loom::thread;
use tranship_ring::{
    Consumer, Point, Producer, Publish, Push, ROUND, Ring, Slept, TIMED, Waker, sleep, sleep_once,
    wake_some,
};
use tranship_sync::atomic::{AtomicU32, Ordering};

/// One direction: the publishing end, the sleeping end, and the published value.
struct Way {
    waker: Ring,
    sleeper: Ring,
    value: AtomicU32,
}

impl Way {
    fn new() -> Way {
        let (waker, sleeper) = Ring::pair(2);
        Way {
            waker,
            sleeper,
            value: AtomicU32::new(0),
        }
    }

    fn publish(&self, value: u32) {
        self.value.store(value, Ordering::Release);
        self.waker
            .fence_then_notify(|| panic!("it sleeps on the word"));
    }

    fn reached(&self, value: u32) -> bool {
        self.value.load(Ordering::Acquire) >= value
    }

    fn wait(&self, value: u32) {
        wait_for(&mut [self.sleeper.point()], || self.reached(value));
    }
}

fn wait_for(points: &mut [Point<'_>], ready: impl Fn() -> bool) {
    let slept = sleep(&TIMED, points, Waker::Fences, None, || {
        ready().then_some(())
    });
    assert_eq!(slept, Ok(Slept::Ready(())));
}

/// Wakes twice: one thread publishes twice, and the other waits for each line.
fn wakes_twice(wait: fn(&Way, u32)) {
    model::explore(3, move || {
        let way = Arc::new(Way::new());
        let theirs = Arc::clone(&way);
        let waker = thread::spawn(move || {
            theirs.publish(1);
            theirs.publish(2);
        });
        wait(&way, 1);
        wait(&way, 2);
        waker.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_woken() {
    wakes_twice(Way::wait);
}

/// A wait without a clock has no bound of its own: a lost wake-up would leave the thread in the kernel.
#[test]
fn a_sleeper_of_single_waits_is_woken() {
    wakes_twice(|way, value| {
        let ready = || way.reached(value).then_some(());
        while sleep_once(&TIMED, &mut [way.sleeper.point()], ROUND, ready)
            .unwrap()
            .is_none()
        {}
    });
}

/// An end that spun, and sleeps now, is woken by an end that found it spinning. (The fence on all threads is here the
/// publisher's light fence, which loom takes for a full one; `tso_models/spin.rs` has it as it is.)
#[test]
fn who_spun_is_woken() {
    model::explore(3, || {
        let way = Arc::new(Way::new());
        way.sleeper.spin();
        let theirs = Arc::clone(&way);
        let waker = thread::spawn(move || {
            for value in 1..3 {
                let how = theirs.waker.how_to_publish();
                match how {
                    Publish::Release => theirs.value.store(value, Ordering::Release),
                    Publish::SeqCst => {
                        theirs.value.swap(value, Ordering::SeqCst);
                        tranship_sync::atomic::fence(Ordering::SeqCst);
                    }
                }
                theirs
                    .waker
                    .notify_of(how, || panic!("it sleeps on the word"));
            }
        });
        way.wait(1);
        way.wait(2);
        waker.join().unwrap();
    });
}

/// Of two threads that publish, the first wakes, and the other need not: its line is read nevertheless.
#[test]
fn two_wakers_of_one_end() {
    model::explore(2, || {
        let way = Arc::new((Way::new(), AtomicU32::new(0)));
        let theirs = Arc::clone(&way);
        let waker = thread::spawn(move || theirs.0.publish(1));
        let theirs = Arc::clone(&way);
        let other = thread::spawn(move || {
            theirs.1.store(1, Ordering::Release);
            theirs
                .0
                .waker
                .fence_then_notify(|| panic!("it sleeps on the word"));
        });
        wait_for(&mut [way.0.sleeper.point()], || {
            way.0.reached(1) && way.1.load(Ordering::Acquire) == 1
        });
        waker.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn two_sleepers_wake_each_other() {
    model::explore(3, || {
        let ways = Arc::new((Way::new(), Way::new()));
        let theirs = Arc::clone(&ways);
        let other = thread::spawn(move || {
            theirs.0.wait(1);
            theirs.1.publish(1);
        });
        ways.0.publish(1);
        ways.1.wait(1);
        other.join().unwrap();
    });
}

/// A link's word and the manager's control page, which wakes whether or not a thread sleeps.
#[test]
fn one_sleeper_two_wakers() {
    model::explore(3, || {
        let shared = Arc::new((Way::new(), AtomicU32::new(0), AtomicU32::new(0)));
        let (link, control_page) = (Arc::clone(&shared), Arc::clone(&shared));
        let wakers = [
            thread::spawn(move || link.0.publish(1)),
            thread::spawn(move || {
                let (_, wake, value) = &*control_page;
                value.store(1, Ordering::Release);
                wake.fetch_add(1, Ordering::Release);
                wake_some(wake);
            }),
        ];
        let (link, wake, value) = &*shared;
        let points = &mut [link.sleeper.point(), Point::always(wake)];
        wait_for(points, || {
            link.reached(1) && value.load(Ordering::Acquire) == 1
        });
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

/// A word whose waker wakes a single waiter, although two threads of a domain sleep. It stands for a manager, which
/// wakes sixteen.
struct Few {
    word: AtomicU32,
    held: loom::sync::Mutex<()>,
    queue: [loom::sync::Condvar; 2],
    asleep: [AtomicU32; 2],
}

impl Few {
    fn wait(&self, me: usize, seen: u32) {
        let held = self.held.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == seen {
            self.asleep[me].store(1, Ordering::Relaxed);
            drop(self.queue[me].wait(held));
        }
    }

    fn wake(&self, most: usize) {
        let _held = self.held.lock().unwrap();
        let asleep = |i: &usize| self.asleep[*i].load(Ordering::Relaxed) == 1;
        for i in (0..2).filter(asleep).take(most) {
            self.asleep[i].store(0, Ordering::Relaxed);
            self.queue[i].notify_one();
        }
    }
}

/// A domain's news: the part that its threads have taken, and up to which word.
struct News {
    few: Few,
    sent: [AtomicU32; 2],
    taken: loom::sync::Mutex<(u32, [bool; 2])>,
}

impl News {
    /// Takes news as a session's turn does: news for any thread. The thread that takes some wakes the others.
    fn turn(&self, me: usize) -> bool {
        let mut taken = self.taken.lock().unwrap();
        let word = self.few.word.load(Ordering::Acquire);
        for i in 0..2 {
            taken.1[i] |= self.sent[i].load(Ordering::Acquire) == 1;
        }
        if word != taken.0 {
            taken.0 = word;
            self.few.wake(2);
        }
        taken.1[me]
    }
}

/// Of two threads that each await an answer, the manager wakes one at a time, and not always the right one. Seen
/// failing without the wake-up in `turn`.
#[test]
fn the_thread_that_takes_the_news_wakes_the_others() {
    model::explore(3, || {
        let news = Arc::new(News {
            few: Few {
                word: AtomicU32::new(0),
                held: loom::sync::Mutex::new(()),
                queue: [loom::sync::Condvar::new(), loom::sync::Condvar::new()],
                asleep: [AtomicU32::new(0), AtomicU32::new(0)],
            },
            sent: [AtomicU32::new(0), AtomicU32::new(0)],
            taken: loom::sync::Mutex::new((0, [false; 2])),
        });
        let theirs = Arc::clone(&news);
        let manager = thread::spawn(move || {
            for i in [1, 0] {
                theirs.sent[i].store(1, Ordering::Release);
                theirs.few.word.fetch_add(1, Ordering::Release);
                theirs.few.wake(1);
            }
        });
        let await_answer = |news: &News, me| {
            loop {
                // As in `answer`, the word is read before the turn.
                let seen = news.few.word.load(Ordering::Acquire);
                if news.turn(me) {
                    return;
                }
                news.few.wait(me, seen);
            }
        };
        let theirs = Arc::clone(&news);
        let other = thread::spawn(move || await_answer(&theirs, 1));
        await_answer(&news, 0);
        manager.join().unwrap();
        other.join().unwrap();
    });
}

/// A line that is published after the look of an end that sleeps on its descriptor presses the bell.
#[test]
fn a_sleeper_on_its_descriptor_is_woken() {
    model::explore(3, || {
        let shared = Arc::new((Way::new(), AtomicU32::new(0)));
        let theirs = Arc::clone(&shared);
        let waker = thread::spawn(move || {
            let (way, bell) = &*theirs;
            for value in 1..3 {
                way.value.store(value, Ordering::Release);
                way.waker.fence_then_notify(|| {
                    bell.fetch_add(1, Ordering::Relaxed);
                    true
                });
            }
        });
        let (way, bell) = &*shared;
        way.sleeper.arm();
        let seen = way.value.load(Ordering::Acquire);
        waker.join().unwrap();
        let pressed = bell.load(Ordering::Relaxed);
        assert!(
            seen == 2 || pressed == 1,
            "saw {seen}, pressed {pressed} times"
        );
    });
}

/// A whole link of two lines: the source sleeps while it is full, the sink while it is empty.
#[test]
fn a_ring_with_both_ends_asleep() {
    const MESSAGES: u64 = 3;
    model::explore(3, move || {
        let (source, sink) = Ring::pair(2);
        let other = thread::spawn(move || {
            let mut producer = Producer::new();
            for n in 0..MESSAGES {
                wait_for(&mut [source.point()], || source.their_head() + 2 > n);
                let words = [n << 32, n, 0, 0, 0, 0, 0, 0];
                let head = || source.their_head();
                assert_eq!(
                    producer.try_push(source.own_lines(), Publish::SeqCst, words, head),
                    Ok(Push::Done)
                );
                source.notify(|| panic!("it sleeps on the word"));
            }
        });
        let mut consumer = Consumer::new();
        for n in 0..MESSAGES {
            wait_for(&mut [sink.point()], || sink.has_line());
            let words = consumer.try_pop(sink.their_lines()).unwrap();
            assert_eq!(words[..2], [n << 32, n]);
            sink.give_back(consumer.head());
            sink.fence_then_notify(|| panic!("it sleeps on the word"));
        }
        other.join().unwrap();
    });
}

/// A source waits until its only line is taken: without the sink's wake-up, no other event would end the wait.
#[test]
fn the_last_line_comes_back_before_a_fence() {
    model::explore(3, move || {
        let (source, sink) = Ring::pair(2);
        let pushed = Producer::new().push(source.own_lines(), Publish::Release, [1 << 32; 8]);
        assert_eq!(pushed, Push::Done);
        let other = thread::spawn(move || {
            wait_for(&mut [source.point()], || source.their_head() == 1);
        });
        sink.give_back(1);
        sink.fence_then_notify(|| panic!("it sleeps on the word"));
        other.join().unwrap();
    });
}
