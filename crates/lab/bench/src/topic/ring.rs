//! What a topic's publish does without the topic: buffers of a pool, the ring, the bell's rule, rounds. Its reader
//! counts no buffers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use tranship_core::topics::{self, Named};
use tranship_core::{Buffer, Pool, PoolOptions};
use tranship_ledger::rounds::{DeskView, Outcome as Verdict, Pace, Published, Rounds};
use tranship_region::layout::{RefsRo, RefsRw};
use tranship_ring::Lines;
use tranship_ring::broadcast::{
    BellRw, Desk, DeskRo, DeskRw, Limits, LinesRo, LinesRw, Message, Reader, Reading, Received,
    Ticks, WINDOW,
};
use tranship_sys::time::{counter, has_steady_counter, monotonic_ns};

use super::trip::{self, Word};
use super::what::{BUFFERS, LINES, Mode, PAYLOAD};
use crate::party::Party;
use crate::stats::Measured;
use crate::systems::tranship::join;

/// Buffers of ended lines that wait for a round, and steps of a round: as a topic has them.
const SPARE: usize = 64 + 12;

/// The writer's word for the reader: it was the last message.
const END: u64 = 1;
/// Every line's kind.
const KIND: u64 = 2 << 48;

/// Handles of the buffers that lines name, by slots.
struct Held<'a> {
    pool: &'a Pool,
    buffers: Vec<Option<Buffer>>,
}

impl Verdict for Held<'_> {
    #[inline]
    fn free(&mut self, slot: u32) {
        if let Some(buffer) = self.buffers[slot as usize].take() {
            topics::let_go(self.pool, buffer);
        }
    }
}

fn line(named: Named, number: u64) -> Message {
    let Named {
        id,
        offset,
        length,
        serial,
    } = named;
    Message {
        kind: KIND,
        // The reader looks at the slot in the second word.
        content: [
            number,
            u64::from(id.slot()) << 24,
            offset,
            length,
            serial.into(),
            id.0,
        ],
    }
}

/// Takes a message, keeps its buffer, and stands still, with the lines claimed that come after it.
fn stand(lines: Lines<'_>, desk: &Desk, position: u64, slot: u32) -> Result<()> {
    let memory = Reading {
        lines,
        desk,
        table: &[],
    };
    let mut reader = Reader::new(position, Limits::new(BUFFERS));
    let Ok(received) = reader.receive(&memory);
    ensure!(
        matches!(received, Received::Message(_)),
        "a message to keep, not {received:?}"
    );
    let Ok(held) = reader.hold(&memory, slot, 0);
    held?;
    let Ok(()) = reader.finish(&memory);
    Ok(())
}

/// A desk in memory that stays mapped until the process ends, with the run.
fn view(desk: DeskRo, table: RefsRo) -> DeskView<'static> {
    let (desk, table) = (Box::leak(Box::new(desk)).desk(), Box::leak(Box::new(table)));
    // SAFETY: the counters of all slots, mapped until the process ends; loaded only.
    let table = unsafe { std::slice::from_raw_parts(table.counts_ptr(), table.count() as usize) };
    DeskView { desk, table }
}

pub fn writer(_: Mode, receivers: usize, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let pool = domain.create_pool(PoolOptions::new(u64::from(BUFFERS) * 4096).slots(BUFFERS))?;
    let (fd, lines) = LinesRw::create(LINES)?;
    let stop = Word::make()?;
    party.send(1, 0, &[fd.as_fd(), stop.fd()])?;
    let (_, fds) = party.recv(1)?;
    let [desk, table] = fds.try_into().ok().context("the reader's pages")?;
    let mut rounds = Rounds::new(BUFFERS, Pace::PRODUCTION);
    let mut published = Published::new(LINES, 0, rounds.add_ring(LINES));
    let mut held = Held {
        pool: &pool,
        buffers: (0..BUFFERS).map(|_| None).collect(),
    };
    let mut desks = vec![Some(view(
        DeskRo::open(desk)?,
        RefsRo::open(table, BUFFERS)?,
    ))];
    let mut put = |held: &mut Held<'_>, rounds: &mut Rounds| -> Result<(u64, u32)> {
        let tail = published.tail();
        let mut message = pool.alloc(PAYLOAD)?;
        message.write(0, &u64::to_le_bytes(tail))?;
        let buffer = message.freeze();
        let named = topics::named(&pool, &buffer).context("a buffer of the pool")?;
        let slot = buffer.id().slot();
        let Ok(position) = published.publish(&lines.lines(), rounds, line(named, tail), slot);
        held.buffers[slot as usize] = Some(buffer);
        Ok((position, slot))
    };
    for desk in 1..receivers {
        let (fd, mine) = DeskRw::create()?;
        if desk % 10 == 1 {
            let (position, slot) = put(&mut held, &mut rounds)?;
            stand(lines.lines(), mine.desk(), position, slot)?;
            // As a topic's: the lines that it has claimed are not those of the next one.
            for _ in 1..WINDOW {
                put(&mut held, &mut rounds)?;
            }
        }
        let desk = Box::leak(Box::new(DeskRo::open(fd)?)).desk();
        desks.push(Some(DeskView { desk, table: &[] }));
        std::mem::forget(mine);
    }
    for desk in 0..receivers {
        rounds.join(desk, 0, Limits::new(BUFFERS));
    }
    let mut ticks = Ticks::new(has_steady_counter().then(counter), monotonic_ns());
    let (_, bell) = BellRw::create()?;
    party.tell(1, 0)?;
    party.barrier()?;
    let samples = trip::stream(budget, || {
        put(&mut held, &mut rounds)?;
        if ticks.wakes(counter, monotonic_ns) {
            bell.wake(1);
        }
        let available = SPARE.saturating_sub(rounds.ended());
        let Ok(()) = rounds.step(&desks[..], available, &mut held);
        Ok(())
    })?;
    stop.get().store(END, Ordering::Release);
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

/// A reader that holds nothing back, and may miss lines.
pub fn reader(_: Mode, _: usize, party: &Party, _: u64) -> Result<Vec<Measured>> {
    let _domain = join::domain(1, party)?;
    let (_, fds) = party.recv(0)?;
    let [lines, stop]: [OwnedFd; 2] = fds.try_into().ok().context("the writer's pages")?;
    let (lines, stop) = (LinesRo::open(lines, LINES)?, Word::map(stop)?);
    let (desk_fd, desk) = DeskRw::create()?;
    let (table_fd, table) = RefsRw::create(BUFFERS)?;
    party.send(0, 0, &[desk_fd.as_fd(), table_fd.as_fd()])?;
    let mut reader = Reader::new(party.hear(0)?, Limits::new(BUFFERS));
    let memory = Reading {
        lines: lines.lines(),
        desk: desk.desk(),
        table: table.refs(),
    };
    let Ok(_) = reader.claim(&memory);
    party.barrier()?;
    loop {
        let Ok(received) = reader.receive(&memory);
        let message = match received {
            Received::Message(message) => message,
            Received::Missed(_) => continue,
            Received::Nothing if stop.get().load(Ordering::Acquire) == END => break,
            Received::Nothing => {
                std::hint::spin_loop();
                continue;
            }
            other => anyhow::bail!("a reader receives {other:?}"),
        };
        let slot = u32::try_from(message.content[1] >> 24)?;
        ensure!(
            slot < BUFFERS && message.kind == KIND,
            "a line of other words"
        );
        let Ok(()) = reader.finish(&memory);
    }
    party.barrier()?;
    Ok(Vec::new())
}
