//! The ring against a plain queue, with a peer that lies about its head and rewrites lines.
//!
//! Seen failing: a head past the tail believed; a head that moves back believed; a line taken without looking
//! at its sequence; a push into a full ring. proptest prints the input that fails, and its seed.
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use proptest::prelude::*;
use tranship_ring::{Consumer, Line, Lines, Producer, Publish, Push, RingViolation};

const LOW: u64 = 0xffff_ffff;

#[derive(Debug, Clone)]
enum Step {
    Push([u64; 8], bool),
    Pop,
    /// The consumer gives lines back.
    ShowHead,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<[u64; 8]>(), any::<bool>()).prop_map(|(words, seqcst)| Step::Push(words, seqcst)),
        5 => Just(Step::Pop),
        3 => Just(Step::ShowHead),
    ];
    prop::collection::vec(step, 0..200)
}

fn fresh(power: u32) -> Vec<Line> {
    (0..1 << power).map(|_| Line::default()).collect()
}

fn expected(mut words: [u64; 8]) -> [u64; 8] {
    words[0] &= !LOW;
    words
}

proptest! {
    #[test]
    fn honest_ends_make_a_queue(power in 1u32..5, steps in steps()) {
        let memory = fresh(power);
        let lines = Lines::new(&memory).unwrap();
        let (mut producer, mut consumer, head) = (Producer::new(), Consumer::new(), AtomicU64::new(0));
        let load = || head.load(Ordering::Acquire);
        let mut queue = VecDeque::new();
        let mut unreturned = 0;
        for step in steps {
            let room = memory.len() - queue.len() - unreturned;
            match step {
                Step::Push(words, seqcst) => {
                    let publish = if seqcst { Publish::SeqCst } else { Publish::Release };
                    let want = if room > 0 { Push::Done } else { Push::Full };
                    prop_assert_eq!(producer.try_push(lines, publish, words, load), Ok(want));
                    if want == Push::Done {
                        queue.push_back(expected(words));
                    }
                }
                Step::Pop => {
                    prop_assert_eq!(consumer.ready(lines), !queue.is_empty());
                    let peeked = consumer.peek(lines).map(|(first, _)| first);
                    prop_assert_eq!(peeked, queue.front().map(|words| words[0]));
                    let got = consumer.try_pop(lines);
                    unreturned += usize::from(got.is_some());
                    prop_assert_eq!(got, queue.pop_front());
                }
                Step::ShowHead => {
                    head.store(consumer.head(), Ordering::Release);
                    unreturned = 0;
                }
            }
        }
    }

    /// A possible head is believed, and any other is a violation that changes nothing.
    #[test]
    fn a_lying_head_is_a_violation(
        power in 1u32..4,
        heads in prop::collection::vec(prop_oneof![0u64..40, any::<u64>()], 1..60),
    ) {
        let memory = fresh(power);
        let lines = Lines::new(&memory).unwrap();
        let mut producer = Producer::new();
        for head in heads {
            let (tail, before) = (producer.tail(), producer.known_head());
            let room = memory.len() as u64 - (tail - before);
            let result = producer.try_push(lines, Publish::Release, [7; 8], || head);
            if room > 0 {
                // The head is not read while there is room.
                prop_assert_eq!(result, Ok(Push::Done));
            } else if (before..=tail).contains(&head) {
                let want = if head > before { Push::Done } else { Push::Full };
                prop_assert_eq!(result, Ok(want));
                prop_assert_eq!(producer.known_head(), head);
            } else {
                prop_assert_eq!(result, Err(RingViolation { head, before, tail }));
                prop_assert_eq!((producer.tail(), producer.known_head()), (tail, before));
            }
            prop_assert!(producer.tail() - producer.known_head() <= memory.len() as u64);
        }
    }

    /// With a producer that writes anything anywhere, the consumer takes a line exactly if it carries the expected
    /// sequence, and returns exactly its words.
    #[test]
    fn a_consumer_takes_only_what_is_next(
        power in 1u32..4,
        writes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..8, any::<u64>(), -2i64..3), 0..200),
    ) {
        let memory = fresh(power);
        let lines = Lines::new(&memory).unwrap();
        let mut consumer = Consumer::new();
        for (line, word, value, near) in writes {
            // Word 0 gets sequences near the right one, so that some are right.
            let near = consumer.head().wrapping_add_signed(near).wrapping_add(1);
            let value = if word == 0 { (value & !LOW) | (near & LOW) } else { value };
            memory[line.index(memory.len())].words[word].store(value, Ordering::Relaxed);

            let head = consumer.head();
            let next = &memory[usize::try_from(head).unwrap() % memory.len()];
            let words: [u64; 8] = std::array::from_fn(|i| next.words[i].load(Ordering::Relaxed));
            let want = (words[0] & LOW == (head + 1) & LOW).then(|| expected(words));
            prop_assert_eq!(consumer.ready(lines), want.is_some());
            let peeked = consumer.peek(lines).map(|(first, _)| first);
            prop_assert_eq!(peeked, want.map(|words| words[0]));
            prop_assert_eq!(consumer.try_pop(lines), want);
            prop_assert_eq!(consumer.head(), head + u64::from(want.is_some()));
        }
    }
}

#[test]
fn room_is_known_or_looked_for() {
    let memory = fresh(2);
    let lines = Lines::new(&memory).unwrap();
    let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
    for _ in 0..4 {
        let pushed = producer.push(lines, Publish::Release, [1 << 40; 8]);
        assert_eq!(pushed, Push::Done);
    }
    assert_eq!(producer.room(lines, 1, || 0), Ok(0));
    assert_eq!(producer.push(lines, Publish::Release, [0; 8]), Push::Full);
    assert_eq!(std::iter::from_fn(|| consumer.try_pop(lines)).count(), 4);
    assert_eq!(producer.room(lines, 1, || consumer.head()), Ok(4));
    // The head is not looked at for as much room as is known.
    assert_eq!(producer.room(lines, 4, || 5), Ok(4));
    for head in [3, 5] {
        let violation = RingViolation {
            head,
            before: 4,
            tail: 4,
        };
        assert_eq!(producer.look(head), Err(violation));
    }
    let error = producer.look(5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer's head says 5 lines taken, but it said 4 before, and 4 were sent"
    );
}
