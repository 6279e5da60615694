//! The ring of a broadcast between two processes, without domains: what bench `topic` measures beside the library.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use tranship_ledger::rounds::DeskView;
use tranship_region::layout::{RefsRo, RefsRw};
use tranship_ring::broadcast::{
    DeskRo, DeskRw, Limits, LinesRo, LinesRw, Reader, Reading, Received,
};

use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, Samples};
use crate::systems::shared::Shared;

const LINES: u32 = 64;
/// Publishes of one sample.
const BURST: u32 = 16;
/// Said by the writer to the reader: it was the last message.
const END: u64 = 1;
/// What each line says that it is.
pub(crate) const KIND: u64 = 2 << 48;

/// A word of a page that one side writes.
pub(crate) struct Word(Shared);

impl Word {
    pub(crate) fn make() -> Result<Word> {
        Ok(Word(Shared::make(4096)?))
    }
    pub(crate) fn map(fd: OwnedFd) -> Result<Word> {
        Ok(Word(Shared::map(fd, 4096)?))
    }
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
    #[inline(always)]
    pub(crate) fn get(&self) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, accessed as an atomic only.
        unsafe { self.0.at(0, 8).cast::<AtomicU64>().as_ref() }
    }
}

/// Publishes for as long as the budget lasts; `stop` is the word by which the reader hears of the end.
#[inline(always)]
pub(crate) fn measure(
    party: &Party,
    budget: u64,
    stop: &Word,
    mut publish: impl FnMut() -> Result<()>,
) -> Result<Vec<Measured>> {
    party.barrier()?;
    let mut samples = Samples::new(1 << 17, BURST);
    // Warms.
    for _ in 0..4000 {
        publish()?;
    }
    let begun = clock::ticks();
    let mut before = begun;
    loop {
        for _ in 0..BURST {
            publish()?;
        }
        let now = clock::ticks();
        if !samples.push(now - before) || now - begun > budget {
            break;
        }
        before = now;
    }
    stop.get().store(END, Ordering::Release);
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

/// Shows the writer's pages, and takes the reader's.
pub(crate) fn open(party: &Party) -> Result<(LinesRw, Word, Vec<OwnedFd>)> {
    let (fd, lines) = LinesRw::create(LINES)?;
    let stop = Word::make()?;
    party.send(1, 0, &[fd.as_fd(), stop.0.fd()])?;
    let (_, fds) = party.recv(1)?;
    Ok((lines, stop, fds))
}

/// A desk in memory that stays mapped until the process ends, with the run.
pub(crate) fn view(desk: DeskRo, table: RefsRo) -> DeskView<'static> {
    let (desk, table) = (Box::leak(Box::new(desk)).desk(), Box::leak(Box::new(table)));
    // SAFETY: the counters of all slots, mapped until the process ends; loaded only.
    let table = unsafe { std::slice::from_raw_parts(table.counts_ptr(), table.count() as usize) };
    DeskView { desk, table }
}

/// A reader of a pool with so many slots. It holds nothing back, and may miss lines.
pub(crate) fn reader(party: &Party, slots: u32) -> Result<Vec<Measured>> {
    let (_, fds) = party.recv(0)?;
    let [lines, stop]: [OwnedFd; 2] = fds.try_into().ok().context("the writer's pages")?;
    let (lines, stop) = (LinesRo::open(lines, LINES)?, Word::map(stop)?);
    let (desk_fd, desk) = DeskRw::create()?;
    let (table_fd, table) = RefsRw::create(slots)?;
    party.send(0, 0, &[desk_fd.as_fd(), table_fd.as_fd()])?;
    let mut reader = Reader::new(party.hear(0)?, Limits::new(slots));
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
            slot < slots && message.kind == KIND,
            "a line of other words"
        );
        let Ok(()) = reader.finish(&memory);
    }
    party.barrier()?;
    Ok(Vec::new())
}
