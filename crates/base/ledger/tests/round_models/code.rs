//! What threads run: one operation after the other.

use tranship_ring::broadcast::Hold;

use crate::config::{Config, READERS, SLOTS};
use crate::reader;
use crate::receiver;
use crate::replay::{Code, Run, Script};
use crate::words::View;
use crate::writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    // The writer.
    /// In these rings, these slots (bits).
    Publish(u8, u8),
    Withdraw,
    Begin,
    /// A desk.
    Look,
    /// A word of a table.
    Table,
    End,
    /// Buffers that no desk covers, judged by their counters.
    Judge,
    /// Asks reliable readers of a ring how far they are.
    Ask(u8),
    Join(u8),
    Remove(u8),
    /// Removes a reader that has left, if its desk shows nothing.
    RemoveEmpty(u8),
    /// The forwarding queue leaves, its sink's references with it or not.
    Leave(bool),
    Find(u8),
    /// The handles go that the writer found.
    Forget,
    // A reader.
    Receive,
    Finish,
    Keep,
    LetGo(Hold),
    Rest,
    GoodBye,
    HandOver(u8),
    Move,
    Forward(u8),
    /// The reader's second thread.
    Help,
    // The domain without a desk.
    Take,
    Release(u8),
}

#[derive(Clone, Copy)]
pub enum Said {
    Nothing,
    Missed,
    Took {
        position: u64,
        mask: u8,
    },
    Published {
        freed: u8,
    },
    Freed(u8),
    /// A desk was removed.
    Removed,
    /// A reader is reported that has more in its table than was agreed.
    Exceeded,
    /// A forwarded buffer, by its generation.
    Holds {
        slot: u8,
        generation: u32,
    },
    Refused,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Private {
    Writer(Box<writer::State>),
    Reader(reader::State),
    Receiver([u8; SLOTS]),
    Nothing,
}

pub fn slots(mask: u8) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |slot| mask & 1 << slot != 0)
}

/// The code of thread 0 is the writer's; 1 and 2 are readers; 3 is the first reader's other thread, or the domain without
/// a desk.
pub struct Threads {
    pub config: Config,
}

impl Code for Threads {
    /// With the number of the thread.
    type Op = (u8, Op);
    type Private = Private;
    type Said = Said;

    fn run(&self, (thread, op): (u8, Op), private: &mut Private, script: &Script<'_>) -> Run<Said> {
        let config = &self.config;
        let reader = if thread == 3 {
            0
        } else {
            usize::from(thread.max(1)) - 1
        };
        let ring = config.readers.get(reader).copied().unwrap_or(0);
        let view = View::new(script, config, ring, reader.min(READERS - 1));
        match private {
            Private::Writer(state) => writer::run(op, state, config, script),
            Private::Reader(state) => match op {
                Op::Receive => reader::receive(state, &view),
                Op::Finish => reader::finish(state, &view),
                Op::Keep => reader::keep(state, &view),
                Op::LetGo(held) => reader::lets_go(state, &view, held),
                Op::Rest => {
                    state.reader.rest(&view)?;
                    Ok(Said::Nothing)
                }
                Op::GoodBye => reader::leaves(state, &view),
                Op::HandOver(entry) => reader::hands_over(state, script, entry),
                Op::Move => reader::moves(state, &view),
                Op::Forward(entry) => reader::forwards(state, &view, entry),
                _ => unreachable!("a reader's"),
            },
            Private::Receiver(held) => match op {
                Op::Take => receiver::take(held, config, script),
                Op::Release(slot) => receiver::release(held, slot, script),
                _ => unreachable!("a receiver's"),
            },
            Private::Nothing => reader::helps(&view),
        }
    }
}
