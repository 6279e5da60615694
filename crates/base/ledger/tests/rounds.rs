//! Rounds over desks, one thread: what is free and what is not, against a naive account; and desks that lie.
#![cfg(not(loom))]

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tranship_ledger::rounds::{DeskView, Outcome, Pace, Published, Reliable, Rounds};
use tranship_ring::broadcast::{
    Desk, Hold, LAST, Limits, Message, Reader, Reading, Received, SEQUENCES, Win, let_go, sequence,
};
use tranship_ring::{Line, Lines};

const LINES: u32 = 4;
const SLOTS: u32 = 48;
const DESKS: usize = 4;

#[derive(Default)]
struct Memory {
    desk: Desk,
    table: Vec<AtomicU32>,
}

/// A reader, and the slots that it has.
struct Member {
    reader: Reader,
    /// Taken and not finished, the oldest first; and what is held.
    taken: Vec<Vec<u32>>,
    holds: Vec<(Hold, u32)>,
}

impl Member {
    fn in_table(&self) -> u32 {
        let table = |(hold, _): &&(Hold, u32)| matches!(hold, Hold::Table(_));
        u32::try_from(self.holds.iter().filter(table).count()).expect("few")
    }

    fn has(&self, slot: u32) -> bool {
        self.taken.iter().flatten().any(|&s| s == slot)
            || self.holds.iter().any(|&(_, s)| s == slot)
    }
}

#[derive(Default)]
struct Freed {
    slots: Vec<u32>,
    exceeded: BTreeSet<usize>,
}

impl Outcome for Freed {
    fn free(&mut self, slot: u32) {
        self.slots.push(slot);
    }
    fn exceeded(&mut self, desk: usize) {
        self.exceeded.insert(desk);
    }
}

struct World {
    lines: Vec<Line>,
    desks: Vec<Memory>,
    members: Vec<Option<Member>>,
    published: Published,
    rounds: Rounds,
    free: Vec<u32>,
    /// Buffers of each line that has not ended, by position.
    named: BTreeMap<u64, Vec<u32>>,
    limits: Limits,
    exceeded: BTreeSet<usize>,
}

impl World {
    fn new(begin: u64, limits: Limits) -> World {
        let mut rounds = Rounds::new(SLOTS, Pace::PRODUCTION);
        let ring = rounds.add_ring(LINES);
        let lines: Vec<Line> = (0..LINES).map(|_| Line::default()).collect();
        // What was published before.
        for position in begin.saturating_sub(u64::from(LINES))..begin {
            let index = usize::try_from(position % u64::from(LINES)).expect("small");
            for word in [0, LAST] {
                lines[index].words[word].store(sequence(position), Relaxed);
            }
        }
        World {
            lines,
            desks: (0..DESKS).map(|_| World::memory()).collect(),
            members: (0..DESKS).map(|_| None).collect(),
            published: Published::new(LINES, begin, ring),
            rounds,
            free: (0..SLOTS).collect(),
            named: BTreeMap::new(),
            limits,
            exceeded: BTreeSet::new(),
        }
    }

    fn memory() -> Memory {
        Memory {
            table: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            ..Memory::default()
        }
    }

    /// Takes what rounds found free: no line names it, and no member has it.
    fn take(&mut self, freed: Freed) {
        for slot in freed.slots {
            assert!(slot < SLOTS && !self.free.contains(&slot), "{slot} twice");
            assert!(!self.named.values().flatten().any(|&s| s == slot));
            let mut members = self.members.iter().flatten();
            assert!(!members.any(|member| member.has(slot)), "{slot} is held");
            self.free.push(slot);
        }
        self.exceeded.extend(freed.exceeded);
    }

    fn with_rounds<T>(
        &mut self,
        work: impl FnOnce(&mut Rounds, &[Option<DeskView<'_>>], usize, &mut Freed) -> T,
    ) -> T {
        let views = self.desks.iter().map(|memory| {
            Some(DeskView {
                desk: &memory.desk,
                table: &memory.table,
            })
        });
        let views = Vec::from_iter(views);
        let mut freed = Freed::default();
        let value = work(&mut self.rounds, &views, self.free.len(), &mut freed);
        self.take(freed);
        value
    }

    /// Publishes a line that names so many new buffers, and one of an earlier line, too.
    fn publish(&mut self, new: usize, again: bool) {
        if self.free.len() < new {
            let Ok(_) = self.with_rounds(|rounds, desks, _, out| rounds.collect(desks, out));
        }
        let mut slots = Vec::new();
        for _ in 0..new {
            slots.extend(self.free.pop());
        }
        let (first, tail) = (self.published.first(), self.published.tail());
        if again && let Some(slot) = self.named.values().flatten().next() {
            slots.push(*slot);
        }
        let lines = Lines::new(&self.lines).expect("a power of two");
        let mut content = [0; 6];
        content[0] = slots.len() as u64;
        for (word, &slot) in content[1..].iter_mut().zip(&slots) {
            *word = slot.into();
        }
        let message = Message { kind: 0, content };
        let Ok(position) = match slots[..] {
            [slot] => self
                .published
                .publish(&lines, &mut self.rounds, message, slot),
            _ => self
                .published
                .publish_many(&lines, &mut self.rounds, message, &slots),
        };
        assert_eq!(position, tail);
        if position.wrapping_sub(first) >= u64::from(LINES) {
            self.named.remove(&first);
        }
        self.named.insert(position, slots);
        let Ok(()) = self.with_rounds(|rounds, desks, n, out| rounds.step(desks, n, out));
    }

    fn withdraw(&mut self) {
        let (first, tail) = (self.published.first(), self.published.tail());
        let lines = Lines::new(&self.lines).expect("a power of two");
        let Ok(done) = self.published.withdraw(&lines, &mut self.rounds, tail);
        if done {
            self.named.remove(&first);
        }
    }

    fn join(&mut self, desk: usize) {
        if self.members[desk].is_none() {
            self.desks[desk] = World::memory();
            self.rounds.join(desk, 0, self.limits);
            self.members[desk] = Some(Member {
                reader: Reader::new(self.published.tail(), self.limits),
                taken: Vec::new(),
                holds: Vec::new(),
            });
        }
    }

    /// A death: nothing of the desk is put in order.
    fn die(&mut self, desk: usize) {
        if self.members[desk].take().is_some() {
            self.rounds.leave(desk);
        }
    }

    fn with<T>(
        &mut self,
        desk: usize,
        work: impl FnOnce(&mut Member, &Reading<'_>) -> T,
    ) -> Option<T> {
        let lines = Lines::new(&self.lines).expect("a power of two");
        let memory = &self.desks[desk];
        let reading = Reading {
            lines,
            desk: &memory.desk,
            table: &memory.table,
        };
        Some(work(self.members[desk].as_mut()?, &reading))
    }

    fn receive(&mut self, desk: usize) -> bool {
        let taken = self.with(desk, |member, reading| {
            let position = member.reader.cursor();
            let Ok(Received::Message(message)) = member.reader.receive(reading) else {
                return None;
            };
            let [many, slots @ ..] = message.content;
            let slots = slots.iter().take(usize::try_from(many).expect("few"));
            let slots: Vec<u32> = slots.map(|&s| u32::try_from(s).expect("few")).collect();
            member.taken.push(slots.clone());
            Some((position, slots))
        });
        let Some(Some((position, slots))) = taken else {
            return false;
        };
        assert_eq!(
            self.named.get(&position),
            Some(&slots),
            "what the line names"
        );
        true
    }

    /// Finishes the oldest message, and keeps what it names.
    fn finish(&mut self, desk: usize, keep: bool) {
        self.with(desk, |member, reading| {
            if member.taken.is_empty() {
                return;
            }
            if keep {
                for slot in member.taken[0].clone() {
                    let in_table = member.in_table();
                    let Ok(held) = member.reader.hold(reading, slot, in_table);
                    let Ok(held) = held else { return };
                    member.holds.push((held, slot));
                }
            }
            member.taken.remove(0);
            let Ok(()) = member.reader.finish(reading);
        });
    }

    fn let_go(&mut self, desk: usize, which: usize) {
        self.with(desk, |member, reading| {
            if !member.holds.is_empty() {
                let (hold, _) = member.holds.swap_remove(which % member.holds.len());
                let Ok(()) = let_go(reading, hold);
                let in_table = member.in_table();
                let Ok(()) = member.reader.empty_table(reading, in_table);
            }
        });
    }

    fn end(&mut self) {
        for desk in 0..DESKS {
            while self.members[desk]
                .as_ref()
                .is_some_and(|m| !m.taken.is_empty())
            {
                self.finish(desk, false);
            }
            while self.members[desk]
                .as_ref()
                .is_some_and(|m| !m.holds.is_empty())
            {
                self.let_go(desk, 0);
            }
            self.with(desk, |member, reading| {
                let Ok(()) = member.reader.rest(reading);
            });
        }
        while self.published.first() != self.published.tail() {
            self.withdraw();
        }
        for _ in 0..2 {
            let Ok(_) = self.with_rounds(|rounds, desks, _, out| rounds.collect(desks, out));
        }
        let all = Vec::from_iter(0..SLOTS);
        self.free.sort_unstable();
        assert_eq!(self.free, all, "nothing leaks");
    }
}

#[derive(Clone, Debug)]
enum Act {
    Publish(usize, bool),
    Withdraw,
    Collect,
    Join(usize),
    Die(usize),
    Receive(usize),
    Finish(usize, bool),
    LetGo(usize, usize),
    Rest(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let desk = 0..DESKS;
    prop_oneof![
        8 => (0..4usize, any::<bool>()).prop_map(|(new, again)| Act::Publish(new, again)),
        6 => Just(Act::Publish(1, false)),
        1 => Just(Act::Withdraw),
        1 => Just(Act::Collect),
        2 => desk.clone().prop_map(Act::Join),
        1 => desk.clone().prop_map(Act::Die),
        14 => desk.clone().prop_map(Act::Receive),
        8 => (desk.clone(), any::<bool>()).prop_map(|(desk, keep)| Act::Finish(desk, keep)),
        4 => (desk.clone(), 0..8usize).prop_map(|(desk, which)| Act::LetGo(desk, which)),
        1 => desk.prop_map(Act::Rest),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Nothing is free that a line names or a reader holds; in the end everything is.
    #[test]
    fn free_is_what_nobody_has(
        begin in prop_oneof![Just(0), Just(SEQUENCES - 9), Just((1 << 49) - 5)],
        entries in 1..4u8,
        window in 1..4u8,
        table in 0..4u32,
        acts in prop::collection::vec(act(), 1..200),
    ) {
        let mut world = World::new(begin, Limits { window, entries, table, pieces: 4 });
        for act in acts {
            match act {
                Act::Publish(new, again) => world.publish(new, again),
                Act::Withdraw => world.withdraw(),
                Act::Collect => {
                    let Ok(_) = world.with_rounds(|rounds, desks, _, out| rounds.collect(desks, out));
                }
                Act::Join(desk) => world.join(desk),
                Act::Die(desk) => world.die(desk),
                Act::Receive(desk) => drop(world.receive(desk)),
                Act::Finish(desk, keep) => world.finish(desk, keep),
                Act::LetGo(desk, which) => world.let_go(desk, which),
                Act::Rest(desk) => {
                    world.with(desk, |member, reading| {
                        let Ok(()) = member.reader.rest(reading);
                    });
                }
            }
        }
        prop_assert!(world.exceeded.is_empty(), "no honest reader exceeds what was agreed");
        world.end();
    }

    /// A desk may say anything: it pins at most a window, its entries, and, if `more` says so, its table; nothing
    /// panics.
    #[test]
    fn any_words_in_a_desk(
        begin in prop_oneof![Just(0), Just(SEQUENCES - 20)],
        near in 0..64u64,
        wild in any::<u64>(),
        is_wild: bool,
        len: u8,
        entries: u8,
        kept in prop::collection::vec(prop_oneof![0..SLOTS + 2, any::<u32>()], 12),
        more: bool,
        table in prop::collection::vec(any::<bool>(), SLOTS as usize),
    ) {
        let limits = Limits { table: 3, ..Limits::new(3) };
        let mut world = World::new(begin, limits);
        world.join(0);
        let desk = &world.desks[0].desk;
        let low = begin.wrapping_add(near).wrapping_sub(16) & SEQUENCES;
        let win = Win { low, entries, len };
        desk.win.store(if is_wild { wild } else { win.pack() }, Relaxed);
        for (entry, slot) in desk.kept.iter().zip(kept) {
            entry.store(slot, Relaxed);
        }
        desk.more.store(more.into(), Relaxed);
        for (counter, is_held) in world.desks[0].table.iter().zip(&table) {
            counter.store((*is_held).into(), Relaxed);
        }
        let claimed = table.iter().filter(|held| **held).count();
        for _ in 0..100 {
            if world.free.is_empty() {
                break;
            }
            world.publish(1, false);
        }
        for _ in 0..2 {
            let Ok(_) = world.with_rounds(|rounds, desks, _, out| rounds.collect(desks, out));
        }
        let most = 8 + 12 + if more { claimed } else { 0 };
        let pinned = SLOTS as usize - world.free.len() - world.named.len();
        prop_assert!(pinned <= most, "{pinned} pinned, at most {most}");
        if !world.exceeded.is_empty() {
            prop_assert!(more && claimed > 3 + 8);
        }
        // Expelled, it pins nothing.
        world.die(0);
        world.end();
    }
}

/// A buffer that is published again and again, while a reader holds it, costs bounded memory, and is free in the end.
#[test]
fn one_buffer_again_and_again() {
    let mut world = World::new(0, Limits::new(0));
    world.join(0);
    world.publish(1, false);
    assert!(world.receive(0));
    world.finish(0, true);
    let before = format!("{:?}", world.rounds).len();
    for _ in 0..10_000 {
        world.publish(0, true);
    }
    let after = format!("{:?}", world.rounds).len();
    // At most a round's worth of entries, and those of its lines: not 10,000.
    assert!(after < before + 40_000, "{before} and then {after}");
    world.end();
}

/// Two readers hold the same buffer by lines that ended in different rounds, and by their windows.
#[test]
fn a_window_far_behind_still_covers_its_line() {
    let mut world = World::new(0, Limits::new(0));
    world.join(0);
    world.publish(1, false);
    assert!(world.receive(0));
    for _ in 0..300 {
        world.publish(1, false);
    }
    let held = world.members[0].as_ref().expect("it joined").taken[0][0];
    assert!(!world.free.contains(&held));
    world.end();
}

#[test]
fn a_table_beyond_the_limit_is_reported_and_honoured() {
    let mut world = World::new(0, Limits::new(2));
    world.join(0);
    let desk = &world.desks[0].desk;
    let win = Win {
        low: 0,
        entries: 1,
        len: 0,
    };
    desk.win.store(win.pack(), Relaxed);
    desk.more.store(1, Relaxed);
    for counter in &world.desks[0].table[30..] {
        counter.store(1, Relaxed);
    }
    for _ in 0..3 * SLOTS {
        world.publish(1, false);
    }
    assert_eq!(world.exceeded, BTreeSet::from([0]));
    assert!(!(30..SLOTS).any(|slot| world.free.contains(&slot)));
}

#[test]
fn reliable_readers_hold_the_writer_back() {
    let desks: Vec<Desk> = (0..3).map(|_| Desk::default()).collect();
    let views: Vec<_> = desks
        .iter()
        .map(|desk| Some(DeskView { desk, table: &[] }))
        .collect();
    for begin in [0, SEQUENCES - 5] {
        let low = |desk: usize, low: u64| {
            let win = Win {
                low: low & SEQUENCES,
                entries: 0,
                len: 0,
            };
            desks[desk].win.store(win.pack(), Relaxed);
        };
        let mut reliable = Reliable::new(8);
        let room = |reliable: &mut Reliable, tail: u64| {
            let Ok(room) = reliable.room(&views[..], tail);
            room
        };
        assert_eq!(room(&mut reliable, begin + 100), None, "nobody");
        for desk in 0..3 {
            low(desk, begin);
            reliable.join(desk, begin);
        }
        for tail in begin..begin + 8 {
            assert_eq!(room(&mut reliable, tail), None);
        }
        assert_eq!(room(&mut reliable, begin + 8), Some(0));
        assert!(!reliable.is_overdue(100, 50) && !reliable.is_overdue(150, 50));
        assert!(reliable.is_overdue(151, 50));
        low(0, begin + 8);
        assert_eq!(room(&mut reliable, begin + 8), Some(1));
        assert_eq!(reliable.floor(begin + 8), begin);
        low(1, begin + 3);
        low(2, begin + 5);
        assert_eq!(room(&mut reliable, begin + 8), None);
        assert_eq!(reliable.floor(begin + 8), begin + 3);
        assert!(!reliable.is_overdue(200, 50), "the time begins anew");
        // It becomes one that may miss lines.
        assert_eq!(room(&mut reliable, begin + 11), Some(1));
        reliable.leave(1);
        assert_eq!(room(&mut reliable, begin + 11), None);
        // A window beyond the tail holds nobody back; one far behind does, until its time is over.
        low(0, begin + 1000);
        low(2, begin.wrapping_sub(1 << 40));
        assert_eq!(room(&mut reliable, begin + 30), Some(2));
        assert!(!reliable.is_overdue(0, 0));
        assert!(reliable.is_overdue(1, 0));
        reliable.leave(2);
        assert_eq!(room(&mut reliable, begin + 30), None);
    }
}

/// Buffers of two rings of one pool: one that is in lines of both is free after both.
#[test]
fn one_buffer_in_lines_of_two_rings() {
    let memory: [Vec<Line>; 2] = [0, 1].map(|_| (0..LINES).map(|_| Line::default()).collect());
    let lines = [0, 1].map(|i: usize| Lines::new(&memory[i]).expect("a power of two"));
    let mut rounds = Rounds::new(8, Pace::PRODUCTION);
    let mut rings = [0, 1].map(|_| {
        let ring = rounds.add_ring(LINES);
        Published::new(LINES, 0, ring)
    });
    let desk = Desk::default();
    let views = [Some(DeskView {
        desk: &desk,
        table: &[],
    })];
    rounds.join(0, 1, Limits::new(0));
    let reading = Reading {
        lines: lines[1],
        desk: &desk,
        table: &[],
    };
    let mut reader = Reader::new(0, Limits::new(0));
    for (ring, lines) in rings.iter_mut().zip(&lines) {
        let Ok(_) = ring.publish(lines, &mut rounds, Message::default(), 5);
    }
    assert!(matches!(reader.receive(&reading), Ok(Received::Message(_))));
    let mut freed = Freed::default();
    let mut collect = |rounds: &mut Rounds| {
        let Ok(_) = rounds.collect(&views[..], &mut freed);
        std::mem::take(&mut freed.slots)
    };
    // The first ring's line is passed by its only reader, the second ring's is withdrawn.
    rings[0].end_passed(&mut rounds, 1);
    assert_eq!(collect(&mut rounds), [], "the other line names it");
    let Ok(done) = rings[1].withdraw(&lines[1], &mut rounds, 1);
    assert!(done);
    assert_eq!(collect(&mut rounds), [], "a reader has it");
    let Ok(()) = reader.finish(&reading);
    assert_eq!(collect(&mut rounds), [5]);
}

/// A buffer that is published again and again, while many readers have it in their tables, takes a bounded number of entries.
#[test]
fn one_buffer_in_many_tables_takes_bounded_memory() {
    for readers in [1, 28, 64, 200] {
        let memory: Vec<Line> = (0..LINES).map(|_| Line::default()).collect();
        let lines = Lines::new(&memory).expect("a power of two");
        let mut rounds = Rounds::new(SLOTS, Pace::PRODUCTION);
        let mut published = Published::new(LINES, 0, rounds.add_ring(LINES));
        let (desk, table) = (Desk::default(), World::memory().table);
        let win = Win {
            entries: 1,
            ..Win::default()
        };
        desk.win.store(win.pack(), Relaxed);
        desk.more.store(1, Relaxed);
        table[5].store(1, Relaxed);
        let view = DeskView {
            desk: &desk,
            table: &table,
        };
        let views = vec![Some(view); readers];
        for reader in 0..readers {
            rounds.join(reader, 0, Limits::new(1));
        }
        let mut most = 0;
        for _ in 0..20_000 {
            let Ok(_) = published.publish(&lines, &mut rounds, Message::default(), 5);
            let Ok(()) = rounds.step(&views[..], 0, &mut Freed::default());
            most = most.max(rounds.waiting());
        }
        assert!(most < 2000, "{readers} readers: {most} entries");
    }
}

/// A reader that was let begin and has claimed nothing yet has still to take every line from there on, wherever that is.
#[test]
fn a_reader_that_has_not_begun_holds_the_writer_back() {
    let desk = Desk::default();
    let views = [Some(DeskView {
        desk: &desk,
        table: &[],
    })];
    for begin in [0, 1000, 1 << 47, SEQUENCES - 5] {
        let mut reliable = Reliable::new(8);
        reliable.join(0, begin);
        let mut rounds = Rounds::new(8, Pace::PRODUCTION);
        rounds.join(0, 0, Limits::new(0));
        let mut seen = Seen(Vec::new());
        rounds.begin(&views[..]).expect("no stop");
        rounds.look(&views[..], &mut seen).expect("no stop");
        assert!(seen.0.is_empty(), "a desk of zeros is no window");
        for tail in begin..begin + 8 {
            assert_eq!(reliable.room(&views[..], tail), Ok(None));
        }
        assert_eq!(reliable.room(&views[..], begin + 8), Ok(Some(0)));
        assert_eq!(reliable.floor(begin + 8), begin);
    }
}

struct Seen(Vec<u64>);

impl Outcome for Seen {
    fn free(&mut self, _: u32) {}
    fn seen(&mut self, _: usize, low: u64) {
        self.0.push(low);
    }
}

/// Readers with messages in their windows, in entries, in tables, and without any die in one moment, at any step of a
/// round. All that none but they had is free after the next rounds.
#[test]
fn all_but_one_of_200_readers_die_at_once() {
    const READERS: usize = 200;
    const SLOTS: u32 = 1024;
    const LINES: u32 = 64;
    const HELD: u8 = 16;
    let pace = Pace {
        desks: 2,
        table: 1,
        sweep: 1,
    };
    for steps in [0, 1, 40, 100, 1000, 4000, 6000] {
        let memory: Vec<Line> = (0..LINES).map(|_| Line::default()).collect();
        let lines = Lines::new(&memory).expect("a power of two");
        let mut rounds = Rounds::new(SLOTS, pace);
        let mut published = Published::new(LINES, 0, rounds.add_ring(LINES));
        let desks: Vec<Memory> = (0..READERS)
            .map(|_| Memory {
                table: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
                ..Memory::default()
            })
            .collect();
        let views = desks
            .iter()
            .map(|Memory { desk, table }| Some(DeskView { desk, table }));
        let views: Vec<_> = views.collect();
        let limits = |n: usize| Limits {
            entries: if n % 4 == 2 { 0 } else { 12 },
            ..Limits::new(HELD.into())
        };
        for n in 0..READERS {
            rounds.join(n, 0, limits(n));
        }
        let mut slots = 0..SLOTS;
        let mut publish = |rounds: &mut Rounds, many: u32| {
            for slot in slots.by_ref().take(many as usize) {
                let mut message = Message::default();
                message.content[0] = slot.into();
                let Ok(_) = published.publish(&lines, rounds, message, slot);
            }
        };
        publish(&mut rounds, HELD.into());
        let mut held = BTreeSet::new();
        for (n, Memory { desk, table }) in desks.iter().enumerate() {
            let reading = Reading { lines, desk, table };
            let mut reader = Reader::new(0, limits(n));
            // The second kind has a full window, the last one nothing.
            let takes: usize = [HELD, 8, HELD, 0][n % 4].into();
            for at in 0..takes {
                let Ok(Received::Message(message)) = reader.receive(&reading) else {
                    panic!("there is a message");
                };
                let slot = u32::try_from(message.content[0]).expect("a slot");
                if n % 4 == 1 {
                    continue;
                }
                // Of the first kind 12 have entries, the others the table.
                let in_table = u32::try_from(at.saturating_sub(12 * (1 - n % 4 / 2))).expect("few");
                let Ok(Ok(_)) = reader.hold(&reading, slot, in_table) else {
                    panic!("there is room");
                };
                let Ok(()) = reader.finish(&reading);
                if n == 0 && slot % 2 == 0 {
                    held.insert(slot);
                }
            }
        }
        // The reader that lives lets go of every other one.
        for entry in (1..12).step_by(2) {
            desks[0].desk.kept[entry].store(0, Relaxed);
        }
        for slot in (13..usize::from(HELD)).step_by(2) {
            desks[0].table[slot].store(0, Relaxed);
        }
        publish(&mut rounds, 2 * LINES);
        let mut freed = Freed::default();
        rounds.begin(&views[..]).expect("no stop");
        for _ in 0..steps {
            let Ok(()) = rounds.step(&views[..], usize::MAX, &mut freed);
        }
        assert!(
            freed.slots.iter().all(|slot| *slot >= u32::from(HELD)),
            "{steps}"
        );
        for n in 1..READERS {
            rounds.leave(n);
        }
        while !matches!(rounds.collect(&views[..], &mut freed), Ok(0)) {}
        freed.slots.sort_unstable();
        let ended = 0..u32::from(HELD) + LINES;
        let rest: Vec<u32> = ended.filter(|slot| !held.contains(slot)).collect();
        assert_eq!(freed.slots, rest, "after {steps} steps");
    }
}
