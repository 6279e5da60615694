use proptest::prelude::*;
use tranship_sync::atomic::{AtomicU32, Ordering};

use crate::reader_set::{ReaderSet, Source};
use crate::words::{NoWords, Words as Look};

const FEW: usize = 3;
const SLOTS: [u32; FEW] = [2, 0, 1];

type Words = [AtomicU32; FEW];

fn words(values: [u32; FEW]) -> Words {
    values.map(AtomicU32::new)
}

fn values(words: &Words) -> [u32; FEW] {
    words.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// One queue and one reader.
#[derive(Default)]
struct System {
    sent: Words,
    rcvd: Words,
    refs: Words,
}

impl System {
    fn reader_set(&self, source: Source) -> ReaderSet<&[AtomicU32], &[AtomicU32]> {
        let mut reader_set = ReaderSet::new(7);
        reader_set
            .add_queue(1, source, &self.sent[..], &self.rcvd[..])
            .unwrap();
        reader_set.add_reader(2, &self.refs[..]).unwrap();
        reader_set
    }

    fn are_dead(&self, table: &Words, epoch: impl FnMut() -> u64) -> bool {
        self.reader_set(Source::Writer)
            .are_dead(&SLOTS, &NoWords, &table[..], epoch)
    }
}

#[test]
fn all_that_is_dead_gets_its_next_generation() {
    let (system, table) = (System::default(), words([2, 0x00ff_fffe, 4]));
    assert!(system.are_dead(&table, || 7));
    assert_eq!(values(&table), [3, 0x00ff_ffff, 5]);
}

#[test]
fn another_source_on_the_reader_set_leaves_it_to_two_passes() {
    let (system, table) = (System::default(), words([2; FEW]));
    let mut reader_set = system.reader_set(Source::Other);
    let judge =
        |reader_set: &ReaderSet<_, _>| reader_set.are_dead(&SLOTS, &NoWords, &table[..], || 7);
    assert!(!judge(&reader_set));
    reader_set.remove_queue(1).unwrap();
    assert!(judge(&reader_set));
}

/// Twice before the bump and once after it.
#[test]
fn an_epoch_that_changes_at_any_look_brings_the_generations_back() {
    for stale_at in 0..3 {
        let (system, table) = (System::default(), words([2; FEW]));
        let mut seen = Vec::new();
        let epoch = || {
            seen.push(values(&table)[0]);
            if seen.len() > stale_at { 8 } else { 7 }
        };
        assert!(!system.are_dead(&table, epoch));
        assert_eq!(values(&table), [2; FEW]);
        assert_eq!(seen, &[2, 2, 3][..=stale_at]);
    }
}

/// A reader's words. Something happens as that of the first slot is looked at: before, or after.
struct Meanwhile<'a> {
    refs: &'a Words,
    before: bool,
    happens: &'a dyn Fn(),
}

impl Look for Meanwhile<'_> {
    fn load(&self, slot: u32) -> u32 {
        let happens = |here: bool| {
            if here && slot == 0 {
                (self.happens)();
            }
        };
        happens(self.before);
        let seen = self.refs[slot as usize].load(Ordering::Acquire);
        happens(!self.before);
        seen
    }
}

/// Hence `rcvd` is compared twice: on its way until its reader's references were looked at, and received then; or held until just before,
/// and passed back.
#[test]
fn what_is_received_or_passed_back_meanwhile_is_alive() {
    for before in [false, true] {
        let (system, table) = (System::default(), words([2; FEW]));
        let set = |received: u32| {
            system.refs[0].store(received, Ordering::Relaxed);
            system.rcvd[0].store(received, Ordering::Relaxed);
        };
        system.sent[0].store(1, Ordering::Relaxed);
        set(u32::from(before));
        let refs = Meanwhile {
            refs: &system.refs,
            before,
            happens: &|| set(u32::from(!before)),
        };
        let mut reader_set = ReaderSet::new(7);
        reader_set
            .add_queue(1, Source::Writer, &system.sent[..], &system.rcvd[..])
            .unwrap();
        reader_set.add_reader(2, refs).unwrap();
        assert!(!reader_set.are_dead(&SLOTS, &NoWords, &table[..], || 7));
        assert_eq!(values(&table), [2; FEW]);
    }
}

proptest! {
    /// One word that says otherwise is enough, in any domain's counters.
    #[test]
    fn one_that_is_alive_is_enough(which in 0usize..5, slot in 0..FEW, by in 1u32..) {
        let (system, own, table) = (System::default(), words([0; FEW]), words([2; FEW]));
        let mut words = vec![&own, &system.refs, &system.rcvd, &system.sent];
        let both = [&system.rcvd, &system.sent];
        match which {
            // As many received as sent are no difference.
            4 => words = both.to_vec(),
            _ => words = vec![words[which]],
        }
        words.iter().for_each(|words| words[slot].store(by, Ordering::Relaxed));
        let reader_set = system.reader_set(Source::Writer);
        let dead = reader_set.are_dead(&SLOTS, &own[..], &table[..], || 7);
        prop_assert_eq!(dead, which == 4);
        prop_assert_eq!(values(&table), [if dead { 3 } else { 2 }; FEW]);
    }
}
