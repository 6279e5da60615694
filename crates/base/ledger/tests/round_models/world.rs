//! The whole system at one moment, and what can happen next.

use std::collections::HashMap;
use std::fmt;

use tranship_ring::broadcast::{Hold, Win, sequence};

use crate::code::{Op, Private, Said, Threads, slots};
use crate::config::{Config, D, RINGS, SLOTS, Without};
use crate::explorer::{Seen, System};
use crate::replay::{Access, Book, Next, Place, Word};
use crate::words::{self, Named, Part, WORDS};
use crate::{reader, writer};

/// The writer; the readers; the first reader's other thread, or the domain without a desk.
pub const THREADS: usize = 4;
pub const WRITER: usize = 0;
pub const HELPER: usize = 3;
/// Stores of a thread that wait, at most.
const DEPTH: usize = 8;
/// Messages a ring, at most.
const MESSAGES: usize = 8;

/// Values of words are numbered, so that a state is small.
type Value = u16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub memory: [Value; WORDS],
    words: [[Word; DEPTH]; THREADS],
    values: [[Value; DEPTH]; THREADS],
    /// Where each thread is, and what it knew before.
    pub place: [Place; THREADS],
    pub private: [u32; THREADS],
    pub waiting: [u8; THREADS],
    /// Buffers of each ring's messages, until they are freed.
    named: [[u8; MESSAGES]; RINGS],
    /// How often each thread's process holds each slot.
    pub held: [[u8; 8]; THREADS],
    /// Slots that are free.
    pub free: u8,
    /// Threads whose process lives, and readers that may claim.
    pub alive: u8,
    pub joined: u8,
    /// Readers that have said goodbye, bit by reader.
    pub gone: u8,
    pub deaths: u8,
    /// How often the writer looked for a buffer, or a liar's message was taken.
    pub finds: u8,
    wrong: u8,
}

const WRONG: [&str; 8] = [
    "",
    "a buffer is reused while it is held",
    "accepts another buffer than was named",
    "a buffer is freed twice",
    "a reliable reader missed a message",
    "an honest reader is reported",
    "an honest reference was refused",
    "a line's buffer is free",
];

#[derive(Clone, Copy)]
pub struct Step {
    thread: u8,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Begins(Op),
    Goes(Access),
    Reaches(Word, u64),
    Dies(u8),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = ["writer", "0", "1", "0's other"][usize::from(self.thread)];
        match self.what {
            What::Begins(op) => write!(f, "{who}: {op:?}"),
            What::Goes(Access::Load(word)) => write!(f, "{who} reads {}", Named(word)),
            What::Goes(access) => write!(f, "{who}: {access:?}"),
            What::Reaches(word, value) => write!(f, "({who}'s {} = {value:x})", Named(word)),
            What::Dies(lost) => write!(f, "{who} dies, {lost} stores never made"),
        }
    }
}

pub struct World {
    pub book: Book<Threads>,
    values: Vec<u64>,
    numbers: HashMap<u64, Value>,
    /// States from which all becomes free again.
    pub settled: Seen,
    pub counts: Counts,
}

/// How often what is modelled happens: a model in which it does not shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub taken: u64,
    pub missed: u64,
    pub freed: u64,
    pub refused: u64,
}

impl World {
    pub fn new(config: Config) -> Self {
        let mut world = Self {
            book: Book::new(Threads { config }),
            values: Vec::new(),
            numbers: HashMap::new(),
            settled: Seen::default(),
            counts: Counts::default(),
        };
        world.value(0);
        world
    }

    pub fn config(&self) -> &Config {
        &self.book.code.config
    }

    fn value(&mut self, value: u64) -> Value {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = Value::try_from(self.values.len()).expect("few");
        self.values.push(value);
        self.numbers.insert(value, number);
        number
    }

    pub fn writer(&self, state: &State) -> &writer::State {
        match self.book.private(state.private[WRITER]) {
            Private::Writer(writer) => writer,
            _ => unreachable!("the writer's"),
        }
    }

    fn reader(&self, state: &State, thread: usize) -> &reader::State {
        match self.book.private(state.private[thread]) {
            Private::Reader(reader) => reader,
            _ => unreachable!("a reader's"),
        }
    }

    pub fn is_liar(&self, thread: usize) -> bool {
        thread > 0 && thread < HELPER && self.config().liar & 1 << (thread - 1) != 0
    }

    fn blame(&self, state: &mut State, why: &'static str) {
        if state.wrong == 0 {
            let at = WRONG.iter().position(|&wrong| wrong == why);
            state.wrong = u8::try_from(at.expect("in the list")).expect("few");
        }
    }

    /// Loads a word as the thread sees it.
    pub fn load(&self, state: &State, thread: usize, word: Word) -> u64 {
        let waiting = usize::from(state.waiting[thread]);
        let own = state.words[thread][..waiting]
            .iter()
            .rposition(|&w| w == word);
        let value = match own {
            Some(at) => state.values[thread][at],
            None => state.memory[usize::from(word)],
        };
        self.values[usize::from(value)]
    }

    /// The oldest store of a thread reaches memory.
    pub fn commit(&self, state: &mut State, thread: usize) -> (Word, u64) {
        let (word, value) = (state.words[thread][0], state.values[thread][0]);
        state.words[thread].rotate_left(1);
        state.values[thread].rotate_left(1);
        state.waiting[thread] -= 1;
        let left = usize::from(state.waiting[thread]);
        (state.words[thread][left], state.values[thread][left]) = (0, 0);
        state.memory[usize::from(word)] = value;
        // The three words of a line are one step, unless the lines themselves are modelled: a reader that finds its sequence
        // in the last word, which it reads last, has read all of an earlier line.
        let is_line = |word| words::desk_of(word).is_none() && usize::from(word) < words::DESKS;
        let next = state.words[thread][0];
        if !self.config().lines
            && state.waiting[thread] > 0
            && is_line(word)
            && is_line(next)
            && word != next
            && words::same_line(word, next)
        {
            return self.commit(state, thread);
        }
        (word, self.values[usize::from(value)])
    }

    /// Whether no other thread writes the word, and none does that the writer asks about.
    fn is_private(&self, thread: usize, word: Word) -> bool {
        let config = self.config();
        let Some(desk) = words::desk_of(word) else {
            return match thread {
                WRITER => !config.forwards,
                _ => !config.lines && words::is_rest_of_line(word),
            };
        };
        let part = words::part_of(word);
        if thread == WRITER {
            let has_table = config.table > 0 || config.leaves;
            let is_used = part == Part::Win || part == Part::Kept && config.kept > 0 || has_table;
            return !is_used && !self.is_liar(desk + 1);
        }
        thread == desk + 1 && !(config.helper && part == Part::Kept)
    }

    /// Goes on with what concerns the thread alone: stores that find room, a fence that has nothing to wait for, loads of
    /// words that no other thread writes, and the end of an operation.
    pub fn run(&mut self, state: &mut State, thread: usize) {
        let room = match thread {
            WRITER => self.config().writers_buffer,
            _ => self.config().buffer,
        };
        while state.place[thread] != 0 {
            let waiting = state.waiting[thread];
            let place = state.place[thread];
            let result = match self.book.next(place) {
                Next::Access(Access::Store(word, value)) if waiting < room => {
                    let at = usize::from(waiting);
                    state.words[thread][at] = word;
                    state.values[thread][at] = self.value(value);
                    state.waiting[thread] += 1;
                    0
                }
                Next::Access(Access::Fence) if waiting == 0 => 0,
                Next::Access(Access::Load(word)) if self.is_private(thread, word) => {
                    self.load(state, thread, word)
                }
                Next::Access(_) => return,
                Next::Ended(private, said) => {
                    let (_, op) = self.book.op(place);
                    state.place[thread] = 0;
                    state.private[thread] = private;
                    self.ends(state, thread, op, said);
                    return;
                }
            };
            state.place[thread] = self.book.after(place, result);
        }
    }

    fn perform(&mut self, state: &mut State, thread: usize, access: Access, result: u64) {
        if let Access::Add(word, by) = access {
            let sum = u32::try_from(result).expect("32 bits").wrapping_add(by);
            state.memory[usize::from(word)] = self.value(sum.into());
        }
        state.place[thread] = self.book.after(state.place[thread], result);
        self.run(state, thread);
    }

    /// Values that a liar's words may have.
    fn lies(&self, state: &State, thread: usize, word: Word) -> Option<Vec<u64>> {
        let config = self.config();
        if thread == HELPER && word == words::FORWARDED && self.is_liar(1) {
            // Any id that fits a slot now, or did.
            let ids = (0..config.slots).flat_map(|slot| {
                let now =
                    self.values[usize::from(state.memory[usize::from(words::generation(slot))])];
                let ids = [now & !1, (now & !1).wrapping_sub(2)];
                ids.into_iter()
                    .filter(|&generation| generation != 0 && generation < 1 << 32)
                    .map(move |generation| generation << 8 | (slot as u64 + 1))
            });
            return Some(std::iter::once(0).chain(ids).collect());
        }
        let desk = words::desk_of(word)?;
        if thread != WRITER || !self.is_liar(desk + 1) || state.alive & 2 << desk == 0 {
            return None;
        }
        Some(match words::part_of(word) {
            Part::Win => {
                let win = |low, entries, len| Win { low, entries, len }.pack();
                let first = config.first;
                let mut all = vec![0, win(first, u8::MAX, 0), win(0, 0, u8::MAX)];
                all.extend((0..config.messages).map(|n| win(sequence(first + n) - 1, 1, 1)));
                all.extend((0..config.messages).map(|n| win(sequence(first + n) - 1, 0, u8::MAX)));
                all
            }
            Part::Kept => (0..=config.slots as u64).chain([u32::MAX.into()]).collect(),
            Part::More | Part::Table => vec![0, u32::MAX.into()],
        })
    }

    /// Begins an operation: what it means for what is held.
    fn begins(&mut self, state: &mut State, thread: usize, op: Op) {
        let process = if thread == HELPER && !self.config().forwards {
            1
        } else {
            thread
        };
        let mut let_go = 0;
        match op {
            Op::Publish(rings, mask) => {
                for ring in slots(rings) {
                    let published = self.published(state, ring);
                    state.named[ring][published] = mask;
                }
                state.free &= !mask;
            }
            Op::Find(_) => state.finds += 1,
            Op::Take if self.is_liar(1) => state.finds += 1,
            Op::Finish if !self.config().is(Without::DroppingFirst) => {
                let_go = self.reader(state, thread).window[0];
            }
            // What it has taken and not kept, it has no more.
            Op::GoodBye => {
                let windows = self.reader(state, thread).window.clone();
                windows.iter().for_each(|mask| let_go |= mask);
            }
            Op::LetGo(Hold::Table(slot)) => let_go = 1 << slot,
            Op::LetGo(Hold::Entry(entry)) | Op::Forward(entry) => {
                let kept = self.reader(state, thread).kept[usize::from(entry)];
                let_go = 1 << (kept - 1);
            }
            Op::Help => {
                let_go = 1 << (self.load(state, thread, words::HANDED) >> 8);
            }
            Op::Release(slot) => let_go = 1 << slot,
            _ => {}
        }
        for slot in slots(let_go) {
            state.held[process][slot] -= 1;
        }
    }

    /// How many messages were published in a ring.
    fn published(&self, state: &State, ring: usize) -> usize {
        let tail = self.writer(state).rings[ring].tail();
        usize::try_from(tail - self.config().first).expect("few")
    }

    fn ends(&mut self, state: &mut State, thread: usize, op: Op, said: Said) {
        match said {
            Said::Nothing | Said::Removed => {}
            Said::Missed => {
                self.counts.missed += 1;
                if self.config().reliable & 1 << (thread - 1) != 0 {
                    self.blame(state, "a reliable reader missed a message");
                }
            }
            Said::Took { position, mask } => {
                self.counts.taken += 1;
                let ring = self.config().readers[thread - 1];
                let at = usize::try_from(position - self.config().first).expect("few");
                if state.named[ring][at] != mask || mask == 0 {
                    self.blame(state, "accepts another buffer than was named");
                }
                for slot in slots(mask) {
                    state.held[thread][slot] += 1;
                }
            }
            Said::Published { freed } | Said::Freed(freed) => self.free(state, freed),
            Said::Exceeded => {
                let Op::Table = op else { unreachable!() };
                if self.config().liar == 0 {
                    self.blame(state, "an honest reader is reported");
                }
            }
            Said::Holds { slot, generation } => {
                self.counts.taken += 1;
                state.held[thread][usize::from(slot)] += 1;
                let word = words::generation(slot.into());
                let now = self.values[usize::from(state.memory[usize::from(word)])];
                if state.free & 1 << slot != 0 || (now | 1) != u64::from(generation) + 1 {
                    self.blame(state, "accepts another buffer than was named");
                }
            }
            Said::Refused => {
                self.counts.refused += 1;
                if self.config().liar == 0 {
                    self.blame(state, "an honest reference was refused");
                }
            }
        }
        match op {
            Op::Join(reader) => {
                state.joined |= 1 << reader;
                self.joins(state, reader.into());
            }
            Op::Remove(reader) => state.joined &= !(1 << reader),
            Op::RemoveEmpty(reader) if matches!(said, Said::Removed) => {
                state.joined &= !(1 << reader);
            }
            Op::GoodBye => state.gone |= 1 << (thread - 1),
            _ => {}
        }
    }

    /// A reader begins where the writer says.
    fn joins(&mut self, state: &mut State, reader: usize) {
        let begins = self.writer(state).begins(self.config(), reader);
        let private = Private::Reader(reader::State::new(self.config(), begins));
        state.private[reader + 1] = self.book.number(private);
    }

    fn free(&mut self, state: &mut State, mask: u8) {
        self.counts.freed += u64::from(mask.count_ones());
        if state.free & mask != 0 {
            self.blame(state, "a buffer is freed twice");
        }
        if self.writer(state).named() & mask != 0 {
            self.blame(state, "a line's buffer is free");
        }
        for slot in slots(mask) {
            if (1..THREADS).any(|t| state.held[t][slot] > 0 && !self.is_liar(t)) {
                self.blame(state, "a buffer is reused while it is held");
            }
        }
        state.free |= mask;
        for named in state.named.iter_mut().flatten() {
            *named &= !mask;
        }
    }

    fn is_alive(&self, state: &State, thread: usize) -> bool {
        state.alive & 1 << thread != 0
    }

    /// Operations that an idle thread may begin.
    fn choices(&self, state: &State, thread: usize, out: &mut Vec<Op>) {
        let config = self.config();
        if thread == WRITER {
            return self.writers_choices(state, out);
        }
        if !self.is_alive(state, thread) || self.is_liar(thread) {
            return;
        }
        if thread == HELPER {
            match self.book.private(state.private[thread]) {
                Private::Receiver(held) => {
                    let lies = self.is_liar(1) && state.finds < config.lies;
                    if lies || !self.is_liar(1) && self.load(state, thread, words::FORWARDED) != 0 {
                        out.push(Op::Take);
                    }
                    let held = (0u8..).zip(held).filter(|(_, n)| **n > 0);
                    out.extend(held.map(|(slot, _)| Op::Release(slot)));
                }
                _ => {
                    if self.load(state, thread, words::HANDED) != 0 {
                        out.push(Op::Help);
                    }
                }
            }
            return;
        }
        if state.joined & 1 << (thread - 1) == 0 {
            return;
        }
        let reader = self.reader(state, thread);
        let is_channel = config.is_channel(config.readers[thread - 1]);
        let has_left = state.gone & 1 << (thread - 1) != 0;
        if config.leaves && !has_left {
            out.push(Op::GoodBye);
        }
        if !has_left
            && reader.window.len() < config.holds
            && !(is_channel && reader.kept[..config.kept].iter().all(|k| *k != 0))
        {
            out.push(Op::Receive);
        }
        let has_given =
            thread == 1 && config.helper && self.load(state, thread, words::HANDED) != 0;
        if !reader.window.is_empty() {
            out.push(Op::Finish);
            let desk = thread - 1;
            let is_free = |entry: &usize| {
                let is_given = config.is(Without::ClearingFirst)
                    && reader.given.map(usize::from) == Some(*entry);
                let word = if is_given {
                    words::HANDED
                } else {
                    words::kept(desk, *entry)
                };
                self.load(state, thread, word) == 0
            };
            let entries = (0..config.kept).filter(is_free).count();
            let table: u8 = reader.table.iter().sum();
            let room = entries + usize::try_from(config.table).expect("few") - usize::from(table);
            if room >= config.pieces as usize && config.keepers & 1 << (thread - 1) != 0 {
                out.push(Op::Keep);
            }
        } else if config.rests
            && !has_left
            && Win::unpack(self.load(state, thread, words::win(thread - 1))).len != 0
        {
            out.push(Op::Rest);
        }
        for (entry, _) in (0u8..).zip(reader.kept).filter(|(_, kept)| *kept != 0) {
            out.push(Op::LetGo(Hold::Entry(entry)));
            if config.helper && thread == 1 && !has_given {
                out.push(Op::HandOver(entry));
            }
            if config.forwards && thread == 1 && self.load(state, thread, words::FORWARDED) == 0 {
                out.push(Op::Forward(entry));
            }
        }
        for (slot, _) in (0u32..).zip(reader.table).filter(|(_, n)| *n != 0) {
            out.push(Op::LetGo(Hold::Table(slot)));
        }
        if config.is(Without::FixedEntries) && reader.kept[0] == 0 && reader.kept[1] != 0 {
            out.push(Op::Move);
        }
    }

    /// A queue leaves when its sink is dead, or when its source is and the sink has taken all.
    pub fn leaves(&self, state: &State) -> Option<bool> {
        let left = self.writer(state).left;
        let rests = |thread: usize| state.place[thread] == 0 && state.waiting[thread] == 0;
        if !self.config().forwards || !rests(HELPER) {
            return None;
        }
        let is_dead = |thread| !self.is_alive(state, thread);
        let forwarded = state.memory[usize::from(words::FORWARDED)];
        if is_dead(HELPER) {
            return (left != (true, true)).then_some(true);
        }
        (is_dead(1) && rests(1) && forwarded == 0 && !left.0).then_some(false)
    }

    fn writers_choices(&self, state: &State, out: &mut Vec<Op>) {
        let config = self.config();
        let writer = self.writer(state);
        let mut publish = |mask: u8| {
            for rings in 1..1u8 << config.rings() {
                let is_offered = match rings {
                    3 => config.both,
                    // With channels, a buffer is in the second ring alone once its line in the first one has ended.
                    2 => !config.both || config.channels == 0,
                    _ => !config.both,
                };
                if !is_offered {
                    continue;
                }
                let may = slots(rings).all(|ring| {
                    let published = self.published(state, ring) as u64;
                    let tail = writer.rings[ring].tail();
                    let floor = writer.reliable[ring].floor(tail);
                    let is_full = tail - writer.rings[ring].first() >= D as u64;
                    published < config.messages
                        && tail - floor < D as u64
                        && !(config.is_channel(ring) && is_full)
                });
                if may {
                    out.push(Op::Publish(rings, mask));
                }
            }
        };
        // Free slots are alike.
        let free: Vec<_> = slots(state.free).take(config.pieces as usize).collect();
        if free.len() == config.pieces as usize {
            publish(free.iter().fold(0, |mask, slot| mask | 1 << slot));
        }
        if writer.found != 0 {
            publish(writer.found);
        }
        if config.finds && state.finds < 1 && writer.found == 0 {
            let all = (0..config.slots).filter(|slot| state.free & 1 << slot == 0);
            out.extend(all.map(|slot| Op::Find(u8::try_from(slot).expect("few"))));
        }
        if config.withdraws && writer.rings[0].first() < writer.rings[0].tail() {
            out.push(Op::Withdraw);
        }
        for (ring, reliable) in (0u8..).zip(&writer.reliable) {
            let tail = writer.rings[usize::from(ring)].tail();
            if tail - reliable.floor(tail) >= D as u64 {
                out.push(Op::Ask(ring));
            }
        }
        if writer.rounds.is_under_way() {
            out.extend([Op::Look, Op::Table, Op::End]);
        } else {
            let ended = (0u32..)
                .take(config.slots)
                .any(|slot| writer.rounds.is_named(slot) && writer.named() & 1 << slot == 0);
            let waits = (0..config.rings()).any(|ring| {
                config.is_channel(ring) && writer.rings[ring].first() < writer.rings[ring].tail()
            });
            // One of a buffer's lines may have ended before the others.
            let has_ended =
                config.both && writer.rings.iter().any(|ring| ring.first() > config.first);
            if ended
                || has_ended
                || waits
                || writer.named().count_ones() > 0 && config.is(Without::OverwritingFirst)
            {
                out.push(Op::Begin);
            }
        }
        if writer.judged != 0 {
            out.push(Op::Judge);
        }
        out.extend(self.leaves(state).map(Op::Leave));
        for reader in 0..config.readers.len() {
            let thread = reader + 1;
            let number = u8::try_from(reader).expect("few");
            let is_asked = writer.asked & 1 << reader != 0;
            let is_gone = !self.is_alive(state, thread)
                && state.waiting[thread] == 0
                && (thread != 1 || config.forwards || state.waiting[HELPER] == 0);
            let has_left = state.gone & 1 << reader != 0;
            if is_asked && has_left && state.waiting[thread] == 0 {
                out.push(Op::RemoveEmpty(number));
            }
            if !is_asked && !has_left && self.is_alive(state, thread) {
                if config.is(Without::GoAhead) && state.joined & 1 << reader == 0 {
                    continue;
                }
                out.push(Op::Join(number));
            }
            if is_asked && is_gone && !config.is(Without::Removal) {
                out.push(Op::Remove(number));
            }
            if is_asked && !is_gone && config.is(Without::DeathFirst) && state.deaths < 1 {
                out.push(Op::Remove(number));
            }
        }
    }

    fn begin(&mut self, state: &State, thread: usize, op: Op, out: &mut Vec<(Step, State)>) {
        let mut next = *state;
        self.starts(&mut next, thread, op);
        let number = u8::try_from(thread).expect("few");
        if next.place[thread] != 0
            && matches!(
                self.book.next(next.place[thread]),
                Next::Access(Access::Store(..))
            )
        {
            // It may as well begin when there is room for its stores.
            assert!(state.waiting[thread] > 0, "there is never room for {op:?}");
            return;
        }
        let step = Step {
            thread: number,
            what: What::Begins(op),
        };
        // The first load comes with it.
        if !self.go_on(&next, thread, Some(step), out) {
            out.push((step, next));
        }
    }

    pub fn starts(&mut self, state: &mut State, thread: usize, op: Op) {
        self.begins(state, thread, op);
        let number = u8::try_from(thread).expect("few");
        state.place[thread] = self.book.start((number, op), state.private[thread]);
        self.run(state, thread);
    }

    /// One access of a thread that finds what is in memory. False if it does nothing.
    pub fn goes_alone(&mut self, state: &mut State, thread: usize) -> bool {
        if state.place[thread] == 0 {
            return false;
        }
        let Next::Access(access) = self.book.next(state.place[thread]) else {
            return false;
        };
        let result = match access {
            Access::Load(word) | Access::Add(word, _) => self.load(state, thread, word),
            _ => 0,
        };
        self.perform(state, thread, access, result);
        true
    }

    /// False while the thread has to wait, or does nothing.
    fn go_on(
        &mut self,
        state: &State,
        thread: usize,
        step: Option<Step>,
        out: &mut Vec<(Step, State)>,
    ) -> bool {
        if state.place[thread] == 0 {
            return false;
        }
        let Next::Access(access) = self.book.next(state.place[thread]) else {
            return false;
        };
        let step = step.unwrap_or_else(|| Step {
            thread: u8::try_from(thread).expect("few"),
            what: What::Goes(access),
        });
        let word = match access {
            Access::Load(word) => word,
            Access::Add(word, _) if state.waiting[thread] == 0 => word,
            _ => return false,
        };
        let result = self.load(state, thread, word);
        let lies = self.lies(state, thread, word);
        let mut goes = |result| {
            let mut next = *state;
            self.perform(&mut next, thread, access, result);
            out.push((step, next));
        };
        match lies {
            Some(results) => results.into_iter().for_each(goes),
            None => goes(result),
        }
        true
    }

    /// A process ends. Stores that it has not made are never made.
    fn deaths(&mut self, state: &State, out: &mut Vec<(Step, State)>) {
        if state.deaths >= self.config().deaths || self.config().is(Without::DeathFirst) {
            return;
        }
        for thread in 1..THREADS {
            let is_helper = thread == HELPER && !self.config().forwards;
            if !self.is_alive(state, thread) || is_helper || self.is_liar(thread) {
                continue;
            }
            for lost in 0..=state.waiting[thread] {
                let mut next = *state;
                let with_helper = thread == 1 && !self.config().forwards;
                let helper = with_helper.then_some(HELPER);
                for thread in std::iter::once(thread).chain(helper) {
                    next.alive &= !(1 << thread);
                    next.place[thread] = 0;
                    next.held[thread] = [0; 8];
                    next.private[thread] = self.book.number(Private::Nothing);
                }
                for _ in 0..lost {
                    next.waiting[thread] -= 1;
                    let at = usize::from(next.waiting[thread]);
                    (next.words[thread][at], next.values[thread][at]) = (0, 0);
                }
                next.deaths += 1;
                let number = u8::try_from(thread).expect("few");
                let what = What::Dies(lost);
                out.push((
                    Step {
                        thread: number,
                        what,
                    },
                    next,
                ));
            }
        }
    }
}

impl System for World {
    type State = State;
    type Step = Step;

    fn initial(&mut self) -> State {
        let config = self.config().clone();
        let number = self.book.number(Private::Nothing);
        let mut state = State {
            memory: [0; WORDS],
            words: [[0; DEPTH]; THREADS],
            values: [[0; DEPTH]; THREADS],
            waiting: [0; THREADS],
            place: [0; THREADS],
            private: [number; THREADS],
            named: [[0; MESSAGES]; RINGS],
            held: [[0; 8]; THREADS],
            free: (1 << config.slots) - 1,
            alive: (1 << (config.readers.len() + 1)) - 1,
            joined: 0,
            gone: 0,
            deaths: 0,
            finds: 0,
            wrong: 0,
        };
        let writer = writer::State::new(&config);
        state.private[WRITER] = self.book.number(Private::Writer(writer.into()));
        for reader in 0..config.readers.len() {
            if config.late & 1 << reader == 0 || config.is(Without::GoAhead) {
                state.joined |= 1 << reader;
                self.joins(&mut state, reader);
            }
        }
        if config.helper || config.forwards {
            state.alive |= 1 << HELPER;
        }
        if config.forwards {
            state.private[HELPER] = self.book.number(Private::Receiver([0; SLOTS]));
            for slot in 0..config.slots {
                state.memory[usize::from(words::generation(slot))] = self.value(1);
            }
        }
        // Lines of earlier positions lie in the rings.
        for ring in 0..config.rings() {
            for line in 0..D as u64 {
                let earlier = sequence((config.first + line).wrapping_sub(D as u64));
                let number = self.value(if config.first == 0 { 0 } else { earlier });
                for word in [
                    words::first(ring, line + config.first),
                    words::last(ring, line + config.first),
                ] {
                    state.memory[usize::from(word)] = number;
                }
            }
        }
        state
    }

    fn successors(&mut self, state: &State, out: &mut Vec<(Step, State)>) {
        let mut ops = Vec::new();
        for thread in 0..THREADS {
            let number = u8::try_from(thread).expect("few");
            let step = |what| Step {
                thread: number,
                what,
            };
            if state.waiting[thread] > 0 {
                let mut next = *state;
                let (word, value) = self.commit(&mut next, thread);
                self.run(&mut next, thread);
                out.push((step(What::Reaches(word, value)), next));
            }
            if state.place[thread] == 0 {
                ops.clear();
                self.choices(state, thread, &mut ops);
                for &op in &ops {
                    self.begin(state, thread, op, out);
                }
            } else {
                self.go_on(state, thread, None, out);
            }
        }
        self.deaths(state, out);
        out.retain(|(_, next)| next != state);
    }

    fn wrong(&mut self, state: &State) -> Option<&'static str> {
        let at = usize::from(state.wrong);
        if at != 0 {
            return Some(WRONG[at]);
        }
        let is_checked = [Without::Nothing, Without::Removal, Without::Clearing];
        let is_checked = is_checked.contains(&self.config().without);
        (is_checked && self.leaks(state)).then_some("a buffer leaks")
    }
}
