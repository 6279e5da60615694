//! A peer that rewrites lines and its head while they are used: no panic, no access out of bounds, and each
//! word of a received line is a value that the peer wrote.
//!
//! Seen failing: word 0 loaded twice; a head past the tail believed; a head that moves back believed.
#![cfg(not(loom))]

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use tranship_ring::{Consumer, Line, Lines, Producer, Publish, Push};

/// xorshift: values that look like anything.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Ends the hostile thread also when an assertion fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The work of an honest end that finds nothing to do: on one core the other end has to run. It also ends a test that
/// makes no progress.
struct Idle {
    since: Instant,
    looks: u32,
}

impl Idle {
    fn new() -> Idle {
        Idle {
            since: Instant::now(),
            looks: 0,
        }
    }

    fn again(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            assert!(
                self.since.elapsed() < Duration::from_secs(600),
                "no progress for ten minutes"
            );
            thread::yield_now();
        }
    }
}

/// The number of looks or lies after which a thread lets the other one run.
const LOOKS: u32 = 64;

#[test]
fn lines_rewritten_between_any_two_reads() {
    let memory: [Line; 4] = std::array::from_fn(|_| Line::default());
    let (head, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = seed;
            for lies in 1u32.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                if lies.is_multiple_of(LOOKS) {
                    thread::yield_now();
                }
                let value = next(&mut state);
                let line = &memory[(value >> 60) as usize % 4];
                // The mark in the low bits of words 1 to 7; any near sequence in word 0.
                line.words[1 + (value >> 50) as usize % 7]
                    .store(value << 8 | 0x5a, Ordering::Relaxed);
                let near = head.load(Ordering::Relaxed).wrapping_add(value % 3);
                line.words[0].store((value << 32) | (near & 0xffff_ffff), Ordering::Relaxed);
            }
        });
        let _ends = Ends(&done);
        let lines = Lines::new(&memory).unwrap();
        let mut consumer = Consumer::new();
        let mut idle = Idle::new();
        while consumer.head() < 20_000 {
            let Some(words) = consumer.try_pop(lines) else {
                idle.again();
                continue;
            };
            idle = Idle::new();
            assert_eq!(words[0] & 0xffff_ffff, 0);
            for word in &words[1..] {
                assert!(
                    *word == 0 || word & 0xff == 0x5a,
                    "{word:#x} was never written"
                );
            }
            head.store(consumer.head(), Ordering::Relaxed);
        }
    });
}

#[test]
fn a_head_that_jumps_about() {
    let memory: [Line; 8] = std::array::from_fn(|_| Line::default());
    let (head, tail, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let seed = 0x2545_f491_4f6c_dd1d;
    println!("seed {seed:#x}");
    let (mut pushed, mut refused) = (0u32, 0u32);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = seed;
            for lies in 1u32.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                if lies.is_multiple_of(LOOKS) {
                    thread::yield_now();
                }
                let value = next(&mut state);
                let lie = if value.is_multiple_of(4) {
                    value
                } else {
                    tail.load(Ordering::Relaxed).wrapping_sub(value % 12)
                };
                head.store(lie, Ordering::Relaxed);
            }
        });
        let _ends = Ends(&done);
        let lines = Lines::new(&memory).unwrap();
        let mut producer = Producer::new();
        let mut idle = Idle::new();
        while pushed < 20_000 || refused == 0 {
            match producer.try_push(lines, Publish::SeqCst, [1; 8], || {
                head.load(Ordering::Acquire)
            }) {
                Ok(Push::Done) => {
                    pushed += 1;
                    if refused > 0 {
                        idle = Idle::new();
                    } else {
                        idle.again();
                    }
                }
                Ok(Push::Full) => idle.again(),
                Err(violation) => {
                    assert!(violation.head < violation.before || violation.head > violation.tail);
                    refused += 1;
                    idle.again();
                }
            }
            assert!(producer.tail() - producer.known_head() <= 8);
            tail.store(producer.tail(), Ordering::Relaxed);
        }
    });
}
