//! `topic-ring`: the ring of one writer that any number of readers map, without domains and manager: what a publish costs with 1
//! to 200 readers, and what a running reader costs that holds buffers.
//!
//! One reader runs, on the other core, and holds the writer back. The others are mapped and stand still: each tenth holds one
//! buffer, each twentieth died with a claim. Beside it `raw`: the same lines with a head, nothing collected.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
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
const LINES: u32 = 64;
/// Publishes of one sample of a stream.
const BURST: u32 = 16;
/// Said by the writer to the reader: it was the last message.
const END: u64 = 1;
/// What each line says that it is.
const KIND: u64 = 2 << 48;
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

const ONE: Case = Case {
    receivers: 1,
    buffers: 256,
    holds: 0,
    is_trip: false,
};

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
        let all = common.some_of(&RECEIVERS);
        for (mode, is_trip) in [("stream", false), ("roundtrip", true)] {
            let of = |receivers| Case {
                receivers,
                is_trip,
                ..ONE
            };
            let cells = all.iter().map(|&n| cell("tranship", mode, of(n), common));
            let cells = cells.chain([cell("raw", mode, of(1), common)]);
            let wanted = cells.filter(|cell| common.wants(cell.system));
            outcome.group(common.runs(), wanted.collect());
        }
        let holding = HOLDS.map(|(holds, buffers)| Case {
            holds,
            buffers,
            ..ONE
        });
        let cells = holding.map(|case| cell("tranship", "holding", case, common));
        if common.wants("tranship") {
            outcome.group(common.runs(), cells.into());
        }
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
    let say = |(n, row): (usize, &Row)| {
        let (mean, p99) = (one.per_second / row.per_second, row.p99_ns / one.p99_ns);
        format!("a publish to {n} costs {mean:.2}x one to 1 in the mean, {p99:.2}x in p99")
    };
    many.map(say).collect()
}

fn once(system: &str, case: Case, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let [core, other] = common.cores();
    let budget = clock::in_ticks(common.budget());
    let is_raw = system == "raw";
    let write = move |party: &Party| match is_raw {
        true => raw_writer(case, party, budget),
        false => writer(case, party, budget),
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

/// The words by which the two sides talk: the writer's, and the reader's.
struct Pages {
    stop: Word,
    /// The position after the last one that the reader has answered.
    echo: Word,
}

/// Publishes for as long as the budget lasts. `publish` returns the position.
#[inline(always)]
fn measure(
    case: Case,
    party: &Party,
    budget: u64,
    pages: &Pages,
    mut publish: impl FnMut() -> Result<u64>,
) -> Result<Vec<Measured>> {
    party.barrier()?;
    let batch = if case.is_trip { 1 } else { BURST };
    let mut samples = Samples::new(1 << 17, batch);
    // Fills what the reader holds, and warms.
    for _ in 0..2 * case.holds + 4000 {
        publish()?;
    }
    let begun = clock::ticks();
    let mut before = begun;
    loop {
        for _ in 0..batch {
            let position = publish()?;
            while case.is_trip && pages.echo.get().load(Ordering::Acquire) <= position {
                std::hint::spin_loop();
            }
        }
        let now = clock::ticks();
        if !samples.push(now - before) || now - begun > budget {
            break;
        }
        before = now;
    }
    pages.stop.get().store(END, Ordering::Release);
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
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

fn writer(case: Case, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let slots = u32::try_from(case.buffers)?;
    let (lines, pages, fds) = open(party)?;
    let [desk, table]: [OwnedFd; 2] = fds.try_into().ok().context("the reader's pages")?;
    let mut rounds = Rounds::new(slots, Pace::PRODUCTION);
    let mut published = Published::new(LINES, 0, rounds.add_ring(LINES));
    let mut own = Own {
        free: (0..slots).collect(),
        reliable: Reliable::new(LINES),
        tail: 0,
    };
    let mut desks = vec![Some(view(DeskRo::open(desk)?, RefsRo::open(table, slots)?))];
    let mut put = |own: &mut Own, rounds: &mut Rounds| -> Result<(u64, u32)> {
        let slot = own.free.pop_front().context("a buffer")?;
        let message = Message::default();
        let Ok(position) = published.publish(&lines.lines(), rounds, message, slot);
        Ok((position, slot))
    };
    for desk in 1..case.receivers {
        let (fd, mine) = DeskRw::create()?;
        let mut win = Win::default();
        if desk % 10 == 5 {
            let (position, slot) = put(&mut own, &mut rounds)?;
            mine.desk().kept[desk % 3].store(slot + 1, Ordering::Relaxed);
            win.low = position;
            win.entries = u8::try_from(desk % 3)? + 1;
        } else if desk % 20 == 7 {
            win.low = put(&mut own, &mut rounds)?.0;
            win.len = 1;
        }
        mine.desk().win.store(win.pack(), Ordering::Release);
        let desk = Box::leak(Box::new(DeskRo::open(fd)?)).desk();
        desks.push(Some(DeskView { desk, table: &[] }));
        std::mem::forget(mine);
    }
    for desk in 0..case.receivers {
        rounds.join(desk, 0, Limits::new(slots));
    }
    for _ in 0..LINES {
        put(&mut own, &mut rounds)?;
    }
    party.tell(1, published.tail())?;
    own.reliable.join(RUNNING, published.tail());
    measure(case, party, budget, &pages, || {
        let tail = published.tail();
        own.tail = tail;
        while let Ok(Some(_)) = own.reliable.room(&desks[..], tail) {
            // The reader writes its desk's line all the time: looking without a pause slows the reader.
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
        let slot = loop {
            if let Some(slot) = own.free.pop_front() {
                break slot;
            }
            let Ok(_) = rounds.collect(&desks[..], &mut own);
        };
        let message = Message {
            kind: KIND,
            content: [tail, u64::from(slot) << 24, tail << 12, 64, 1, 0],
        };
        let Ok(position) = published.publish(&lines.lines(), &mut rounds, message, slot);
        let available = own.free.len();
        let Ok(()) = rounds.step(&desks[..], available, &mut own);
        Ok(position)
    })
}

/// Shows the writer's pages, and takes the reader's.
fn open(party: &Party) -> Result<(LinesRw, Pages, Vec<OwnedFd>)> {
    let (fd, lines) = LinesRw::create(LINES)?;
    let stop = Word::make()?;
    party.send(1, 0, &[fd.as_fd(), stop.0.fd()])?;
    let (_, mut fds) = party.recv(1)?;
    let echo = Word::map(fds.pop().context("the reader's page")?)?;
    Ok((lines, Pages { stop, echo }, fds))
}

/// A desk in memory that stays mapped until the process ends, with the run.
fn view(desk: DeskRo, table: RefsRo) -> DeskView<'static> {
    let (desk, table) = (Box::leak(Box::new(desk)).desk(), Box::leak(Box::new(table)));
    // SAFETY: the counters of all slots, mapped until the process ends; loaded only.
    let table = unsafe { std::slice::from_raw_parts(table.counts_ptr(), table.count() as usize) };
    DeskView { desk, table }
}

fn reader(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let slots = u32::try_from(case.buffers)?;
    let (_, fds) = party.recv(0)?;
    let [lines, stop]: [OwnedFd; 2] = fds.try_into().ok().context("the writer's pages")?;
    let (lines, stop) = (LinesRo::open(lines, LINES)?, Word::map(stop)?);
    let (desk_fd, desk) = DeskRw::create()?;
    let (table_fd, table) = RefsRw::create(slots)?;
    let echo = Word::make()?;
    let fds = [desk_fd.as_fd(), table_fd.as_fd(), echo.0.fd()];
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
            slot < slots && message.kind == KIND,
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
fn raw_writer(case: Case, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let (lines, pages, _) = open(party)?;
    let mut producer = Producer::new();
    measure(case, party, budget, &pages, || {
        let tail = producer.tail();
        let words = [KIND >> 16, tail, 7, tail << 12, 64, 1, 0, 0];
        let head = || pages.echo.get().load(Ordering::Acquire);
        while producer.try_push(lines.lines(), Publish::Release, words, head)? != Push::Done {
            std::hint::spin_loop();
        }
        Ok(tail)
    })
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
