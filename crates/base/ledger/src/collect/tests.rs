use proptest::prelude::*;
use tranship_sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{generation, reader_set::Source, words::NoWords};

type Heap<'a> = ReaderSet<&'a [AtomicU32], &'a [AtomicU32]>;

fn words<const N: usize>(values: [u32; N]) -> [AtomicU32; N] {
    values.map(AtomicU32::new)
}

fn reader_set<'a>(sent: &'a [AtomicU32], rcvd: &'a [AtomicU32], refs: &'a [AtomicU32]) -> Heap<'a> {
    let mut reader_set = ReaderSet::new(7);
    reader_set.add_queue(1, Source::Other, sent, rcvd).unwrap();
    reader_set.add_reader(2, refs).unwrap();
    reader_set
}

#[test]
fn the_three_buffers_of_the_papers_figure_and_one_that_wrapped() {
    let (sent, rcvd) = (words([1, 1, 1, 0]), words([1, 1, 0, 0]));
    let refs = words([0, 2, 0, 0]);
    let table = words([2, 2, 2, 0x00ff_fffe]);
    let mut batch = Batch::default();
    let mut reader_set = reader_set(&sent, &rcvd, &refs);
    reader_set
        .collect(&[0, 1, 2, 3], &NoWords, &table[..], || 7, &mut batch)
        .unwrap();
    assert_eq!(batch.dead, [0, 3]);
    assert_eq!(batch.alive, [1, 2]);
    let after: Vec<u32> = table.iter().map(|g| g.load(Ordering::Relaxed)).collect();
    assert_eq!(after, [3, 2, 2, 0x00ff_ffff]);
    assert!(!reader_set.is_alive(0) && reader_set.is_alive(1) && reader_set.is_alive(2));
}

#[test]
fn many_at_once_and_private_references() {
    const N: usize = 200;
    let zero = || (0..N).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let (sent, rcvd, refs, own) = (zero(), zero(), zero(), zero());
    let table: Vec<AtomicU32> = (0..N).map(|_| AtomicU32::new(2)).collect();
    for i in (0..N).step_by(3) {
        own[i].store(1, Ordering::Relaxed);
    }
    let candidates: Vec<u32> = (0..u32::try_from(N).unwrap()).rev().collect();
    let mut batch = Batch::default();
    reader_set(&sent, &rcvd, &refs)
        .collect(&candidates, &own[..], &table[..], || 7, &mut batch)
        .unwrap();
    assert!(batch.dead.iter().all(|s| s % 3 != 0) && batch.alive.iter().all(|s| s % 3 == 0));
    assert_eq!(batch.dead.len() + batch.alive.len(), N);
}

#[test]
fn one_queue_with_too_many_receipts_does_not_hide_another_with_too_few() {
    let (one, zero) = (words([1]), words([0]));
    let mut reader_set: Heap<'_> = ReaderSet::new(7);
    reader_set.add_queue(1, Source::Other, &one, &zero).unwrap();
    reader_set.add_queue(2, Source::Other, &zero, &one).unwrap();
    assert!(reader_set.is_alive(0));
}

#[test]
fn an_epoch_that_changes_at_any_check_restores_everything() {
    // The second is on its way.
    let (sent, rcvd, refs) = (words([1, 1]), words([1, 0]), words([0, 0]));
    for stale_at in 0..3 {
        let table = words([2, 2]);
        let mut batch = Batch {
            dead: vec![9],
            alive: vec![8],
        };
        let mut seen = Vec::new();
        let stale = reader_set(&sent, &rcvd, &refs)
            .collect(
                &[0, 1],
                &NoWords,
                &table[..],
                || {
                    seen.push(table[0].load(Ordering::Relaxed));
                    if seen.len() > stale_at { 8 } else { 7 }
                },
                &mut batch,
            )
            .unwrap_err();
        assert_eq!(
            stale,
            StaleReaderSet {
                reader_set: 7,
                control_page: 8
            }
        );
        assert_eq!(table[0].load(Ordering::Relaxed), 2);
        assert_eq!((&batch.dead[..], &batch.alive[..]), (&[9][..], &[8][..]));
        // Before the bump twice, after it once.
        assert!(seen.iter().take(2).all(|&g| g == 2));
        assert!(seen.get(2).is_none_or(|&g| g == generation::next_free(2)));
    }
}

/// A reference that appears between the two looks, which only a liar can cause.
#[test]
fn a_reference_that_rose_after_the_pass_brings_the_generation_back() {
    let (sent, rcvd, refs, table) = (words([1]), words([1]), words([0]), words([2]));
    let mut batch = Batch::default();
    let mut checks = 0;
    let risen = || {
        checks += 1;
        if checks == 2 {
            refs[0].store(1, Ordering::Relaxed);
        }
        7
    };
    reader_set(&sent, &rcvd, &refs)
        .collect(&[0], &NoWords, &table[..], risen, &mut batch)
        .unwrap();
    assert_eq!(batch.alive, [0]);
    assert_eq!(table[0].load(Ordering::Relaxed), 2);
}

/// The counters of a pool of [`SLOTS`] slots at one moment: `sent` and `rcvd` of each queue, `ref` of each reader, and the
/// writer's own last.
#[derive(Clone, Debug)]
struct Moment {
    queues: Vec<[Vec<u32>; 2]>,
    refs: Vec<Vec<u32>>,
}

const SLOTS: usize = 12;

impl Moment {
    fn is_alive(&self, slot: u32) -> bool {
        let slot = slot as usize;
        self.queues
            .iter()
            .any(|[sent, rcvd]| sent[slot] != rcvd[slot])
            || self.refs.iter().any(|refs| refs[slot] != 0)
    }
}

fn moments(queues: usize, readers: usize) -> impl Strategy<Value = Moment> {
    // Mostly the same, so that many are dead.
    let word = || prop_oneof![12 => Just(0u32), 1 => Just(1u32)];
    let words = move || prop::collection::vec(word(), SLOTS);
    let pairs = prop::collection::vec([words(), words()], queues);
    let refs = prop::collection::vec(words(), readers + 1);
    (pairs, refs).prop_map(|(queues, refs)| Moment { queues, refs })
}

/// Two moments, one for each look, of the same queues and readers; and the slots that are asked about, each at most
/// once.
fn two_moments() -> impl Strategy<Value = (Moment, Moment, Vec<u32>)> {
    let slots: Vec<u32> = (0..u32::try_from(SLOTS).unwrap()).collect();
    let candidates = prop::sample::subsequence(slots, 0..=SLOTS).prop_shuffle();
    (0usize..4, 0usize..4).prop_flat_map(move |(queues, readers)| {
        let moment = || moments(queues, readers);
        (moment(), moment(), candidates.clone())
    })
}

proptest! {
    /// Whatever is asked at once, each slot is judged by itself: dead if no word of any queue or reader says otherwise in
    /// either look.
    #[test]
    fn a_batch_is_judged_slot_by_slot((first, second, candidates) in two_moments(), twice in any::<bool>()) {
        let atomics = |words: &Vec<u32>| words.iter().map(|w| AtomicU32::new(*w)).collect::<Vec<_>>();
        let queues: Vec<[Vec<AtomicU32>; 2]> =
            first.queues.iter().map(|q| q.each_ref().map(atomics)).collect();
        let refs: Vec<_> = first.refs.iter().map(atomics).collect();
        let (own, readers) = refs.split_last().unwrap();
        let mut reader_set: Heap<'_> = ReaderSet::new(7);
        for (n, [sent, rcvd]) in (1..).zip(&queues) {
            reader_set.add_queue(n, Source::Other, sent, rcvd).unwrap();
        }
        for (n, refs) in (1..).zip(readers) {
            reader_set.add_reader(n, refs).unwrap();
        }
        let table: Vec<_> = (0..SLOTS).map(|_| AtomicU32::new(4)).collect();
        let generations = || table.iter().map(|g| g.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let mut batch = Batch { dead: vec![90], alive: vec![91] };
        if twice {
            // What an earlier batch left does not matter.
            let all: Vec<u32> = (0..u32::try_from(SLOTS).unwrap()).collect();
            prop_assert!(reader_set.collect(&all, &own[..], &table[..], || 8, &mut batch).is_err());
        }
        let mut checks = 0;
        let epoch = || {
            checks += 1;
            if checks == 2 {
                let set = |words: &[AtomicU32], to: &[u32]| {
                    words.iter().zip(to).for_each(|(word, to)| word.store(*to, Ordering::Relaxed));
                };
                for (words, to) in queues.iter().zip(&second.queues) {
                    words.iter().zip(to).for_each(|(words, to)| set(words, to));
                }
                refs.iter().zip(&second.refs).for_each(|(words, to)| set(words, to));
            }
            7
        };
        reader_set.collect(&candidates, &own[..], &table[..], epoch, &mut batch).unwrap();
        let is_dead = |slot: &u32| !first.is_alive(*slot) && !second.is_alive(*slot);
        let dead: Vec<u32> = candidates.iter().copied().filter(is_dead).collect();
        prop_assert_eq!(&batch.dead[1..], &dead[..]);
        let mut alive = batch.alive[1..].to_vec();
        alive.sort_unstable();
        let mut expected: Vec<u32> = candidates.iter().copied().filter(|s| !is_dead(s)).collect();
        expected.sort_unstable();
        prop_assert_eq!(alive, expected);
        prop_assert_eq!((batch.dead[0], batch.alive[0]), (90, 91));
        for (slot, now) in (0..).zip(generations()) {
            prop_assert_eq!(now, if dead.contains(&slot) { 5 } else { 4 });
        }
        batch.clear();
        prop_assert!(batch.dead.is_empty() && batch.alive.is_empty());
    }
}
