//! `topic-ring`: the ring of one writer that any number of readers map, without domains and manager: what a publish costs with 1
//! to 200 readers, and what a running reader costs that holds buffers.
//!
//! One reader runs, on the other core, and holds the writer back. The others are mapped and stand still: each tenth holds one
//! buffer, each twentieth died with a claim. Beside it `raw`: the same lines with a head, nothing collected.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use tranship_ledger::rounds::{DeskView, Outcome as Verdict, Pace, Published, Reliable, Rounds};
use tranship_region::layout::{RefsRo, RefsRw};
use tranship_ring::broadcast::{
    DeskRo, DeskRw, Hold, Limits, LinesRo, LinesRw, Message, Reader, Reading, Received, Win, let_go,
};
use tranship_ring::{Consumer, Producer, Publish, Push};

use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use crate::stats::{Measured, Samples};
use crate::systems::shared::Shared;

const RECEIVERS: [usize; 5] = [1, 2, 8, 32, 200];
/// Buffers that the running reader holds, and the pool's.
const HOLDS: [(usize, usize); 3] = [(1, 256), (12, 256), (10_000, 16_384)];
const BUFFERS: usize = 256;
const LINES: u32 = 64;
/// Publishes of one sample of a stream.
const BURST: u32 = 16;
/// Said by the writer to the reader: it was the last message.
const END: u64 = 1;
/// The desk of the reader that runs.
const RUNNING: usize = 0;

#[derive(Debug, Clone, Copy)]
struct Case {
    receivers: usize,
    buffers: usize,
    /// The running reader keeps so many buffers.
    holds: usize,
    is_trip: bool,
}

#[derive(Debug, clap::Args)]
pub struct TopicRing;

impl Bench for TopicRing {
    const REFERENCES: &'static [&'static str] = &["raw"];

    fn systems(&self) -> Vec<&'static str> {
        vec!["tranship", "raw"]
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [core, other] = common.cores();
        ensure!(core != other, "two cores: both sides spin");
        for (mode, is_trip) in [("stream", false), ("roundtrip", true)] {
            let all = common.some_of(&RECEIVERS);
            let mut cells: Vec<Cell<'_>> = all
                .iter()
                .map(|&receivers| {
                    let case = Case {
                        receivers,
                        buffers: BUFFERS,
                        holds: 0,
                        is_trip,
                    };
                    cell("tranship", mode, case, common)
                })
                .collect();
            let case = Case {
                receivers: 1,
                buffers: BUFFERS,
                holds: 0,
                is_trip,
            };
            cells.push(cell("raw", mode, case, common));
            cells.retain(|cell| common.wants(cell.system));
            outcome.group(common.runs(), cells);
        }
        let cells = HOLDS.map(|(holds, buffers)| {
            let case = Case {
                receivers: 1,
                buffers,
                holds,
                is_trip: false,
            };
            cell("tranship", "holding", case, common)
        });
        outcome.group(
            common.runs(),
            cells
                .into_iter()
                .filter(|cell| common.wants(cell.system))
                .collect(),
        );
        outcome.verdicts = verdicts(&outcome.rows);
        Ok(outcome)
    }
}

fn cell<'a>(system: &'static str, mode: &'static str, case: Case, common: &'a Common) -> Cell<'a> {
    let key = Key {
        mode,
        op: if case.holds == 0 {
            String::new()
        } else {
            format!("holds {}", case.holds)
        },
        buffers: Some(case.buffers),
        receivers: Some(case.receivers),
        ..Key::default()
    };
    Cell {
        system,
        key,
        measure: Box::new(move |number| once(system, case, common, number)),
    }
}

/// Publishing to many beside publishing to one.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let of = |receivers| {
        let is = |row: &&Row| {
            row.key.mode == "stream"
                && row.system == "tranship"
                && row.key.receivers == Some(receivers)
        };
        rows.iter().find(is)
    };
    let Some(one) = of(1) else { return Vec::new() };
    let many = RECEIVERS[1..].iter().filter_map(|&n| Some((n, of(n)?)));
    many.map(|(n, row)| {
        let (mean, p99) = (one.per_second / row.per_second, row.p99_ns / one.p99_ns);
        format!("a publish to {n} costs {mean:.2}x one to 1 in the mean, {p99:.2}x in p99")
    })
    .collect()
}

fn once(system: &str, case: Case, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let [core, other] = common.cores();
    let budget = clock::in_ticks(common.budget());
    let is_raw = system == "raw";
    let write = move |party: &Party| match is_raw {
        true => RawWriter::open(party)?.run(case, party, budget),
        false => TopicWriter::open(case, party)?.run(case, party, budget),
    };
    let read = move |party: &Party| match is_raw {
        true => raw_reader(party),
        false => reader(case, party),
    };
    let members = vec![
        Member {
            core,
            body: Box::new(write),
        },
        Member {
            core: other,
            body: Box::new(read),
        },
    ];
    Ok(party::run(number, members)?.into_iter().flatten().collect())
}

/// A word of a page that one side writes.
struct Word(Shared);

impl Word {
    fn make() -> Result<Word> {
        Ok(Word(Shared::make(4096)?))
    }
    fn map(fd: OwnedFd) -> Result<Word> {
        Ok(Word(Shared::map(fd, 4096)?))
    }
    #[inline(always)]
    fn get(&self) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, accessed as an atomic only.
        unsafe { self.0.at(0, 8).cast::<AtomicU64>().as_ref() }
    }
}

/// What publishes.
trait Writes {
    fn publish(&mut self) -> Result<u64>;
    /// The last position that the reader has answered, plus 1.
    fn echo(&self) -> u64;
    fn stop(&self);

    fn run(mut self, case: Case, party: &Party, budget: u64) -> Result<Vec<Measured>>
    where
        Self: Sized,
    {
        party.barrier()?;
        let batch = if case.is_trip { 1 } else { BURST };
        let mut samples = Samples::new(1 << 17, batch);
        // Fills what the reader holds, and warms.
        for _ in 0..2 * case.holds + 4000 {
            self.publish()?;
        }
        let begun = clock::ticks();
        let mut before = begun;
        loop {
            if case.is_trip {
                let position = self.publish()?;
                while self.echo() <= position {
                    std::hint::spin_loop();
                }
            } else {
                for _ in 0..BURST {
                    self.publish()?;
                }
            }
            let now = clock::ticks();
            if !samples.push(now - before) || now - begun > budget {
                break;
            }
            before = now;
        }
        self.stop();
        party.barrier()?;
        Ok(samples.finish("").into_iter().collect())
    }
}

/// What rounds find.
struct Own {
    free: VecDeque<u32>,
    reliable: Reliable,
    tail: u64,
}

impl Verdict for Own {
    #[inline(always)]
    fn free(&mut self, slot: u32) {
        self.free.push_back(slot);
    }
    #[inline(always)]
    fn seen(&mut self, desk: usize, low: u64) {
        self.reliable.seen(desk, low, self.tail);
    }
}

struct TopicWriter {
    lines: LinesRw,
    desks: &'static [Option<DeskView<'static>>],
    published: Published,
    rounds: Rounds,
    own: Own,
    stop: Word,
    echo: Word,
}

impl TopicWriter {
    fn open(case: Case, party: &Party) -> Result<Self> {
        let slots = u32::try_from(case.buffers)?;
        let (lines_fd, lines) = LinesRw::create(LINES)?;
        let stop = Word::make()?;
        party.send(1, 0, &[std::os::fd::AsFd::as_fd(&lines_fd), stop.0.fd()])?;
        let (_, fds) = party.recv(1)?;
        let [desk, table, echo]: [OwnedFd; 3] =
            fds.try_into().ok().context("the reader's pages")?;
        let mut rounds = Rounds::new(slots, Pace::PRODUCTION);
        let mut published = Published::new(LINES, 0, rounds.add_ring(LINES));
        let mut own = Own {
            free: (0..slots).collect(),
            reliable: Reliable::new(LINES),
            tail: 0,
        };
        // The process ends with the run: what is mapped stays.
        let mut desks = vec![Some(view(
            DeskRo::open(desk)?,
            &*Box::leak(Box::new(RefsRo::open(table, slots)?)),
            slots,
        ))];
        for desk in 1..case.receivers {
            let (fd, mine) = DeskRw::create()?;
            let mut win = Win::default();
            if desk % 10 == 5 || desk % 20 == 7 {
                let slot = own.free.pop_front().context("a buffer")?;
                let Ok(position) =
                    published.publish(&lines.lines(), &mut rounds, Message::default(), slot);
                if desk % 10 == 5 {
                    mine.desk().kept[desk % 3].store(slot + 1, Ordering::Relaxed);
                    win = Win {
                        low: position,
                        entries: u8::try_from(desk % 3)? + 1,
                        len: 0,
                    };
                } else {
                    win = Win {
                        low: position,
                        entries: 0,
                        len: 1,
                    };
                }
            }
            mine.desk().win.store(win.pack(), Ordering::Release);
            desks.push(Some(DeskView {
                desk: Box::leak(Box::new(DeskRo::open(fd)?)).desk(),
                table: &[],
            }));
            std::mem::forget(mine);
        }
        for desk in 0..case.receivers {
            rounds.join(desk, 0, Limits::new(slots));
        }
        for _ in 0..LINES {
            let slot = own.free.pop_front().context("a buffer")?;
            let Ok(_) = published.publish(&lines.lines(), &mut rounds, Message::default(), slot);
        }
        party.tell(1, published.tail())?;
        own.reliable.join(RUNNING, published.tail());
        Ok(TopicWriter {
            lines,
            desks: desks.leak(),
            published,
            rounds,
            own,
            stop,
            echo: Word::map(echo)?,
        })
    }
}

fn view(desk: DeskRo, table: &'static RefsRo, slots: u32) -> DeskView<'static> {
    let desk = Box::leak(Box::new(desk)).desk();
    // SAFETY: the counters of all slots (the count was checked), mapped until the process ends; loaded only.
    let table = unsafe { std::slice::from_raw_parts(table.counts_ptr(), slots as usize) };
    DeskView { desk, table }
}

impl Writes for TopicWriter {
    #[inline(always)]
    fn publish(&mut self) -> Result<u64> {
        let tail = self.published.tail();
        self.own.tail = tail;
        while let Ok(Some(_)) = self.own.reliable.room(self.desks, tail) {
            // The reader writes its desk's line all the time: looking without a pause slows the reader.
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
        let slot = loop {
            if let Some(slot) = self.own.free.pop_front() {
                break slot;
            }
            let Ok(_) = self.rounds.collect(self.desks, &mut self.own);
        };
        let message = Message {
            kind: 2 << 48,
            content: [tail, u64::from(slot) << 24, u64::from(slot) << 12, 64, 1, 0],
        };
        let Ok(position) =
            self.published
                .publish(&self.lines.lines(), &mut self.rounds, message, slot);
        let available = self.own.free.len();
        let Ok(()) = self.rounds.step(self.desks, available, &mut self.own);
        Ok(position)
    }

    #[inline(always)]
    fn echo(&self) -> u64 {
        self.echo.get().load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.stop.get().store(END, Ordering::Release);
    }
}

fn reader(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let slots = u32::try_from(case.buffers)?;
    let (_, fds) = party.recv(0)?;
    let [lines, stop]: [OwnedFd; 2] = fds.try_into().ok().context("the writer's pages")?;
    let (lines, stop) = (LinesRo::open(lines, LINES)?, Word::map(stop)?);
    let (desk_fd, desk) = DeskRw::create()?;
    let (table_fd, table) = RefsRw::create(slots)?;
    let echo = Word::make()?;
    let fds = [
        std::os::fd::AsFd::as_fd(&desk_fd),
        std::os::fd::AsFd::as_fd(&table_fd),
        echo.0.fd(),
    ];
    party.send(0, 0, &fds)?;
    let mut reader = Reader::new(party.hear(0)?, Limits::new(slots));
    let memory = Reading {
        lines: lines.lines(),
        desk: desk.desk(),
        table: table.refs(),
    };
    let Ok(_) = reader.claim(&memory);
    party.barrier()?;
    let mut held: VecDeque<Hold> = VecDeque::with_capacity(case.holds + 1);
    let mut in_table = 0;
    loop {
        let Ok(received) = reader.receive(&memory);
        let message = match received {
            Received::Message(message) => message,
            Received::Nothing if stop.get().load(Ordering::Acquire) == END => break,
            Received::Nothing => {
                std::hint::spin_loop();
                continue;
            }
            other => anyhow::bail!("a reliable reader receives {other:?}"),
        };
        let slot = u32::try_from(message.content[1] >> 24)?;
        ensure!(
            slot < slots && message.kind == 2 << 48,
            "a line of other words"
        );
        if case.is_trip {
            echo.get().store(reader.cursor(), Ordering::Release);
        }
        if case.holds > 0 {
            let Ok(hold) = reader.hold(&memory, slot, in_table);
            let hold = hold?;
            in_table += u32::from(matches!(hold, Hold::Table(_)));
            held.push_back(hold);
            if held.len() > case.holds
                && let Some(oldest) = held.pop_front()
            {
                in_table -= u32::from(matches!(oldest, Hold::Table(_)));
                let Ok(()) = let_go(&memory, oldest);
            }
        }
        let Ok(()) = reader.finish(&memory);
    }
    party.barrier()?;
    Ok(Vec::new())
}

/// Lines, a head, nothing else.
struct RawWriter {
    lines: LinesRw,
    producer: Producer,
    stop: Word,
    echo: Word,
}

impl RawWriter {
    fn open(party: &Party) -> Result<RawWriter> {
        let (fd, lines) = LinesRw::create(LINES)?;
        let stop = Word::make()?;
        party.send(1, 0, &[std::os::fd::AsFd::as_fd(&fd), stop.0.fd()])?;
        let (_, mut fds) = party.recv(1)?;
        let echo = Word::map(fds.pop().context("the reader's page")?)?;
        Ok(RawWriter {
            lines,
            producer: Producer::new(),
            stop,
            echo,
        })
    }
}

impl Writes for RawWriter {
    #[inline(always)]
    fn publish(&mut self) -> Result<u64> {
        let (tail, echo) = (self.producer.tail(), &self.echo);
        let words = [2 << 32, tail, 7, tail << 12, 64, 1, 0, 0];
        let head = || echo.get().load(Ordering::Acquire);
        while self
            .producer
            .try_push(self.lines.lines(), Publish::Release, words, head)?
            != Push::Done
        {
            std::hint::spin_loop();
        }
        Ok(tail)
    }

    #[inline(always)]
    fn echo(&self) -> u64 {
        self.echo.get().load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.stop.get().store(END, Ordering::Release);
    }
}

fn raw_reader(party: &Party) -> Result<Vec<Measured>> {
    let (_, fds) = party.recv(0)?;
    let [lines, stop]: [OwnedFd; 2] = fds.try_into().ok().context("the writer's pages")?;
    let (lines, stop) = (LinesRo::open(lines, LINES)?, Word::map(stop)?);
    let head = Word::make()?;
    party.send(0, 0, &[head.0.fd()])?;
    let mut consumer = Consumer::new();
    party.barrier()?;
    loop {
        let Some(words) = consumer.try_pop(lines.lines()) else {
            std::hint::spin_loop();
            if stop.get().load(Ordering::Acquire) == END {
                break;
            }
            continue;
        };
        ensure!(words[2] == 7 && words[5] == 1, "a line of other words");
        head.get().store(consumer.head(), Ordering::Release);
    }
    party.barrier()?;
    Ok(Vec::new())
}
