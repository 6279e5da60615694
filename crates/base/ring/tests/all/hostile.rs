//! A peer that rewrites lines and its head while they are used: no panic, no access out of bounds, and each
//! word of a received line is a value that the peer wrote.
//!
//! No thread waits for another one's turn: an end that finds nothing to do plays the peer for a moment.
//!
//! Seen failing: word 0 loaded twice; a head past the tail believed; a head that moves back believed.
use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
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

/// Messages that go through, and lies that are told meanwhile, at least.
const MESSAGES: u64 = 20_000;
const LIES: u64 = 20_000_000;

/// Rewrites two words of a line: any word with the mark in its low bits, and word 0 with a sequence near to `head`.
fn rewrite(memory: &[Line; 4], head: u64, value: u64) {
    let line = &memory[(value >> 60) as usize % 4];
    line.words[1 + (value >> 50) as usize % 7].store(value << 8 | 0x5a, Ordering::Relaxed);
    let near = head.wrapping_add(value % 3);
    line.words[0].store((value << 32) | (near & 0xffff_ffff), Ordering::Relaxed);
}

#[test]
fn lines_rewritten_between_any_two_reads() {
    let memory: [Line; 4] = std::array::from_fn(|_| Line::default());
    let (head, lies, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = seed;
            while !done.load(Ordering::Relaxed) {
                rewrite(&memory, head.load(Ordering::Relaxed), next(&mut state));
                lies.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _ends = Ends(&done);
        let lines = Lines::new(&memory).unwrap();
        let mut consumer = Consumer::new();
        let mut state = seed.rotate_left(32);
        while consumer.head() < MESSAGES || lies.load(Ordering::Relaxed) < LIES {
            let Some(words) = consumer.try_pop(lines) else {
                rewrite(&memory, consumer.head(), next(&mut state));
                continue;
            };
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

/// The head is read by the caller's function, so each read is another lie.
#[test]
fn a_head_that_jumps_about() {
    let memory: [Line; 8] = std::array::from_fn(|_| Line::default());
    let seed = 0x2545_f491_4f6c_dd1d;
    println!("seed {seed:#x}");
    let (mut pushed, mut refused, tail) = (0u64, 0u64, Cell::new(0u64));
    let lines = Lines::new(&memory).unwrap();
    let mut producer = Producer::new();
    let mut state = seed;
    while pushed < MESSAGES || refused < MESSAGES {
        let lie = || {
            let value = next(&mut state);
            match value.is_multiple_of(4) {
                true => value,
                false => tail.get().wrapping_sub(value % 12),
            }
        };
        match producer.try_push(lines, Publish::SeqCst, [1; 8], lie) {
            Ok(Push::Done) => pushed += 1,
            Ok(Push::Full) => {}
            Err(violation) => {
                assert!(violation.head < violation.before || violation.head > violation.tail);
                refused += 1;
            }
        }
        assert!(producer.tail() - producer.known_head() <= 8);
        tail.set(producer.tail());
    }
}
