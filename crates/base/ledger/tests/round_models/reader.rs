//! A reader: the library's functions, and the broken orders of them.

use tranship_ring::broadcast::{Hold, Reader, ReaderMemory, Received, let_go};

use crate::code::{Said, slots};
use crate::config::{Config, KEPT, SLOTS, Without};
use crate::replay::{Run, Script};
use crate::words::{self, View};
use crate::writer::limits;

/// Knowledge of a reader's process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub reader: Reader,
    /// The slots of each message that is taken and not finished.
    pub window: Vec<u8>,
    /// One more than the slot that each entry of `kept` holds.
    pub kept: [u8; KEPT],
    pub table: [u8; SLOTS],
    /// The entry that the other thread was given.
    pub given: Option<u8>,
}

impl State {
    pub fn new(config: &Config, cursor: u64) -> Self {
        Self {
            reader: Reader::new(cursor, limits(config)),
            window: Vec::new(),
            kept: [0; KEPT],
            table: [0; SLOTS],
            given: None,
        }
    }

    fn in_table(&self) -> u32 {
        self.table.iter().map(|&n| u32::from(n)).sum()
    }
}

/// Looks at the next line; on a channel, holds at once what it takes.
pub fn receive(state: &mut State, view: &View<'_>) -> Run<Said> {
    let position = state.reader.cursor();
    let received = if view.config.is(Without::ClaimingFirst) {
        let line = [
            view.first(position)?,
            view.word(position, 1)?,
            view.last(position)?,
        ];
        let line = Some(line);
        state.reader.receive(&View { line, ..*view })?
    } else {
        state.reader.receive(view)?
    };
    let line = match received {
        Received::Message(line) => line,
        Received::Missed(_) => return Ok(Said::Missed),
        _ => return Ok(Said::Nothing),
    };
    let mask = u8::try_from(line.content[0]).expect("a mask");
    state.window.push(mask);
    if view.config.is_channel(view.ring) {
        if view.config.is(Without::KeptBeforeLow) {
            state.reader.finish(view)?;
            hold(state, view)?;
        } else if hold(state, view)? {
            state.reader.finish(view)?;
        }
        state.window.clear();
    }
    Ok(Said::Took { position, mask })
}

/// Holds each piece of the oldest message. False if that is more than it may hold.
fn hold(state: &mut State, view: &View<'_>) -> Run<bool> {
    let given = state.given;
    let memory = &View { given, ..*view };
    for slot in slots(state.window[0]) {
        let number = u32::try_from(slot).expect("small");
        let in_table = state.in_table();
        match state.reader.hold(memory, number, in_table)? {
            Ok(Hold::Entry(entry)) => {
                if state.given == Some(entry) {
                    state.given = None;
                }
                state.kept[usize::from(entry)] = u8::try_from(slot).expect("small") + 1;
            }
            Ok(Hold::Table(_)) => state.table[slot] += 1,
            Err(_) => return Ok(false),
        }
        if view.config.is(Without::EveryPiece) {
            break;
        }
    }
    Ok(true)
}

pub fn finish(state: &mut State, view: &View<'_>) -> Run<Said> {
    state.window.remove(0);
    state.reader.finish(view)?;
    Ok(Said::Nothing)
}

pub fn keep(state: &mut State, view: &View<'_>) -> Run<Said> {
    let late = [Without::KeptFirst, Without::TableFirst];
    if late.contains(&view.config.without) {
        state.reader.finish(view)?;
        hold(state, view)?;
    } else {
        hold(state, view)?;
        state.reader.finish(view)?;
    }
    state.window.remove(0);
    Ok(Said::Nothing)
}

pub fn lets_go(state: &mut State, view: &View<'_>, held: Hold) -> Run<Said> {
    match held {
        Hold::Entry(entry) => state.kept[usize::from(entry)] = 0,
        Hold::Table(slot) => state.table[slot as usize] -= 1,
    }
    if !view.config.is(Without::Clearing) {
        let_go(view, held)?;
    }
    if matches!(held, Hold::Table(_)) {
        let in_table = state.in_table();
        state.reader.empty_table(view, in_table)?;
    }
    Ok(Said::Nothing)
}

/// Leaves: the table counts what is held, then the desk shows no window and no entry.
pub fn leaves(state: &mut State, view: &View<'_>) -> Run<Said> {
    for kept in &mut state.kept {
        if let Some(slot) = std::mem::take(kept).checked_sub(1) {
            if !view.config.is(Without::CountingHolds) {
                view.count(slot.into(), true)?;
            }
            state.table[usize::from(slot)] += 1;
        }
    }
    state.window.clear();
    state.reader.leave(view)?;
    Ok(Said::Nothing)
}

/// Gives what an entry holds to the other thread.
pub fn hands_over(state: &mut State, script: &Script<'_>, entry: u8) -> Run<Said> {
    let slot = std::mem::take(&mut state.kept[usize::from(entry)]) - 1;
    state.given = Some(entry);
    script.store(words::HANDED, u64::from(slot) << 8 | (u64::from(entry) + 1))?;
    Ok(Said::Nothing)
}

/// The other thread lets go of what it was given.
pub fn helps(view: &View<'_>) -> Run<Said> {
    let given = view.script.load(words::HANDED)?;
    let entry = given.to_le_bytes()[0] - 1;
    if view.config.is(Without::ClearingFirst) {
        view.script.store(words::HANDED, 0)?;
        let_go(view, Hold::Entry(entry))?;
    } else {
        let_go(view, Hold::Entry(entry))?;
        view.script.store(words::HANDED, 0)?;
    }
    Ok(Said::Nothing)
}

/// Moves what entry 1 holds to entry 0.
pub fn moves(state: &mut State, view: &View<'_>) -> Run<Said> {
    state.kept.swap(0, 1);
    view.set_kept(0, state.kept[0].into())?;
    view.set_kept(1, 0)?;
    Ok(Said::Nothing)
}

/// Forwards what an entry holds.
pub fn forwards(state: &mut State, view: &View<'_>, entry: u8) -> Run<Said> {
    let slot = usize::from(state.kept[usize::from(entry)]) - 1;
    state.kept[usize::from(entry)] = 0;
    let script = view.script;
    let generation = script.load(words::generation(slot))? & !1;
    let clears_first = view.config.is(Without::CountingFirst);
    if clears_first {
        let_go(view, Hold::Entry(entry))?;
    }
    script.count(words::sent(slot), true)?;
    script.store(words::FORWARDED, generation << 8 | (slot as u64 + 1))?;
    if !clears_first {
        let_go(view, Hold::Entry(entry))?;
    }
    Ok(Said::Nothing)
}
