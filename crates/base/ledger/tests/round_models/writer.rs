//! The writer: the library's functions, and the broken orders of them.

use tranship_ledger::generation;
use tranship_ledger::order::{PASS_ORDER, Phase};
use tranship_ledger::rounds::{Desks, Outcome, Pace, Published, Reliable, Rounds};
use tranship_ring::broadcast::{Limits, Message, UNBEGUN, Win};

use crate::code::{Op, Said, slots};
use crate::config::{Config, D, KEPT, SEQUENCE, Without};
use crate::replay::{Run, Script, Stop, Word};
use crate::words::{self, View};

/// Knowledge of the writer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub rings: Vec<Published>,
    pub reliable: Vec<Reliable>,
    pub rounds: Rounds,
    /// Rounds that decide nothing, for broken variants.
    other: Rounds,
    /// Buffer that each line named last.
    pub lines: [[u8; D]; 2],
    /// Readers that are asked, bit by reader.
    pub asked: u8,
    /// Slots of which the writer has a handle, found by an id.
    pub found: u8,
    /// Whether the forwarding queue, and the references of the domain without a desk, have left.
    pub left: (bool, bool),
    /// Slots that no desk covers, and that the counters have still to judge.
    pub judged: u8,
    /// Broken: the counters' verdict from before the round.
    dead: u8,
    /// Broken: free as soon as their line is overwritten.
    early: u8,
    /// Broken: what was read of the desks.
    remembered: Vec<(Word, u64)>,
}

impl State {
    pub fn new(config: &Config) -> Self {
        let slots = u32::try_from(config.slots).expect("few");
        let lines = u32::try_from(D).expect("few");
        let pace = Pace {
            desks: 1,
            table: 1,
            sweep: 1,
        };
        let mut rounds = Rounds::new(slots, pace);
        let rings = (0..config.rings()).map(|_| {
            let ring = rounds.add_ring(lines);
            Published::new(lines, config.first, ring)
        });
        let rings: Vec<_> = rings.collect();
        let mut other = Rounds::new(slots, pace);
        for _ in &rings {
            other.add_ring(lines);
        }
        let mut state = Self {
            reliable: rings.iter().map(|_| Reliable::new(lines)).collect(),
            rings,
            rounds,
            other,
            lines: [[0; D]; 2],
            asked: 0,
            found: 0,
            left: (false, false),
            judged: 0,
            dead: 0,
            early: 0,
            remembered: Vec::new(),
        };
        for reader in 0..config.readers.len() {
            if config.late & 1 << reader == 0 {
                state.join(config, reader);
            }
        }
        state
    }

    /// Where a reader begins that joins now.
    pub fn begins(&self, config: &Config, reader: usize) -> u64 {
        let tail = self.rings[config.readers[reader]].tail();
        tail.saturating_sub(1).max(config.first)
    }

    fn join(&mut self, config: &Config, reader: usize) {
        let ring = config.readers[reader];
        self.rounds.join(reader, ring, limits(config));
        self.asked |= 1 << reader;
        if config.reliable & 1 << reader != 0 {
            let begins = self.begins(config, reader);
            self.reliable[ring].join(reader, begins);
        }
    }

    fn remove(&mut self, config: &Config, reader: usize) {
        let ring = config.readers[reader];
        self.rounds.leave(reader);
        self.reliable[ring].leave(reader);
        self.asked &= !(1 << reader);
        if config.is_channel(ring) {
            let tail = self.rings[ring].tail();
            self.rings[ring].end_passed(&mut self.rounds, tail);
        }
    }

    /// Slots that live lines name.
    pub fn named(&self) -> u8 {
        let rings = self.rings.iter().zip(&self.lines);
        let each = rings.flat_map(|(ring, lines)| {
            (ring.first()..ring.tail()).map(|position| lines[index(position)])
        });
        each.fold(0, |all, mask| all | mask)
    }
}

pub fn limits(config: &Config) -> Limits {
    Limits {
        window: u8::try_from(config.window).expect("small"),
        entries: u8::try_from(config.kept).expect("small"),
        table: config.table,
        pieces: config.pieces,
    }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("64 bits") % D
}

/// Verdict of a round.
#[derive(Default)]
struct Told {
    free: u8,
    exceeded: bool,
    seen: Option<(usize, u64)>,
}

impl Outcome for Told {
    fn free(&mut self, slot: u32) {
        self.free |= 1 << slot;
    }
    fn seen(&mut self, desk: usize, low: u64) {
        self.seen = Some((desk, low));
    }
    fn exceeded(&mut self, _: usize) {
        self.exceeded = true;
    }
}

/// The desks as the writer reads them.
struct Asked<'a> {
    script: &'a Script<'a>,
    config: &'a Config,
    /// Words of which the values are known. Broken but for `Without::Nothing`.
    known: &'a [(Word, u64)],
}

impl Asked<'_> {
    fn load(&self, word: Word) -> Run<u64> {
        match self.known.iter().find(|(known, _)| *known == word) {
            Some((_, value)) => Ok(*value),
            None => self.script.load(word),
        }
    }

    fn load_small(&self, word: Word) -> Run<u32> {
        Ok(u32::try_from(self.load(word)?).expect("32 bits"))
    }
}

impl Desks for Asked<'_> {
    type Stop = Stop;

    fn win(&self, desk: usize) -> Run<u64> {
        if self.config.is(Without::EveryDesk) && desk == 0 {
            return Ok(0);
        }
        let word = self.load(words::win(desk))?;
        if word == UNBEGUN && self.config.is(Without::Unbegun) {
            // A window that is not known for this: it names an entry, and that is free.
            let (low, len) = (0, 0);
            return Ok(Win {
                low,
                entries: 1,
                len,
            }
            .pack());
        }
        if self.config.is(Without::Modulo) {
            let win = Win::unpack(word);
            if win.low < self.config.first & SEQUENCE {
                return Ok(Win { len: 0, ..win }.pack());
            }
        }
        Ok(word)
    }
    fn kept(&self, desk: usize, entry: u8) -> Run<u32> {
        if self.config.is(Without::LookAtKept) {
            return Ok(0);
        }
        self.load_small(words::kept(desk, entry.into()))
    }
    fn more(&self, desk: usize) -> Run<u32> {
        if self.config.is(Without::Table) {
            return Ok(0);
        }
        self.load_small(words::more(desk))
    }
    fn table(&self, desk: usize, slot: u32) -> Run<u32> {
        self.load_small(words::table(desk, slot as usize))
    }
    fn fence_full(&self) -> Run<()> {
        match self.config.without {
            Without::WritersFence => Ok(()),
            _ => self.script.fence(),
        }
    }
}

pub fn run(op: Op, state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    match op {
        Op::Publish(rings, mask) => publish(state, config, script, rings, mask),
        Op::Withdraw => withdraw(state, config, script),
        Op::Begin => begin(state, config, script),
        Op::Look => look(state, config, script),
        Op::Table => table(state, config, script),
        Op::End => end(state, config, script),
        Op::Judge => judge(state, config, script),
        Op::Ask(ring) => {
            let ring = usize::from(ring);
            let tail = state.rings[ring].tail();
            state.reliable[ring].room(&desks(config, script), tail)?;
            Ok(Said::Nothing)
        }
        Op::Join(reader) => {
            state.join(config, reader.into());
            Ok(Said::Nothing)
        }
        Op::Remove(reader) => {
            state.remove(config, reader.into());
            Ok(Said::Nothing)
        }
        Op::RemoveEmpty(reader) => {
            if !is_empty(config, script, reader.into())? {
                return Ok(Said::Nothing);
            }
            state.remove(config, reader.into());
            Ok(Said::Removed)
        }
        Op::Find(slot) => {
            state.found |= 1 << slot;
            Ok(Said::Nothing)
        }
        Op::Leave(both) => {
            state.left = (true, both);
            Ok(Said::Nothing)
        }
        Op::Forget => {
            let found = slots(std::mem::take(&mut state.found));
            // While a line names it, or did, a round says when it is free.
            let alone = found.filter(|&s| !state.rounds.is_named(u32::try_from(s).expect("few")));
            Ok(Said::Freed(alone.fold(0, |mask, slot| mask | 1 << slot)))
        }
        _ => unreachable!("the writer's"),
    }
}

/// Whether a desk shows nothing, in the order of `View::is_empty` in `crates/core/readers`: `more` comes after `kept`.
fn is_empty(config: &Config, script: &Script<'_>, reader: usize) -> Run<bool> {
    let desks = desks(config, script);
    if Win::unpack(desks.win(reader)?).len != 0 {
        return Ok(false);
    }
    for entry in 0..config.kept {
        if desks.kept(reader, u8::try_from(entry).expect("few"))? != 0 {
            return Ok(false);
        }
    }
    if config.is(Without::EmptyTable) || desks.more(reader)? == 0 {
        return Ok(true);
    }
    for slot in 0..config.slots {
        if desks.table(reader, u32::try_from(slot).expect("few"))? != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn desks<'a>(config: &'a Config, script: &'a Script<'a>) -> Asked<'a> {
    Asked {
        script,
        config,
        known: &[],
    }
}

fn publish(
    state: &mut State,
    config: &Config,
    script: &Script<'_>,
    rings: u8,
    mask: u8,
) -> Run<Said> {
    let is_found = state.found & mask != 0;
    if config.forwards {
        for slot in slots(mask) {
            let word = words::generation(slot);
            let now = u32::try_from(script.load(word)?).expect("32 bits");
            if !generation::is_published(now) {
                script.store(word, generation::published(now).into())?;
            }
        }
    }
    let mut content = [0; 6];
    content[0] = mask.into();
    let line = Message { kind: 0, content };
    let mut freed = 0;
    for ring in slots(rings) {
        let view = View::new(script, config, ring, 0);
        let names: Vec<u32> = slots(mask)
            .map(|s| u32::try_from(s).expect("few"))
            .collect();
        let names = match is_found && config.is(Without::CountingFound) {
            true => &[][..],
            false => &names,
        };
        let rounds = match config.is(Without::LastLine) && ring == 0 && rings == 3 {
            true => &mut state.other,
            false => &mut state.rounds,
        };
        let published = &mut state.rings[ring];
        let position = match names {
            [slot] => published.publish(&view, rounds, line, *slot)?,
            _ => published.publish_many(&view, rounds, line, names)?,
        };
        let place = &mut state.lines[ring][index(position)];
        freed |= std::mem::replace(place, mask) & state.early;
    }
    state.early &= !freed;
    state.found &= !mask;
    Ok(Said::Published { freed })
}

fn withdraw(state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    let view = View::new(script, config, 0, 0);
    let ring = &mut state.rings[0];
    let mask = state.lines[0][index(ring.first())];
    let floor = match config.is(Without::ReliableFirst) {
        true => ring.tail(),
        false => state.reliable[0].floor(ring.tail()),
    };
    let is_free = config.is(Without::LookAfterWithdrawing);
    let rounds = match is_free {
        true => &mut state.other,
        false => &mut state.rounds,
    };
    let withdrawn = ring.withdraw(&view, rounds, floor)?;
    Ok(match is_free && withdrawn {
        true => Said::Freed(mask),
        false => Said::Nothing,
    })
}

fn begin(state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    let desks = desks(config, script);
    for (reader, &ring) in config.readers.iter().enumerate() {
        if config.is_channel(ring) && state.asked & 1 << reader != 0 {
            let published = &mut state.rings[ring];
            let low = match config.is(Without::TakenFirst) {
                true => published.tail().max(config.first + 1) - 1,
                false => Win::unpack(desks.win(reader)?).low,
            };
            published.end_passed(&mut state.rounds, low);
        }
    }
    if config.is(Without::OverwritingFirst) {
        let ring = &mut state.rings[0];
        let tail = ring.tail();
        ring.end_passed(&mut state.rounds, tail);
    }
    if config.is(Without::DesksFirst) {
        for slot in 0..config.slots {
            if pass(state, script, slot)? {
                state.dead |= 1 << slot;
            }
        }
    }
    state.remembered.clear();
    state.rounds.begin(&desks)?;
    Ok(Said::Nothing)
}

fn look(state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    let mut known = Vec::new();
    if config.is(Without::WindowFirst) || config.is(Without::FixedBatch) {
        // Both look at every desk in one step.
        for desk in 0..config.readers.len() {
            for entry in 0..config.kept.min(KEPT) {
                let word = words::kept(desk, entry);
                known.push((word, script.load(word)?));
            }
            if config.is(Without::FixedBatch) {
                let word = words::win(desk);
                known.push((word, script.load(word)?));
            }
        }
    }
    let asked = Asked {
        script,
        config,
        known: &known,
    };
    let mut told = Told::default();
    state.rounds.look(&asked, &mut told)?;
    if config.is(Without::FixedBatch) && state.remembered.is_empty() {
        state.remembered = known;
    }
    if let Some((desk, low)) = told.seen {
        let ring = config.readers[desk];
        let tail = state.rings[ring].tail();
        state.reliable[ring].seen(desk, low, tail);
    }
    Ok(Said::Nothing)
}

/// A word of a table.
fn table(state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    let mut told = Told::default();
    state
        .rounds
        .look_at_table(&desks(config, script), &mut told)?;
    Ok(match told.exceeded {
        true => Said::Exceeded,
        false => Said::Nothing,
    })
}

/// The rest of a round, if every desk was asked.
fn end(state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    let mut told = Told::default();
    sweep(&mut state.rounds, &mut told);
    // The writer's own handles are not the rounds'.
    told.free &= !state.found;
    if config.is(Without::FixedBatch) && !state.rounds.is_under_way() {
        let known = std::mem::take(&mut state.remembered);
        let asked = Asked {
            script,
            config,
            known: &known,
        };
        state.rounds.begin(&asked)?;
        for _ in 0..config.readers.len() {
            state.rounds.look(&asked, &mut told)?;
        }
        sweep(&mut state.rounds, &mut told);
    }
    if config.is(Without::OverwritingFirst) {
        let named = state.lines[0].iter().fold(0, |all, mask| all | mask);
        state.early |= told.free & named;
        return Ok(Said::Freed(told.free & !named));
    }
    if config.forwards && !config.is(Without::Passes) {
        state.judged |= told.free;
        return Ok(Said::Nothing);
    }
    Ok(Said::Freed(told.free))
}

fn sweep(rounds: &mut Rounds, told: &mut Told) {
    while rounds.is_under_way() {
        let before = rounds.clone();
        rounds.sweep(told);
        if before == *rounds {
            // Desks are still to be asked.
            break;
        }
    }
}

/// One pass over a slot's counters. True if it is dead.
fn pass(state: &State, script: &Script<'_>, slot: usize) -> Run<bool> {
    let (mut sent, mut rcvd, mut refs) = (0, 0, 0);
    for phase in PASS_ORDER {
        match phase {
            Phase::Received if !state.left.0 => rcvd = script.load(words::rcvd(slot))?,
            Phase::References if !state.left.1 => refs = script.load(words::refs(slot))?,
            Phase::Sent if !state.left.0 => sent = script.load(words::sent(slot))?,
            Phase::Received | Phase::References | Phase::Sent => {}
            Phase::Own => unreachable!("not in this pass"),
        }
    }
    Ok(refs == 0 && sent == rcvd)
}

/// What no desk covers is judged by its counters, in the order of `tranship_ledger::order::COLLECTION`.
fn judge(state: &mut State, config: &Config, script: &Script<'_>) -> Run<Said> {
    let mut freed = 0;
    for slot in slots(state.judged) {
        let is_dead = match config.is(Without::DesksFirst) {
            true => state.dead & 1 << slot != 0,
            false => pass(state, script, slot)?,
        };
        if !is_dead {
            continue;
        }
        let word = words::generation(slot);
        let even = u32::try_from(script.load(word)?).expect("32 bits");
        if !config.is(Without::Odd) {
            script.store(word, generation::next_free(even).into())?;
        }
        if !config.is(Without::OddFence) {
            script.fence()?;
        }
        let stays = config.is(Without::SecondPass) || config.is(Without::DesksFirst);
        if stays || pass(state, script, slot)? {
            script.store(word, generation::next_free(even).into())?;
            freed |= 1 << slot;
        } else {
            script.store(word, even.into())?;
        }
    }
    state.judged &= !freed;
    state.dead = 0;
    Ok(Said::Freed(freed))
}
