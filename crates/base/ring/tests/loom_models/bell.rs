//! A broadcast's bell under loom: one wake-up for each publish, and for the end of the ring. A sleep has no limit here, so
//! a wake-up that is lost is a deadlock.
//!
//! The writer wakes at each publish, as where its clock does not serve. Which publishes may leave the wake-up out is the
//! gap rule's: `crates/base/ledger/tests/round_models/gap.rs`.

use crate::model;
use loom::thread;
use std::sync::Arc;
use tranship_ring::broadcast::{Quiet, ring_bell, wait};
use tranship_ring::{Futex, Point, ROUND, TIMED, wake_some};
use tranship_sync::atomic::{AtomicU32, Ordering};

/// Memory that both sides share.
struct World {
    bell: AtomicU32,
    /// Lines that are published.
    published: AtomicU32,
    /// Not 0: the ring has ended.
    ended: AtomicU32,
}

/// The step that a model takes in another way than the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Right,
    /// The bell is rung, then the line is published.
    RingsFirst,
    /// The reader looks, then reads the bell's word.
    LooksFirst,
    /// The bell's word is the number of published lines. An end does not change it.
    ShowsTheTail,
    /// The word is raised, or read, without an ordering.
    RingsRelaxed,
    ReadsRelaxed,
}

impl World {
    fn new() -> World {
        World {
            bell: AtomicU32::new(0),
            published: AtomicU32::new(0),
            ended: AtomicU32::new(0),
        }
    }

    fn ring(&self, does: Does) {
        match does {
            Does::ShowsTheTail | Does::RingsRelaxed => {
                let word = match does {
                    Does::ShowsTheTail => self.published.load(Ordering::Relaxed),
                    _ => self.bell.load(Ordering::Relaxed) + 1,
                };
                let order = match does {
                    Does::ShowsTheTail => Ordering::Release,
                    _ => Ordering::Relaxed,
                };
                self.bell.store(word, order);
                wake_some(&self.bell);
            }
            _ => ring_bell(&self.bell, wake_some),
        }
    }

    fn write(&self, lines: u32, does: Does) {
        for n in 1..=lines {
            if does == Does::RingsFirst {
                self.ring(does);
                self.published.store(n, Ordering::Release);
            } else {
                self.published.store(n, Ordering::Release);
                self.ring(does);
            }
        }
    }

    fn end(&self, does: Does) {
        self.ended.store(1, Ordering::Release);
        self.ring(does);
    }

    /// One wait for what `ready` sees.
    fn wait(&self, does: Does, ready: impl Fn() -> bool) -> bool {
        let looks = || ready().then_some(());
        if !matches!(does, Does::LooksFirst | Does::ReadsRelaxed) {
            let quiet = Quiet::new(0, 0);
            let Ok(found) = wait(&TIMED, &self.bell, &quiet, ROUND, || 0, looks);
            return found.is_some();
        }
        let read = || match does {
            Does::ReadsRelaxed => self.bell.load(Ordering::Relaxed),
            _ => self.bell.load(Ordering::Acquire),
        };
        let early = (does != Does::LooksFirst).then(read);
        if ready() {
            return true;
        }
        let seen = early.unwrap_or_else(read);
        let Ok(_) = TIMED.wait_any(&[Point::seen(&self.bell, seen)], ROUND);
        ready()
    }

    /// Takes so many lines, one after the other.
    fn read(&self, lines: u32, does: Does) {
        for n in 1..=lines {
            while !self.wait(does, || self.published.load(Ordering::Relaxed) >= n) {}
        }
    }

    fn read_to_the_end(&self, does: Does) {
        while !self.wait(does, || self.ended.load(Ordering::Relaxed) != 0) {}
    }
}

/// So many readers of one user take each line of a writer.
fn readers_take(readers: usize, lines: u32, does: Does) {
    model::explore(2, move || {
        let world = Arc::new(World::new());
        let all: Vec<_> = (0..readers)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.read(lines, does))
            })
            .collect();
        world.write(lines, does);
        for reader in all {
            reader.join().expect("no panic");
        }
    });
}

fn an_end_is_heard(does: Does) {
    model::explore(2, move || {
        let world = Arc::new(World::new());
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || theirs.read_to_the_end(does));
        world.write(1, does);
        world.end(does);
        reader.join().expect("no panic");
    });
}

#[test]
fn each_publish_wakes_its_sleeper() {
    readers_take(1, 2, Does::Right);
}

#[test]
fn one_publish_wakes_all_sleepers_of_a_user() {
    readers_take(2, 1, Does::Right);
}

#[test]
fn the_end_wakes_also_after_a_publish() {
    an_end_is_heard(Does::Right);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_bell_that_shows_the_tail_does_not_tell_the_end() {
    an_end_is_heard(Does::ShowsTheTail);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_bell_before_the_line_is_too_early() {
    readers_take(1, 1, Does::RingsFirst);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_word_that_is_read_after_the_look_is_too_late() {
    readers_take(1, 1, Does::LooksFirst);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_bell_without_release_shows_no_line() {
    readers_take(1, 1, Does::RingsRelaxed);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_word_that_is_read_without_acquire_shows_no_line() {
    readers_take(1, 1, Does::ReadsRelaxed);
}
