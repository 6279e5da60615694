//! The sleeping protocol under loom: no wake-up is lost, with weak memory. A lost one is a deadlock.
//!
//! Seen failing: without the fence in `arm`; without the fence in `fence_then_notify`, or after the swap of
//! `Publish::SeqCst`; with the word read after `ready`; without the increment of the word; with `ready` called
//! before `arm` only; waiting on the first point only; never waking. Not seen: the word's acquire and release
//! relaxed, for which the fences stand in here.
#![cfg(loom)]

mod model;

use std::{convert::Infallible, time::Duration};

use loom::{
    sync::{Arc, Condvar, Mutex},
    thread,
};
use tranship_sync::{
    Consumer, Futex, Line, Lines, Point, Producer, Publish, Push, ROUND, Slept, Waited, Waker,
    atomic::{AtomicU32, AtomicU64, Ordering},
    fence_then_notify, notify, sleep, sleep_once,
};

/// A futex that waits without a time limit. As in the kernel, a word is compared under the lock under which wakers look for waiters.
#[derive(Default)]
struct ModelFutex {
    bucket: Mutex<()>,
    woken: Condvar,
}

impl Futex for ModelFutex {
    type Error = Infallible;

    fn wait_any(&self, points: &[Point<'_>], _limit: Duration) -> Result<Waited, Infallible> {
        let held = self.bucket.lock().unwrap();
        if points
            .iter()
            .all(|point| point.wake.load(Ordering::Relaxed) == point.seen)
        {
            drop(self.woken.wait(held).unwrap());
        }
        Ok(Waited::Woken)
    }

    fn wake_all(&self, _word: &AtomicU32) {
        let held = self.bucket.lock().unwrap();
        self.woken.notify_all();
        drop(held);
    }
}

/// One direction's words: the waker's futex word, the sleeper's flag, and what is published.
#[derive(Default)]
struct Side {
    wake: AtomicU32,
    asleep: AtomicU32,
    value: AtomicU32,
}

impl Side {
    fn publish(&self, futex: &ModelFutex, value: u32) {
        self.value.store(value, Ordering::Release);
        fence_then_notify(&self.asleep, &self.wake, |_| futex.wake_all(&self.wake));
    }

    fn reached(&self, value: u32) -> bool {
        self.value.load(Ordering::Acquire) >= value
    }
}

fn wait_for(futex: &ModelFutex, points: &mut [Point<'_>], ready: impl Fn() -> bool) {
    let slept: Result<_, Infallible> =
        sleep(futex, points, Waker::Fences, None, || ready().then_some(()));
    assert_eq!(slept, Ok(Slept::Ready(())));
}

/// One thread publishes twice, the other waits for each.
fn wakes_twice(wait: fn(&ModelFutex, &Side, u32)) {
    model::explore(3, move || {
        let shared = Arc::new((ModelFutex::default(), Side::default()));
        let theirs = Arc::clone(&shared);
        let waker = thread::spawn(move || {
            theirs.1.publish(&theirs.0, 1);
            theirs.1.publish(&theirs.0, 2);
        });
        let (futex, side) = &*shared;
        wait(futex, side, 1);
        wait(futex, side, 2);
        waker.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_woken() {
    wakes_twice(|futex, side, value| {
        wait_for(futex, &mut [Point::peer(&side.wake, &side.asleep)], || {
            side.reached(value)
        });
    });
}

/// The wait without a clock has no round of its own to save it: a wake-up that is lost would leave it in the kernel.
#[test]
fn a_sleeper_of_single_waits_is_woken() {
    wakes_twice(|futex, side, value| {
        let points = &mut [Point::peer(&side.wake, &side.asleep)];
        let ready = || side.reached(value).then_some(());
        while sleep_once(futex, points, ROUND, ready).unwrap().is_none() {}
    });
}

#[test]
fn two_sleepers_wake_each_other() {
    model::explore(3, || {
        let shared = Arc::new((ModelFutex::default(), Side::default(), Side::default()));
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let (futex, ping, pong) = &*theirs;
            wait_for(futex, &mut [Point::peer(&ping.wake, &ping.asleep)], || {
                ping.reached(1)
            });
            pong.publish(futex, 1);
        });
        let (futex, ping, pong) = &*shared;
        ping.publish(futex, 1);
        wait_for(futex, &mut [Point::peer(&pong.wake, &pong.asleep)], || {
            pong.reached(1)
        });
        other.join().unwrap();
    });
}

/// A link's word and the manager's board, which wakes whether or not somebody sleeps.
#[test]
fn one_sleeper_two_wakers() {
    model::explore(3, || {
        let shared = Arc::new((ModelFutex::default(), Side::default(), Side::default()));
        let (link, board) = (Arc::clone(&shared), Arc::clone(&shared));
        let wakers = [
            thread::spawn(move || link.1.publish(&link.0, 1)),
            thread::spawn(move || {
                let (futex, _, board) = &*board;
                board.value.store(1, Ordering::Release);
                board.wake.fetch_add(1, Ordering::Release);
                futex.wake_all(&board.wake);
            }),
        ];
        let (futex, link, board) = &*shared;
        let points = &mut [
            Point::peer(&link.wake, &link.asleep),
            Point::always(&board.wake),
        ];
        wait_for(futex, points, || link.reached(1) && board.reached(1));
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

/// A whole link of two lines: the source sleeps while it is full, the sink while it is empty.
#[test]
fn a_ring_with_both_ends_asleep() {
    #[derive(Default)]
    struct Half {
        lines: [Line; 2],
        wake: AtomicU32,
        asleep: AtomicU32,
        head: AtomicU64,
    }
    const MESSAGES: u64 = 3;
    model::explore(3, || {
        let shared = Arc::new((ModelFutex::default(), Half::default(), Half::default()));
        let theirs = Arc::clone(&shared);
        let source = thread::spawn(move || {
            let (futex, mine, peer) = &*theirs;
            let lines = Lines::new(&mine.lines).unwrap();
            let mut producer = Producer::new();
            for n in 0..MESSAGES {
                wait_for(futex, &mut [Point::peer(&peer.wake, &mine.asleep)], || {
                    peer.head.load(Ordering::Acquire) + 2 > n
                });
                let load = || peer.head.load(Ordering::Acquire);
                let words = [n << 32, n, 0, 0, 0, 0, 0, 0];
                assert_eq!(
                    producer.try_push(lines, Publish::SeqCst, words, load),
                    Ok(Push::Done)
                );
                notify(&peer.asleep, &mine.wake, |_| futex.wake_all(&mine.wake));
            }
        });
        let (futex, peer, mine) = &*shared;
        let lines = Lines::new(&peer.lines).unwrap();
        let mut consumer = Consumer::new();
        for n in 0..MESSAGES {
            wait_for(futex, &mut [Point::peer(&peer.wake, &mine.asleep)], || {
                consumer.ready(lines)
            });
            let words = consumer.try_pop(lines).unwrap();
            assert_eq!(words[..2], [n << 32, n]);
            mine.head.store(consumer.head(), Ordering::Release);
            fence_then_notify(&peer.asleep, &mine.wake, |_| futex.wake_all(&mine.wake));
        }
        source.join().unwrap();
    });
}
